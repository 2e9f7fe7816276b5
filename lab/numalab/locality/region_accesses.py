"""Which regions, pages and lines of a program's memory were fetched by which node, in a window.

The counts are those of the memory model (`numalab.capture.memory_places`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import polars as pl

from numalab.capture.memory_places import (
    BARRIER,
    FIRST_BARRIER,
    LINE,
    MARK,
    MOMENT,
)
from numalab.locality.address_names import LINE as LINE_BYTES
from numalab.locality.address_names import PAGE as PAGE_BYTES
from numalab.locality.address_names import (
    UNKNOWN,
    UNSEEN,
    AddressName,
    AddressNames,
    ThreadNames,
)
from numalab.locality.contended_lines import MAX_THREADS, ContendedLine, contended_lines

MAX_REGIONS, MAX_RUNS, MAX_LINES = 200, 64, 100
_NEAR_NS = 200_000  # a mark's event and the entry of the function that writes it


@dataclass(frozen=True)
class ThreadLines:
    """How many lines a thread fetched."""

    pid: int
    name: str
    lines: int


@dataclass(frozen=True)
class PageRun:
    """Pages in a row of one home that mostly the CPUs of one node fetched.

    `lines` are by the node of the CPU.
    """

    start: int
    pages: int
    home: int
    lines: tuple[int, ...]


@dataclass(frozen=True)
class RegionAccesses:
    """What was fetched of a variable or mapping of a process: `pages` by their home node, `lines`
    (of 64 bytes) by the node of the CPU, `local` of them from its own node; `stalled_ms` is the
    wait for these lines, without hits in caches. `misplaced` is the node whose CPUs fetched more
    than two thirds of it, if most of its pages lie on another one.

    `runs` are its pages, at most `MAX_RUNS` runs of them, the most fetched.
    """

    process: int
    name: str
    file: str
    start: int
    end: int
    stalled_ms: float
    local: int
    misplaced: int | None
    pages: tuple[int, ...]
    lines: tuple[int, ...]
    threads: tuple[ThreadLines, ...]
    runs: tuple[PageRun, ...]


@dataclass(frozen=True)
class Places:
    """Regions, the most waited for first, and contended lines, the most moved first.

    `regions_in_all` and `lines_in_all` count those beyond the limits, too.
    """

    regions: tuple[RegionAccesses, ...] = ()
    regions_in_all: int = 0
    contended: tuple[ContendedLine, ...] = ()
    lines_in_all: int = 0


def barrier_window(places: pl.DataFrame) -> tuple[int, int | None] | None:
    """Return from when each thread that waits at a barrier has done so to the last barrier.

    In ns of the trace's clock. The end is None if there is only one barrier; None for no barrier.
    """
    moments = places.filter((pl.col("kind") == MOMENT) & (pl.col("vaddr") != MARK))
    first = moments.filter(pl.col("vaddr") == FIRST_BARRIER)["time_ns"].max()
    if not isinstance(first, int):
        return None
    last = moments.filter(pl.col("vaddr").is_in([FIRST_BARRIER, BARRIER]))["time_ns"].max()
    return first, last if isinstance(last, int) and last > first else None


def rows_within(places: pl.DataFrame, start_ns: int, end_ns: int) -> pl.DataFrame | None:
    """Return the rows between two moments that the model saw at these times of the trace's clock;
    None if it did not see the first."""
    moments = places.filter(pl.col("kind") == MOMENT).select("time_ns", "since_ns")
    ends = [_nearest(moments, time) for time in (start_ns, end_ns)]
    if ends[0] is None:
        return None
    last = 1 << 62 if ends[1] is None else ends[1]
    inside = (pl.col("since_ns") >= ends[0]) & (pl.col("since_ns") < last)
    return places.filter(inside & (pl.col("kind") != MOMENT))


def _nearest(moments: pl.DataFrame, time_ns: int) -> int | None:
    distance = (pl.col("time_ns") - time_ns).abs()
    near = moments.filter(distance <= _NEAR_NS).sort(distance)
    return int(near["since_ns"][0]) if len(near) else None


def read_places(rows: pl.DataFrame, names: AddressNames, threads: ThreadNames) -> Places:
    """Sum the rows of a window by region, page and line of the command's processes."""
    mine = rows.filter(pl.col("pid").is_not_null())
    regions = sorted(
        _regions(_with_lines_as_pages(mine), names, threads),
        key=lambda region: (-region.stalled_ms, region.process, region.start),
    )
    lines = sorted(
        contended_lines(mine.filter(pl.col("kind") == LINE), names, threads),
        key=lambda line: (-line.moves, line.process, line.address),
    )
    return Places(tuple(regions[:MAX_REGIONS]), len(regions), tuple(lines[:MAX_LINES]), len(lines))


@dataclass
class _Sums:
    pages: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    stalled_ps: int = 0
    local: int = 0


def _with_lines_as_pages(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `touched`, the lines of the page (bits). A line that moved is the `moved`-th line of its
    page, which may be of another variable than the rest; of others, `moved` is -1."""
    is_line = pl.col("kind") == LINE
    place = (pl.col("vaddr") % PAGE_BYTES) // LINE_BYTES
    bit = pl.lit(2, pl.UInt64).pow(place.cast(pl.UInt64)).cast(pl.UInt64)
    return rows.filter(pl.col("kind") != MOMENT).with_columns(
        vaddr=pl.col("vaddr") - pl.col("vaddr") % PAGE_BYTES,
        moved=pl.when(is_line).then(place).otherwise(-1),
        touched=pl.when(is_line).then(bit).otherwise(pl.col("written") | pl.col("read")),
    )


def _regions(
    rows: pl.DataFrame, names: AddressNames, threads: ThreadNames
) -> Iterator[RegionAccesses]:
    keys = ("pid", "vaddr", "moved", "home", "node")
    sums = rows.group_by(keys, maintain_order=True).agg(
        pl.col("lines").sum(), pl.col("stalled_ps").sum(), pl.col("touched").bitwise_or()
    )
    masks = {
        (vaddr, moved): touched
        for vaddr, moved, touched in sums.group_by("vaddr", "moved")
        .agg(pl.col("touched").bitwise_or())
        .iter_rows()
    }
    regions: dict[tuple[int, AddressName], _Sums] = {}
    named: dict[tuple[int, int, int], tuple[int, AddressName]] = {}
    for pid, vaddr, moved, home, node, fetched, stalled_ps, _ in sums.iter_rows():
        if (pid, vaddr, moved) not in named:
            process = names.process_of(pid, vaddr)
            named[pid, vaddr, moved] = (
                (UNSEEN, UNKNOWN)
                if process is None
                else (process.tgid, names.of_page(process, vaddr, masks[vaddr, moved]))
            )
        key = named[pid, vaddr, moved]
        region = regions.setdefault(key, _Sums())
        by_node = region.pages.setdefault((vaddr, home), [0] * threads.nodes)
        by_node[node] += fetched
        region.threads[pid] = region.threads.get(pid, 0) + fetched
        region.stalled_ps += stalled_ps
        region.local += fetched if node == home else 0
    for (tgid, name), region in regions.items():
        yield _region(tgid, name, region, threads)


def _region(tgid: int, name: AddressName, sums: _Sums, threads: ThreadNames) -> RegionAccesses:
    pages = [0] * threads.nodes
    lines = [0] * threads.nodes
    used = _most_used_homes(sums.pages)
    for (_, home), by_node in used.items():
        pages[home] += 1
        lines = [a + b for a, b in zip(lines, by_node, strict=True)]
    runs = sorted(_runs(used), key=lambda run: (-sum(run.lines), run.start))[:MAX_RUNS]
    busiest = sorted(sums.threads.items(), key=lambda item: (-item[1], item[0]))[:MAX_THREADS]
    return RegionAccesses(
        tgid,
        name.name,
        name.file,
        name.start,
        name.end,
        sums.stalled_ps / 1e9,
        sums.local,
        None if tgid == UNSEEN else _misplaced(pages, lines),
        tuple(pages),
        tuple(lines),
        tuple(ThreadLines(pid, threads.names.get(pid, ""), count) for pid, count in busiest),
        tuple(sorted(runs, key=lambda run: run.start)),
    )


def _most_used_homes(pages: dict[tuple[int, int], list[int]]) -> dict[tuple[int, int], list[int]]:
    """Join the counts of a page that had several homes: it migrated, or was mapped once more."""
    homes: dict[int, tuple[int, int]] = {}
    joined: dict[int, list[int]] = {}
    for (vaddr, home), lines in pages.items():
        homes[vaddr] = max(homes.get(vaddr, (-1, 0)), (sum(lines), home))
        before = joined.get(vaddr, [0] * len(lines))
        joined[vaddr] = [a + b for a, b in zip(before, lines, strict=True)]
    return {(vaddr, homes[vaddr][1]): lines for vaddr, lines in joined.items()}


def _misplaced(pages: list[int], lines: list[int]) -> int | None:
    home, user = pages.index(max(pages)), main_user(lines)
    return user if user != home and 2 * pages[home] > sum(pages) else None


def main_user(lines: Sequence[int]) -> int | None:
    """Return the node whose CPUs fetched more than two thirds of the lines, if one did."""
    most = max(lines)
    return lines.index(most) if 3 * most > 2 * sum(lines) else None


def _runs(pages: dict[tuple[int, int], list[int]]) -> Iterator[PageRun]:
    """Join pages that follow each other, have one home, and one node that fetched most."""
    run: PageRun | None = None
    for (vaddr, home), lines in sorted(pages.items()):
        user = lines.index(max(lines))
        if (
            run is not None
            and vaddr == run.start + run.pages * PAGE_BYTES
            and (home, user) == (run.home, run.lines.index(max(run.lines)))
        ):
            summed = tuple(a + b for a, b in zip(run.lines, lines, strict=True))
            run = PageRun(run.start, run.pages + 1, home, summed)
            continue
        if run is not None:
            yield run
        run = PageRun(vaddr, 1, home, tuple(lines))
    if run is not None:
        yield run
