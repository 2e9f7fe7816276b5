"""The accesses of one guest as lines of text: tables by thread, node and region, and lines."""

from collections.abc import Iterator

from numalab.analysis.findings import TaskMemory
from numalab.errors import shown
from numalab.locality.address_names import UNSEEN, cut_middle, titled
from numalab.locality.contended_lines import ContendedLine, LineThread
from numalab.locality.locality import Locality, NodeAccesses
from numalab.locality.region_accesses import RegionAccesses, region_titles
from numalab.units import counted

MOST_TASKS, MOST_REGIONS, MOST_LINES, MOST_THREADS, MOST_RUNS = 64, 12, 8, 6, 4
_WIDTH = 36
_MOST_OF_PAGES = 10  # characters of the column of pages by node
_LEAST = 200  # regions and lines with a smaller part than 1 / 200 are only counted
_SHARING = {
    "false": "false sharing: threads use different bytes of one line",
    "mixed": "partly false sharing: some threads use different bytes of one line",
    "true": "contended: threads use the same bytes",
}


def locality_lines(accesses: Locality) -> Iterator[str]:
    """Lay out the tables, and the notes below them."""
    if accesses.nodes:
        yield f"memory accesses in {accesses.window_ms:.1f} ms (modelled; lines of 64 bytes)"
        heads = "".join(f"{f'node {row}':>12}" for row in range(len(accesses.nodes[0].lines)))
        yield f"{'':{_WIDTH}}{'waited ms':>11}{'in queues':>11}{'local %':>9}{heads}"
        for task in accesses.threads[:MOST_TASKS]:
            yield f"{f'{shown(task.name)[:15]}/{task.pid}':<{_WIDTH}}{_cells(task)}"
        if (more := len(accesses.threads) - MOST_TASKS) > 0:
            yield f"... and {more} threads that waited less (--json)"
        yield from (
            f"{f'CPUs of node {row.node}':<{_WIDTH}}{_cells(row)}" for row in accesses.nodes
        )
    yield from _region_lines(accesses)
    yield from _contended_lines(accesses)
    yield from (f"numalab: {note}" for note in accesses.notes)


def _cells(row: TaskMemory | NodeAccesses) -> str:
    return f"{row.stalled_ms:>11,.1f}{row.queued_ms:>11,.1f}{_fetched(row)}"


def _fetched(row: TaskMemory | NodeAccesses | RegionAccesses) -> str:
    """Lay out the local share of the lines, and the lines by node."""
    total = sum(row.lines)
    share = f"{100 * row.local / total:.1f}" if total else ""
    return f"{share:>9}" + "".join(f"{count:>12,.0f}" for count in row.lines)


def _region_lines(accesses: Locality) -> Iterator[str]:
    regions = accesses.places.regions
    if not regions:
        return
    nodes = range(len(regions[0].lines))
    yield "regions of memory, by the node of the CPU that fetched"
    heads = "".join(f"{f'node {node}':>12}" for node in nodes)
    yield f"{'':{_WIDTH}}{'fetching ms':>11}{'pages on':>11}{'local %':>9}{heads}"
    stalled_ms = sum(region.stalled_ms for region in regions)
    listed = [region for region in regions if region.stalled_ms * _LEAST >= stalled_ms]
    titles = region_titles(regions)
    for region, (name, process) in zip(listed[:MOST_REGIONS], titles, strict=False):
        homes = [f"{node}:{count}" for node, count in enumerate(region.pages) if count]
        where = ",".join(homes)
        if len(homes) > 2 or len(where) > _MOST_OF_PAGES:
            where = f"{len(homes)} nodes"
        title = f"{cut_middle(name, _WIDTH - 1 - len(process))}{process}"
        yield f"{title:<{_WIDTH}}{region.stalled_ms:>11,.1f}{where:>11}{_fetched(region)}"
        yield from _remarks(region)
    if more := accesses.places.regions_in_all - len(listed[:MOST_REGIONS]):
        yield f"... and {more} regions that took less time to fetch (--json)"


def _remarks(region: RegionAccesses) -> Iterator[str]:
    """Yield what is wrong with the place of a region, or of some pages of it."""
    total = sum(region.lines)
    if region.process == UNSEEN:
        return
    if region.misplaced is not None:
        home = region.pages.index(max(region.pages))
        share = 100 * region.uncontended[region.misplaced] / sum(region.uncontended)
        yield (
            f"  on the wrong node: it lies on node {home}, and {share:.0f} % of its uncontended "
            f"lines went to CPUs of node {region.misplaced}"
        )
        return
    far = [
        (run, run.misplaced)
        for run in region.runs
        if run.misplaced is not None and 20 * sum(run.lines) > total
    ][:MOST_RUNS]
    for run, user in far:
        share = 100 * run.uncontended[user] / sum(run.uncontended)
        yield (
            f"  {counted(run.pages, 'page')} from {run.start:#x} on node {run.home}: {share:.0f} % "
            f"of the uncontended lines went to CPUs of node {user}"
        )
    lines = region.misplaced_lines - sum(sum(run.lines) for run, _ in far)
    if 10 * lines > total:
        pages = region.misplaced_pages - sum(run.pages for run, _ in far)
        yield (
            f"  {pages}{' more' if far else ''} pages, with {100 * lines / total:.0f} % of the "
            "lines, are on other nodes than the CPUs that fetched most of them"
        )


def _contended_lines(accesses: Locality) -> Iterator[str]:
    lines = accesses.places.contended
    listed = [line for line in lines if line.moves * _LEAST >= lines[0].moves][:MOST_LINES]
    for line in listed:
        yield _contended(line)
        yield from (f"  {_thread(thread)}" for thread in line.threads[:MOST_THREADS])
        if line.threads_in_all > MOST_THREADS:
            yield f"  ... and {line.threads_in_all - MOST_THREADS} threads more"
    if more := accesses.places.lines_in_all - len(listed):
        yield f"... and {more} contended lines with fewer moves (--json)"


def _contended(line: ContendedLine) -> str:
    name = titled(line.name, line.file)
    return (
        f"line {line.address:#x}, {name}: {_SHARING[line.sharing]}; "
        f"{line.moves:,} moves between CPUs, {line.stalled_ms:,.1f} ms"
    )


def _thread(thread: LineThread) -> str:
    parts = [
        f"{verb} {', '.join(words)}"
        for verb, words in (("writes", thread.written), ("reads", thread.read))
        if words
    ]
    return f"{shown(thread.name)[:15]}/{thread.pid} {' and '.join(parts)} ({thread.moves:,} moves)"
