"""Our own small C programs, linked statically by this host's compiler."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from numalab.artifact.digest import hash_file
from numalab.errors import BuildError
from numalab.process import CommandFailed, find_program, run, version_line

FLAGS = ("-O2", "-static", "-Wall", "-Wextra", "-Werror", "-s")
LIBRARIES = ("-lm", "-lpthread")


def compiler_inputs() -> tuple[str, Path]:
    """Return the compiler's version line and the static C library that goes into each program.

    Raises HostError without a compiler, or without a static C library.
    """
    gcc = find_program("gcc", "gcc")
    library = Path(run([gcc, "-print-file-name=libc.a"]).stdout.strip())
    if not library.is_absolute():
        find_program("a static C library (libc.a)", "libc6-dev")
    return version_line("gcc", "gcc"), library


def programs_digest(files: Iterable[Path]) -> str:
    """Hash what programs are made from: sources and headers, flags, compiler and C library."""
    version, library = compiler_inputs()
    parts = [*FLAGS, *LIBRARIES, version, hash_file(library)]
    for path in files:
        parts += [path.name, hash_file(path)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def compile_program(source: Path, target: Path, *, include: Iterable[Path] = ()) -> None:
    """Compile one C file; `include` names folders of headers. BuildError has gcc's words."""
    gcc = find_program("gcc", "gcc")
    # Relative to its folder, so that no path of this host gets into a program.
    headers = [word for folder in include for word in ("-I", folder)]
    argv: list[str | Path] = [gcc, *FLAGS, *headers, "-o", target, source.name, *LIBRARIES]
    try:
        run(argv, cwd=source.parent)
    except CommandFailed as failed:
        raise BuildError(f"cannot compile {source}", tail=failed.completed.stderr) from None
