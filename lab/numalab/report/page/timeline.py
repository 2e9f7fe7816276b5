"""Thins the spans of a timeline for drawing, and packs them for embedding."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from numalab.report.formatting import printable
from numalab.report.timeline import Span, Timeline

MOST_SPANS = 12_000
FEWEST_BINS = 60  # for a machine of 256 CPUs

Row = Callable[[Span], Hashable]
Who = tuple[int, int | None, str, bool]  # CPU, node, task, of interest


@dataclass(frozen=True)
class Drawn:
    """The spans of a chart as they are drawn; `resolution_ms` is None when none was merged."""

    spans: tuple[Span, ...]
    resolution_ms: float | None


def on_cpus(timeline: Timeline, most: int = MOST_SPANS) -> Drawn:
    """Return the tasks on each CPU, in at most about `most` spans.

    Where there are more, time is cut into equal bins. A CPU's bin is of interest, other or idle,
    whichever took most of it, and names the task of that sort that ran longest. Equal neighbours
    become one span. The report says how long a bin is.
    """
    return _thinned(timeline.spans, timeline.length_ms, most, row=lambda span: span.cpu)


def of_tasks(timeline: Timeline, most: int = MOST_SPANS) -> Drawn:
    """Return the stays of each task of interest on nodes, thinned like `on_cpus`."""
    return _thinned(stays(timeline), timeline.length_ms, most, row=lambda span: span.task)


def stays(timeline: Timeline) -> tuple[Span, ...]:
    """Return the stays of each task of interest: one span from its first run on a node until its
    first run on another node, waiting and sleeping included.

    The span's CPU is the first of the stay. The last stay ends with the task's last run.
    """
    by_task = _by(tuple(s for s in timeline.spans if s.of_interest), lambda span: span.task)
    spans_of: list[Span] = []
    for spans in by_task.values():
        ran = sorted(spans, key=lambda span: span.start_ms)
        begin = ran[0]
        for before, after in pairwise(ran):
            if after.node != begin.node:
                spans_of.append(replace(begin, end_ms=max(before.end_ms, after.start_ms)))
                begin = after
        spans_of.append(replace(begin, end_ms=ran[-1].end_ms))
    return tuple(sorted(spans_of, key=lambda span: (span.task, span.start_ms)))


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


def _by(spans: Iterable[Span], row: Row) -> dict[Hashable, list[Span]]:
    groups: dict[Hashable, list[Span]] = defaultdict(list)
    for span in spans:
        groups[row(span)].append(span)
    return groups


def _thinned(spans: tuple[Span, ...], length_ms: float, most: int, row: Row) -> Drawn:
    if len(spans) <= most:
        return Drawn(spans, None)
    rows = _by(spans, row)
    bins = max(FEWEST_BINS, most // len(rows))
    width = length_ms / bins
    merged = [span for mine in rows.values() for span in _binned(mine, width, bins)]
    return Drawn(tuple(merged), width)


def _binned(spans: Iterable[Span], width: float, bins: int) -> list[Span]:
    """Reduce each bin to its `_winner`, and join adjacent bins with the same winner."""
    shares: list[dict[Who, float]] = [defaultdict(float) for _ in range(bins)]
    for span in spans:
        who = span.cpu, span.node, span.task, span.of_interest
        first = max(0, int(span.start_ms / width))
        for index in range(first, min(bins - 1, int(span.end_ms / width)) + 1):
            begin, end = max(span.start_ms, index * width), min(span.end_ms, (index + 1) * width)
            shares[index][who] += max(0.0, end - begin)
    merged: list[tuple[int, int, Who]] = []
    for index, share in enumerate(shares):
        winner = _winner(share, width)
        if winner is None:
            continue
        if merged and merged[-1][1] == index and merged[-1][2] == winner:
            merged[-1] = (merged[-1][0], index + 1, winner)
        else:
            merged.append((index, index + 1, winner))
    return [
        Span(cpu, node, first * width, end * width, task, own)
        for first, end, (cpu, node, task, own) in merged
    ]


def _winner(share: dict[Who, float], width: float) -> Who | None:
    """Return the longest task of the largest sort in a bin, or None if it was mostly idle."""
    sorts = {True: 0.0, False: 0.0}
    for (_, _, _, own), time in share.items():
        sorts[own] += time
    largest = max(sorts, key=lambda own: sorts[own])
    if sorts[largest] == 0 or sorts[largest] < width - sum(sorts.values()):
        return None
    return max((who for who in share if who[3] == largest), key=lambda who: share[who])
