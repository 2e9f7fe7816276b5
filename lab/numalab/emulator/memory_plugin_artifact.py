"""The memory model, a plug-in of QEMU, compiled once for each emulator and version of its code."""

from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, existing_file
from numalab.artifact.digest import digest_of, hash_file
from numalab.artifact.kinds import Kind, register_kind
from numalab.artifact.program_artifact import run_compiler
from numalab.emulator.emulator_artifact import BuiltEmulator
from numalab.emulator.emulator_specs import emulator_configs
from numalab.errors import HostError
from numalab.process import CommandFailed, find_program, run, version_line

FLAGS = ("-std=gnu11", "-O3", "-flto", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-s")
PLUGINS = register_kind(Kind(name="plugin", folder="emulator-plugins", files="*.so"))


def memory_plugin(emulator: BuiltEmulator) -> Path:
    """Return the memory model, compiled against the emulator's header.

    Raises HostError without a compiler, BuildError with the compiler's output.
    """
    folder = emulator_configs() / "memory"
    files = sorted((*folder.glob("*.c"), *folder.glob("*.h")))
    hashes = [[path.name, hash_file(path)] for path in files]
    digest = digest_of([FLAGS, version_line("gcc", "gcc"), hash_file(emulator.header), hashes])

    def make(work: Work) -> None:
        sources = [path.name for path in files if path.suffix == ".c"]
        words: list[str | Path] = [*FLAGS, "-I", emulator.header.parent]
        words += [*_glib_flags(emulator.header), "-o", work.entry, *sources]
        run_compiler("the memory model", words, folder)

    entry = PLUGINS.entry(f"memory-{digest}.so")
    return build(Artifact(PLUGINS, "memory", entry, make, existing_file))


def _glib_flags(header: Path) -> list[str]:
    """Return the flags for GLib's headers, if the header of a QEMU (since 8.2) includes them."""
    if "#include <glib.h>" not in header.read_text(encoding="utf-8"):
        return []
    pkg_config = find_program("pkg-config", "pkg-config")
    try:
        return run([pkg_config, "--cflags", "glib-2.0"]).stdout.split()
    except CommandFailed:
        raise HostError(
            "the headers of GLib are not installed", hint="apt-get install libglib2.0-dev"
        ) from None
