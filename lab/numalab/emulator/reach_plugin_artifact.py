"""The plugins that count what runs, compiled once for each version of QEMU's plugin API."""

from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, existing_file
from numalab.artifact.digest import digest_of, hash_file
from numalab.artifact.program_artifact import run_compiler
from numalab.emulator.emulator_specs import emulator_configs
from numalab.emulator.memory_plugin_artifact import PLUGINS
from numalab.process import version_line

_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared",
          "-fvisibility=hidden", "-s")  # fmt: skip
# QEMU_PLUGIN_VERSION in qemu-plugin.h by QEMU version, the newest first. A QEMU takes plugins of
# its own version and of some older ones.
_API = {(9, 2): 4, (9, 1): 3, (8, 2): 2, (0, 0): 1}


def reach_plugin(qemu: tuple[int, ...]) -> Path:
    """Return the plugin that counts lines, for a QEMU of this version (empty: a recent one).

    Raises HostError without a compiler, BuildError with the compiler's output.
    """
    return _plugin("reach", qemu)


def calls_plugin(qemu: tuple[int, ...]) -> Path:
    """Return the plugin that counts calls; arguments and errors as for `reach_plugin`."""
    return _plugin("calls", qemu)


def _plugin(name: str, qemu: tuple[int, ...]) -> Path:
    folder = emulator_configs() / "reach"
    source = folder / f"{name}.c"
    api = next(number for since, number in _API.items() if not qemu or qemu >= since)
    flags = (*_FLAGS, f"-DAPI_VERSION={api}")
    hashes = [hash_file(path) for path in (source, *sorted(folder.glob("*.h")))]
    digest = digest_of([flags, version_line("gcc", "gcc"), hashes])

    def make(work: Work) -> None:
        words: list[str | Path] = [*flags, "-o", work.entry, source.name]
        run_compiler(f"the plugin {name}", words, folder)

    entry = PLUGINS.entry(f"{name}-{digest}.so")
    return build(Artifact(PLUGINS, name, entry, make, existing_file))
