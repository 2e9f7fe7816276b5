"""The library that shortens the kernel's watchdog of a scheduler, compiled once."""

from dataclasses import dataclass
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, existing_file
from numalab.artifact.digest import digest_of, hash_file
from numalab.artifact.program_artifact import PROGRAMS, run_compiler
from numalab.process import version_line

# SCX_WATCHDOG_MAX_TIMEOUT in kernel/sched/ext.c, Linux 6.12.
LONGEST_SECONDS = 30.0
SHORTEST_SECONDS = 1.0

_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-s")


@dataclass(frozen=True)
class StallWatchdog:
    """A length for the kernel's watchdog, in ms, and the library that sets it."""

    ms: int
    library: Path


def ensure_watchdog(seconds: float) -> StallWatchdog:
    """Return a watchdog of a length, with its library, compiled unless the cache has it.

    A task that is runnable for so long and does not run is a stall. Raises HostError without a
    compiler, BuildError with the compiler's output.
    """
    source = Path(__file__).with_name("watchdog.c")
    digest = digest_of([_FLAGS, version_line("gcc", "gcc"), hash_file(source)])

    def make(work: Work) -> None:
        words: list[str | Path] = [*_FLAGS, "-o", work.entry, source.name]
        run_compiler("the library of the watchdog", words, source.parent)

    entry = PROGRAMS.entry(f"watchdog-{digest}")
    library = build(Artifact(PROGRAMS, "watchdog", entry, make, existing_file))
    return StallWatchdog(round(seconds * 1000), library)
