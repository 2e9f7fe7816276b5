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
from numalab.locality.address_names import (
    KERNEL_NAME,
    UNSEEN,
    AddressName,
    AddressNames,
    ThreadNames,
    titled,
)
from numalab.locality.address_names import LINE as LINE_BYTES
from numalab.locality.address_names import PAGE as PAGE_BYTES
from numalab.locality.contended_lines import (
    FEWEST_MOVES,
    MAX_THREADS,
    ContendedLine,
    contended_lines,
)

MAX_REGIONS, MAX_RUNS, MAX_LINES = 200, 64, 100
_FEW = 10  # a part of the lines below 1 / 10 is no reason to move pages
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

    `lines` are by the node of the CPU, and so are the `uncontended` of them.
    """

    start: int
    pages: int
    home: int
    lines: tuple[int, ...]
    uncontended: tuple[int, ...]

    @property
    def misplaced(self) -> int | None:
        """The node whose CPUs fetched most of it, if that is not the home."""
        return _wrong_node(self.home, self.lines, self.uncontended)


@dataclass(frozen=True)
class RegionAccesses:
    """What was fetched of a variable or mapping of a process: `pages` by their home node, `lines`
    (of 64 bytes) by the node of the CPU, `local` of them from its own node's memory and caches, and
    `uncontended` ones, which did not move to and fro; `stalled_ms` is the wait for these lines,
    without hits in caches. `misplaced` is the node whose CPUs fetched more than two thirds of the
    uncontended lines, if most of the pages lie on another one. The kernel's region has no pages.

    `threads` are the `MAX_THREADS` of `threads_in_all` that fetched the most lines.
    `runs` are its pages, at most `MAX_RUNS` of `runs_in_all` runs, the most fetched. In all runs
    that lie on another node than the CPUs that fetched most, `misplaced_pages` have
    `misplaced_lines`.
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
    uncontended: tuple[int, ...]
    threads: tuple[ThreadLines, ...]
    threads_in_all: int
    runs: tuple[PageRun, ...]
    runs_in_all: int
    misplaced_pages: int
    misplaced_lines: int


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
    """Return from when all threads of the first barrier have come to it to the last barrier.

    They have before one of them comes to a barrier again. So a thread that started later counts as
    one of the first barrier's if it comes to its own before any older thread comes to a second one.
    In ns of the trace's clock. The end is None if there is only one barrier; None for no barrier.
    """
    moments = places.filter((pl.col("kind") == MOMENT) & (pl.col("vaddr") != MARK))
    time = pl.col("time_ns")
    # A thread's further barriers have a row before the next first barrier of another thread.
    again = time.filter(pl.col("vaddr") == BARRIER).min().fill_null(time.max())
    arrived = (pl.col("vaddr") == FIRST_BARRIER) & (time <= again)
    first, last = moments.select(time.filter(arrived).max(), time.max().alias("last")).row(0)
    if first is None:
        return None
    return first, last if last > first else None


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
    regions = sorted(
        _regions(_with_lines_as_pages(rows), names, threads),
        key=lambda region: (-region.stalled_ms, region.process, region.start),
    )
    lines = sorted(
        contended_lines(rows.filter(pl.col("kind") == LINE), names, threads),
        key=lambda line: (-line.moves, line.process, line.address),
    )
    return Places(tuple(regions[:MAX_REGIONS]), len(regions), tuple(lines[:MAX_LINES]), len(lines))


def region_titles(regions: Sequence[RegionAccesses]) -> list[tuple[str, str]]:
    """Return for each region its name with its file, and where several processes have such a
    region, `, process PID`."""
    names = [titled(region.name, region.file) for region in regions]
    processes: dict[str, set[int]] = {}
    for name, region in zip(names, regions, strict=True):
        processes.setdefault(name, set()).add(region.process)
    return [
        (name, f", process {region.process}" if len(processes[name]) > 1 else "")
        for name, region in zip(names, regions, strict=True)
    ]


@dataclass
class _Fetched:
    """Lines of a page by the node of the CPU: all, and the uncontended ones."""

    lines: list[int]
    uncontended: list[int]

    def add(self, more: "_Fetched | PageRun") -> None:
        self.lines = [a + b for a, b in zip(self.lines, more.lines, strict=True)]
        both = zip(self.uncontended, more.uncontended, strict=True)
        self.uncontended = [a + b for a, b in both]


@dataclass
class _Sums:
    pages: dict[tuple[int, int], _Fetched] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    stalled_ps: int = 0
    local: int = 0


def _with_lines_as_pages(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `touched`, the lines of the page (bits). A line that moved is the `moved`-th line of its
    page, which may be of another variable than the rest; of others, `moved` is -1. Add
    `uncontended`, the lines without those that moved often: these come from where they are used,
    wherever their page lies."""
    is_line = pl.col("kind") == LINE
    often = is_line & (pl.col("moves").sum().over("kind", "line") >= FEWEST_MOVES)
    place = (pl.col("vaddr") % PAGE_BYTES) // LINE_BYTES
    bit = pl.lit(2, pl.UInt64).pow(place.cast(pl.UInt64)).cast(pl.UInt64)
    return rows.filter(pl.col("kind") != MOMENT).with_columns(
        vaddr=pl.col("vaddr") - pl.col("vaddr") % PAGE_BYTES,
        moved=pl.when(is_line).then(place).otherwise(-1),
        uncontended=pl.when(often).then(0).otherwise(pl.col("lines")),
        touched=pl.when(is_line).then(bit).otherwise(pl.col("written") | pl.col("read")),
    )


def _regions(
    rows: pl.DataFrame, names: AddressNames, threads: ThreadNames
) -> Iterator[RegionAccesses]:
    keys = ("pid", "vaddr", "moved", "home", "node")
    sums = rows.group_by(keys, maintain_order=True).agg(
        pl.col("lines", "local", "uncontended", "stalled_ps").sum(), pl.col("touched").bitwise_or()
    )
    masks = {
        (vaddr, moved): touched
        for vaddr, moved, touched in sums.group_by("vaddr", "moved")
        .agg(pl.col("touched").bitwise_or())
        .iter_rows()
    }
    regions: dict[tuple[int, AddressName], _Sums] = {}
    named: dict[tuple[int, int, int], tuple[int, AddressName]] = {}
    for pid, vaddr, moved, home, node, lines, local, calm, stalled_ps, _ in sums.iter_rows():
        if (pid, vaddr, moved) not in named:
            named[pid, vaddr, moved] = names.of_pid(pid, vaddr, masks[vaddr, moved])
        key = named[pid, vaddr, moved]
        region = regions.setdefault(key, _Sums())
        page = region.pages.setdefault((vaddr, home), _no_lines(threads.nodes))
        page.lines[node] += lines
        page.uncontended[node] += calm
        region.threads[pid] = region.threads.get(pid, 0) + lines
        region.stalled_ps += stalled_ps
        region.local += local
    for (tgid, name), region in regions.items():
        yield _region(tgid, name, region, threads)


def _no_lines(nodes: int) -> _Fetched:
    return _Fetched([0] * nodes, [0] * nodes)


def _region(tgid: int, name: AddressName, sums: _Sums, threads: ThreadNames) -> RegionAccesses:
    pages, fetched = [0] * threads.nodes, _no_lines(threads.nodes)
    used = _most_used_homes(sums.pages)
    for (_, home), page in used.items():
        pages[home] += 1
        fetched.add(page)
    if name == KERNEL_NAME:
        pages, used = [0] * threads.nodes, {}
    runs = list(_runs(used))
    wrong = [run for run in runs if run.misplaced is not None]
    most = sorted(runs, key=lambda run: (-sum(run.lines), run.start))[:MAX_RUNS]
    busiest = sorted(sums.threads.items(), key=lambda item: (-item[1], item[0]))[:MAX_THREADS]
    return RegionAccesses(
        tgid,
        name.name,
        name.file,
        name.start,
        name.end,
        sums.stalled_ps / 1e9,
        sums.local,
        None if tgid == UNSEEN else _misplaced(pages, fetched),
        tuple(pages),
        tuple(fetched.lines),
        tuple(fetched.uncontended),
        tuple(ThreadLines(pid, threads.names.get(pid, ""), count) for pid, count in busiest),
        len(sums.threads),
        tuple(sorted(most, key=lambda run: run.start)),
        len(runs),
        sum(run.pages for run in wrong),
        sum(sum(run.lines) for run in wrong),
    )


def _most_used_homes(pages: dict[tuple[int, int], _Fetched]) -> dict[tuple[int, int], _Fetched]:
    """Join the counts of a page that had several homes: it migrated, or was mapped once more."""
    homes: dict[int, tuple[int, int]] = {}
    joined: dict[int, _Fetched] = {}
    for (vaddr, home), page in pages.items():
        homes[vaddr] = max(homes.get(vaddr, (-1, 0)), (sum(page.lines), home))
        joined.setdefault(vaddr, _no_lines(len(page.lines))).add(page)
    return {(vaddr, homes[vaddr][1]): page for vaddr, page in joined.items()}


def _misplaced(pages: list[int], fetched: _Fetched) -> int | None:
    home = pages.index(max(pages))
    mostly = 2 * pages[home] > sum(pages)
    return _wrong_node(home, fetched.lines, fetched.uncontended) if mostly else None


def _wrong_node(home: int, lines: Sequence[int], uncontended: Sequence[int]) -> int | None:
    """Return the node whose CPUs fetched more than two thirds of the uncontended lines, unless it
    is the home. None where these are few."""
    user, total = uncontended.index(max(uncontended)), sum(uncontended)
    mostly = 3 * uncontended[user] > 2 * total and _FEW * total >= sum(lines)
    return user if mostly and user != home else None


def _runs(pages: dict[tuple[int, int], _Fetched]) -> Iterator[PageRun]:
    """Join pages that follow each other, have one home, and one node that fetched most."""
    run: PageRun | None = None
    for (vaddr, home), page in sorted(pages.items(), key=lambda item: item[0]):
        user = page.lines.index(max(page.lines))
        if (
            run is not None
            and vaddr == run.start + run.pages * PAGE_BYTES
            and (home, user) == (run.home, run.lines.index(max(run.lines)))
        ):
            page.add(run)
            run = PageRun(
                run.start, run.pages + 1, home, tuple(page.lines), tuple(page.uncontended)
            )
            continue
        if run is not None:
            yield run
        run = PageRun(vaddr, 1, home, tuple(page.lines), tuple(page.uncontended))
    if run is not None:
        yield run
