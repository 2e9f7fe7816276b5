"""Who ran where in one run, for the report's drawing."""

from numalab.recording.timeline import RunTimeline
from numalab.report.document import Span, Timeline


def timeline(found: RunTimeline, variant: str, run: str) -> Timeline:
    """Return who ran where in a run of a variant, in milliseconds from the window's begin."""
    return Timeline(
        variant=variant,
        run=run,
        length_ms=found.length_ns / 1e6,
        spans=tuple(
            Span(cpu, node, start / 1e6, end / 1e6, f"{comm}/{pid}", mine)
            for cpu, node, start, end, pid, comm, mine in found.spans.iter_rows()
        ),
        marks=found.marks,
    )
