"""What a command in a guest did, from the files that it left."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from numalab.capture.counters import parse_times
from numalab.capture.decode import decode_guest
from numalab.capture.samples import parse_samples
from numalab.errors import UserError, WorkloadFailed, shown
from numalab.files import left_by_guest
from numalab.results.guest_output import guest_text_if_any
from numalab.results.run_files import scan_events
from numalab.run_dir import RunDir
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology
from numalab.workload.luggage import require_preloaded

SAMPLE_MS = 20  # of guest time, between two readings of a command's memory
_LEFT_LINES = 20  # of a command's output in a message


@dataclass(frozen=True, repr=False)
class CommandResult:
    """What a command in a guest did.

    `status` is its exit status, `stdout` and `stderr` are its output. `files` are those that it
    left below $OUT, by name. `seconds`, `user_seconds` and `system_seconds` are guest time; None
    where the guest could not tell. `memory_kib` is the memory of its processes by node when they
    had most; empty where it was not sampled. Pages that processes share, also copy-on-write ones,
    count in each process (numa(7): numa_maps has no share of a page). `events` has a row for each
    recorded event: time_ns, cpu, node, event, and the fields of the events; None where nothing was
    recorded. `notes` say what is missing, also of what the command got. `directory` is the folder
    of its files while they are kept.
    """

    words: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    files: Mapping[str, bytes]
    seconds: float | None
    user_seconds: float | None
    system_seconds: float | None
    memory_kib: Mapping[int, int]
    events: pl.DataFrame | None
    directory: Path
    notes: tuple[str, ...] = ()

    def memory_share(self, *nodes: int) -> float:
        """Return the part (0 to 1) of the sampled memory that is on these nodes.

        It includes the program's code and its libraries, a few MiB, and with a timeout two small
        processes. Raises UserError where nothing was sampled: a command that ends within
        `SAMPLE_MS` of guest time, for example.
        """
        if not self.memory_kib:
            raise UserError("no memory was sampled; say memory=True, and let the command run on")
        return sum(self.memory_kib.get(node, 0) for node in nodes) / sum(self.memory_kib.values())

    def __repr__(self) -> str:
        """Return one line: the command, its end and its memory by node."""
        line = f"{shlex.join(self.words)} exited with {self.status}"
        if self.seconds is not None:
            line += f" after {self.seconds:.3f} s of guest time"
        nodes = (f"node {node} {kib / 1024:.1f} MiB" for node, kib in self.memory_kib.items())
        return f"<{line}; memory: {', '.join(nodes)}>" if self.memory_kib else f"<{line}>"

    def __str__(self) -> str:
        """Return a few lines for people: that of `repr`, and the end of the output."""
        lines = [repr(self)[1:-1], *(f"note: {shown(note)}" for note in self.notes)]
        for name, text in (("stdout", self.stdout), ("stderr", self.stderr)):
            lines += [f"{name}: {shown(line)}" for line in text.splitlines()[-_LEFT_LINES:]]
        return "\n".join(lines)

    def check(self) -> "CommandResult":
        """Return this result.

        Raises WorkloadFailed for an exit status other than 0, and where ld.so left out a library
        of LD_PRELOAD.
        """
        if self.status != 0:
            raise WorkloadFailed(str(self))
        require_preloaded(shlex.join(self.words), self.stderr)
        return self


def read_result(
    words: Sequence[str | Path],
    directory: RunDir,
    status: int,
    recorded: Topology | None,
    notes: Sequence[str] = (),
) -> CommandResult:
    """Read what a command left. `recorded` is its machine where events were recorded."""
    times = parse_times(guest_text_if_any(directory.times))
    events = None
    if recorded is not None and directory.trace.is_file():
        decoded = decode_guest(directory, as_guest_numbers(recorded))
        notes = (*notes, *decoded.faults, *decoded.notes)
        events = scan_events(directory).collect()
    left = sorted(path for path in directory.returned.rglob("*") if path.is_file())
    return CommandResult(
        words=tuple(map(str, words)),
        status=status,
        stdout=guest_text_if_any(directory.stdout),
        stderr=guest_text_if_any(directory.stderr),
        files={str(path.relative_to(directory.returned)): left_by_guest(path) for path in left},
        seconds=times.elapsed if times else None,
        user_seconds=times.user if times else None,
        system_seconds=times.system if times else None,
        memory_kib=_memory_by_node(parse_samples(guest_text_if_any(directory.samples)).pages),
        events=events,
        directory=directory.path,
        notes=tuple(notes),
    )


def _memory_by_node(pages: pl.DataFrame) -> dict[int, int]:
    """Return the KiB by node of the sample in which all processes together had most."""
    if pages.is_empty():
        return {}
    kib = pages.group_by("time_ns").agg(pl.col("kib").sum()).sort("kib", "time_ns")
    most = pages.filter(pl.col("time_ns") == kib["time_ns"][-1])
    nodes = most.group_by("node").agg(pl.col("kib").sum()).sort("node")
    return dict(nodes.iter_rows())
