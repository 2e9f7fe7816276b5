"""Compiles the memory model, a plugin of QEMU, once for each emulator and each of its sources."""

from pathlib import Path

from numalab.emulator.built import BuiltEmulator
from numalab.emulator.catalogue import emulator_configs
from numalab.errors import BuildError
from numalab.files import replacing
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run, version_line
from numalab.source.digest import digest_of, hash_file

FLAGS = ("-std=gnu11", "-O3", "-flto", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-s")


def memory_plugin(emulator: BuiltEmulator) -> Path:
    """Return the memory model, compiled against the emulator's header.

    Raises HostError without a compiler, BuildError with the compiler's words.
    """
    gcc = find_program("gcc", "gcc")
    folder = emulator_configs() / "memory"
    files = sorted((*folder.glob("*.c"), *folder.glob("*.h")))
    hashes = [[path.name, hash_file(path)] for path in files]
    digest = digest_of([FLAGS, version_line("gcc", "gcc"), hash_file(emulator.header), hashes])
    plugin = cache_dir("emulator-plugins") / f"memory-{digest}.so"
    if plugin.is_file():
        return plugin
    names = [path.name for path in files if path.suffix == ".c"]
    with replacing(plugin) as new:
        argv: list[str | Path] = [gcc, *FLAGS, "-I", emulator.header.parent, "-o", new, *names]
        try:
            run(argv, cwd=folder)
        except CommandFailed as failed:
            raise BuildError(
                "the memory model does not compile", tail=failed.completed.stderr
            ) from None
    return plugin
