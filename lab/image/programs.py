"""Our own programs in an image: `images/src/*.c`, linked statically by this host's compiler."""

from pathlib import Path

from lab.errors import BuildError
from lab.image.recipe import images_dir
from lab.process import CommandFailed, find_program, run

FLAGS = ("-O2", "-static", "-Wall", "-Wextra", "-Werror", "-s")
LIBRARIES = ("-lm",)


def sources() -> tuple[Path, ...]:
    """Return the C sources, in order of their names; each becomes one program."""
    return tuple(sorted((images_dir() / "src").glob("*.c")))


def headers() -> tuple[Path, ...]:
    """Return what the sources include of ours, in order of their names."""
    return tuple(sorted((images_dir() / "src").glob("*.h")))


def compiler_inputs() -> tuple[str, Path]:
    """Return the compiler's version line and the static C library that goes into each program.

    Raises HostError without a compiler, or without a static C library.
    """
    gcc = find_program("gcc", "gcc")
    version = run([gcc, "--version"]).stdout.splitlines()[0]
    library = Path(run([gcc, "-print-file-name=libc.a"]).stdout.strip())
    if not library.is_absolute():
        find_program("a static C library (libc.a)", "libc6-dev")
    return version, library


def compile_programs(folder: Path) -> None:
    """Compile every source into `folder`. Raises BuildError with the compiler's own words."""
    gcc = find_program("gcc", "gcc")
    for source in sources():
        # Relative to its folder, so that no path of this host gets into a program.
        argv: list[str | Path] = [gcc, *FLAGS, "-o", folder / source.stem, source.name, *LIBRARIES]
        try:
            run(argv, cwd=source.parent)
        except CommandFailed as failed:
            raise BuildError(f"cannot compile {source}", tail=failed.completed.stderr) from None
