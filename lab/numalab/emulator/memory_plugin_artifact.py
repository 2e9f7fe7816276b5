"""Compiles the memory model, a plugin of QEMU, once for each emulator and each of its sources."""

from pathlib import Path

from numalab.artifact.digest import digest_of, hash_file
from numalab.emulator.emulator_artifact import BuiltEmulator
from numalab.emulator.emulator_specs import emulator_configs
from numalab.errors import BuildError, HostError
from numalab.files import replacing
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run, version_line

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
        argv: list[str | Path] = [gcc, *FLAGS, "-I", emulator.header.parent]
        argv += [*_glib_flags(emulator.header), "-o", new, *names]
        try:
            run(argv, cwd=folder)
        except CommandFailed as failed:
            raise BuildError(
                "the memory model does not compile", tail=failed.completed.stderr
            ) from None
    return plugin


def _glib_flags(header: Path) -> list[str]:
    """Return where GLib's headers are, for the header of a QEMU (since 8.2) that includes them."""
    if "#include <glib.h>" not in header.read_text(encoding="utf-8"):
        return []
    pkg_config = find_program("pkg-config", "pkg-config")
    try:
        return run([pkg_config, "--cflags", "glib-2.0"]).stdout.split()
    except CommandFailed:
        raise HostError(
            "the headers of GLib are not installed", hint="apt-get install libglib2.0-dev"
        ) from None
