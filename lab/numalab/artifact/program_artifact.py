"""Small C programs, linked statically by this host's compiler."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, existing_file
from numalab.artifact.digest import hash_file
from numalab.artifact.kinds import Kind, register_kind
from numalab.errors import BuildError
from numalab.process import CommandFailed, find_program, run, version_line

FLAGS = ("-O2", "-static", "-Wall", "-Wextra", "-Werror", "-s")
LIBRARIES = ("-lm", "-lpthread")


def _title(entry: Path) -> str:
    """Return the name of a program's entry without the digest."""
    return entry.name.rpartition("-")[0]


PROGRAMS = register_kind(Kind(name="program", folder="programs", files="*", title=_title))


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
    """Hash the inputs of programs: sources and headers, flags, compiler and C library."""
    version, library = compiler_inputs()
    parts = [*FLAGS, *LIBRARIES, version, hash_file(library)]
    for path in files:
        parts += [path.name, hash_file(path)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def ensure_program(source: Path, shared: Sequence[Path] = ()) -> Path:
    """Return the program of one C file, compiled unless the cache has it.

    It may include files that lie beside it, and `shared` headers. Its digest holds all that it
    includes. Raises BuildError with the compiler's output, HostError without a compiler.
    """
    include = [path.parent for path in shared]
    text = _compile(source, ["-E", "-P"], include)
    parts = f"{programs_digest([source])}\0{text}".encode(errors="surrogateescape")

    def make(work: Work) -> None:
        compile_program(source, work.entry, include=include)

    entry = PROGRAMS.entry(f"{source.stem}-{hashlib.sha256(parts).hexdigest()[:32]}")
    return build(Artifact(PROGRAMS, source.stem, entry, make, existing_file))


def compile_program(source: Path, target: Path, *, include: Iterable[Path] = ()) -> None:
    """Compile one C file; `include` names folders of headers. Raises BuildError."""
    _compile(source, ["-o", target], include)


def _compile(source: Path, words: Sequence[str | Path], include: Iterable[Path]) -> str:
    # Relative to its folder, so that no path of this host gets into a program.
    headers = [word for folder in include for word in ("-I", folder)]
    words = [*FLAGS, *headers, *words, source.name, *LIBRARIES]
    return run_compiler(str(source), words, source.parent)


def run_compiler(what: str, words: Sequence[str | Path], folder: Path) -> str:
    """Run gcc in a folder, and return what it prints: text whose other bytes are surrogates.

    Raises BuildError with its output, naming `what` it compiles.
    """
    try:
        gcc = find_program("gcc", "gcc")
        return run([gcc, *words], cwd=folder, errors="surrogateescape").stdout
    except CommandFailed as failed:
        raise BuildError(f"cannot compile {what}", tail=failed.completed.stderr) from None
