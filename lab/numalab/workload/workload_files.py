"""The files of a workload, which go to the guest on the job disk.

A workload's folder holds `workload.toml` and the files of its command: C files, each of which
becomes one static program, headers, and scripts. None of them is in an image.
"""

from pathlib import Path

from numalab.artifact.program_artifact import ensure_program
from numalab.errors import UserError
from numalab.places import find_input, shipped_dir

TABLE = "workload.toml"
MOST_BYTES = 32 << 20  # of all files together; the job disk has to hold the results as well
_CODE = (".c", ".h")
_SAMPLER = "numalab-sample.c"  # reads the sampled sources of plug-ins
_SHAKER = "numalab-shake.c"


def build_workload(folder: Path, *beside: Path) -> dict[str, bytes]:
    """Return the files of a workload for the guest, by name: programs built, scripts as they are.

    `beside` are further C files. Raises UserError for a folder that is too large or holds folders,
    BuildError for a source that does not compile, HostError without a compiler.
    """
    files = [path for path in sorted(folder.iterdir()) if path.name != TABLE]
    for path in files:
        if not path.is_file():
            raise UserError(f"{path.name} is not a file; the folder is flat", file=folder)
    if sum(path.stat().st_size for path in files) > MOST_BYTES:
        raise UserError(f"holds more than {MOST_BYTES >> 20} MiB", file=folder)
    built = {path.name: path.read_bytes() for path in files if path.suffix not in _CODE}
    for source in (*(path for path in files if path.suffix == ".c"), *beside):
        if source.stem in built:
            raise UserError(f"{source.name} becomes {source.stem}, which exists", file=folder)
        built[source.stem] = ensure_program(source, shared_headers()).read_bytes()
    return built


def shared_headers() -> list[Path]:
    """Return the headers that the C files of any workload may include."""
    names = (("images", "src/numalab.h"), ("workloads", "shared.h"))
    return [find_input(kind, name) or shipped_dir() / kind / name for kind, name in names]


def shaker() -> Path:
    """Return the source of the program that shakes the machine by the seed before a command."""
    return shipped_dir() / "workloads" / _SHAKER


def sampler() -> Path:
    """Return the source of the program that samples what plug-ins added."""
    return shipped_dir() / "workloads" / _SAMPLER
