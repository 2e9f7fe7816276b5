"""Spans of a timeline made few enough to draw, and packed small enough to embed."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from lab.report.figures import printable
from lab.report.model import Span, Timeline

MOST_SPANS = 12_000
FEWEST_BINS = 200


@dataclass(frozen=True)
class Drawn:
    """The spans of a timeline as they are drawn; `resolution_ms` is None when none was merged."""

    spans: tuple[Span, ...]
    resolution_ms: float | None


def drawable(timeline: Timeline, most: int = MOST_SPANS) -> Drawn:
    """Return spans that a browser draws at once, at most about `most` of them.

    Where there are more, time is cut into equal bins, and each CPU's bin shows what took most of
    it: a task, or idle. Equal neighbours become one span. The report says how long a bin is.
    """
    if len(timeline.spans) <= most:
        return Drawn(timeline.spans, None)
    by_cpu: dict[int, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        by_cpu[span.cpu].append(span)
    bins = max(FEWEST_BINS, most // len(by_cpu))
    width = timeline.length_ms / bins
    merged = [span for cpu in sorted(by_cpu) for span in _binned(by_cpu[cpu], width, bins)]
    return Drawn(tuple(merged), width)


def _binned(spans: Iterable[Span], width: float, bins: int) -> list[Span]:
    shares: list[dict[tuple[str, bool], float]] = [defaultdict(float) for _ in range(bins)]
    cpu = node = 0
    for span in spans:
        cpu, node = span.cpu, span.node
        first = max(0, int(span.start_ms / width))
        last = min(bins - 1, int(span.end_ms / width))
        for index in range(first, last + 1):
            begin = max(span.start_ms, index * width)
            end = min(span.end_ms, (index + 1) * width)
            shares[index][span.task, span.of_interest] += max(0.0, end - begin)
    result: list[Span] = []
    for index, share in enumerate(shares):
        winner = _winner(share, width)
        if winner is None:
            continue
        start, end = index * width, (index + 1) * width
        last_one = result[-1] if result else None
        if (
            last_one
            and (last_one.task, last_one.of_interest) == winner
            and (start - last_one.end_ms < width / 2)
        ):
            start = result.pop().start_ms
        result.append(Span(cpu, node, start, end, *winner))
    return result


def _winner(share: dict[tuple[str, bool], float], width: float) -> tuple[str, bool] | None:
    """Return the task that ran longest in a bin, or None if the CPU was idle for longer."""
    if not share:
        return None
    task = max(share, key=lambda key: share[key])
    idle = width - sum(share.values())
    return task if share[task] >= idle else None


def stays(timeline: Timeline) -> tuple[Span, ...]:
    """Return where each task of interest stayed: one span from its first run on a node until its
    first run on another node, waiting and sleeping included.

    The span's CPU is the first of the stay. The last stay ends with the task's last run.
    """
    by_task: dict[str, list[Span]] = defaultdict(list)
    for span in timeline.spans:
        if span.of_interest:
            by_task[span.task].append(span)
    found: list[Span] = []
    for task in sorted(by_task):
        ran = sorted(by_task[task], key=lambda span: span.start_ms)
        begin = ran[0]
        for before, after in pairwise(ran):
            if after.node != begin.node:
                found.append(replace(begin, end_ms=max(before.end_ms, after.start_ms)))
                begin = after
        found.append(replace(begin, end_ms=ran[-1].end_ms))
    return tuple(found)


def packed(spans: Sequence[Span]) -> dict[str, list[object]]:
    """Pack spans by column for the page: times in microseconds, task names by index.

    `tasks` is the list of names, shown as they are but for invisible characters.
    """
    names = sorted({span.task for span in spans})
    index = {name: place for place, name in enumerate(names)}
    return {
        "tasks": [printable(name) for name in names],
        "task": [index[span.task] for span in spans],
        "cpu": [span.cpu for span in spans],
        "node": [span.node for span in spans],
        "start": [round(span.start_ms * 1000) for span in spans],
        "end": [round(span.end_ms * 1000) for span in spans],
        "own": [int(span.of_interest) for span in spans],
    }
