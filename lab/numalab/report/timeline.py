"""The tasks on each CPU over time, in one run of each variant."""

from dataclasses import dataclass

from numalab.recording.marks import Mark
from numalab.recording.spans import RunTimeline


@dataclass(frozen=True)
class Span:
    """A task ran on a CPU of a node, from `start_ms` to `end_ms` after the start of the window.

    `node` is None where the machine is unknown or lacks the CPU.
    """

    cpu: int
    node: int | None
    start_ms: float
    end_ms: float
    task: str
    of_interest: bool


@dataclass(frozen=True)
class Timeline:
    """The tasks on each CPU in one run of one variant. Time without a span is idle."""

    variant: str
    run: str
    length_ms: float
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...] = ()


def timeline_of(recorded: RunTimeline, variant: str, run: str) -> Timeline:
    """Return the timeline of a run, in milliseconds from the start of the window."""
    return Timeline(
        variant=variant,
        run=run,
        length_ms=recorded.length_ns / 1e6,
        spans=tuple(
            Span(cpu, node, start / 1e6, end / 1e6, f"{comm}/{pid}", mine)
            for cpu, node, start, end, pid, comm, mine in recorded.spans.iter_rows()
        ),
        marks=recorded.marks,
    )
