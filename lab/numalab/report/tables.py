"""The tables that kernel changelogs print, in plain ASCII of 75 columns, counts of 100 at most.

The shapes are those of two mails to the kernel's list. The table of means (`mean stddev mean
stddev %`) is that of "sched/topology: fix sched groups on NUMA machines with mesh topology"
(2017); the times and the blocks of counts are those of "Fixes for sched/numa_balancing" (2018),
where the counts are what `perf stat -r` prints.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from textwrap import wrap

from numalab.measure import Direction
from numalab.report import formatting
from numalab.report.comparisons import MeasureComparison
from numalab.statistics.summary import Summary, improvement_percent

WIDTH = 75
WIDEST = 100  # of counts, which are hard to read with their names broken
GAP = "  "
CountRow = tuple[str, Summary | None, Summary | None]
LONGEST_CASE = 22
ELAPSED, ELAPSED_PLACES = "seconds time elapsed", 9  # the last line of perf stat
TIME_TITLES = ("Min", "Max", "Avg", "StdDev")


@dataclass(frozen=True)
class MeansTable:
    """A table of means: the lines of its head, and those of each row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def lines(self) -> list[str]:
        """All lines of the table."""
        return [*self.head, *(line for row in self.rows for line in row)]


def table_of_means(
    head: tuple[str, str, str], rows: Sequence[tuple[str, MeasureComparison]], index: int = 1
) -> MeansTable:
    """Lay out the `mean stddev  mean stddev  %` table: titles, then labelled comparisons.

    `head` has the titles of the first column and the two variants. Figures are right-aligned; a
    long label has lines of its own, so no line is wider than 75 columns.
    """
    cells = [_cells(comparison, index) for _, comparison in rows]
    titles = ("mean", "stddev", "mean", "stddev", "%")
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    widths[1] += max(0, len(head[1]) - sum(widths[:2]) - len(GAP))
    widths[3] += max(0, len(head[2]) - sum(widths[2:4]) - len(GAP))
    room = WIDTH - sum(widths) - len(GAP) * len(widths)
    spans = [widths[0] + len(GAP) + widths[1], widths[2] + len(GAP) + widths[3], widths[4]]
    heads = [(head[0], right([*head[1:], "%"], spans)), ("", right([*titles[:4], ""], widths))]
    return _labelled(
        heads,
        [(text, right(row, widths)) for (text, _), row in zip(rows, cells, strict=True)],
        room,
    )


def right(texts: Sequence[str], sizes: Sequence[int], gap: str = GAP) -> str:
    """Join texts, each right-aligned in a column."""
    return gap.join(text.rjust(size) for text, size in zip(texts, sizes, strict=False))


def _labelled(
    heads: Sequence[tuple[str, str]], rows: Sequence[tuple[str, str]], room: int
) -> MeansTable:
    """Put labels before figures; a label wider than `room` is above its figures.

    No name is broken: one that is wider than a mail is cut in its middle.
    """
    labels = [
        [formatting.shortened_name(line, WIDTH, "~")
         for line in wrap(formatting.plain_ascii(label), max(room, WIDTH - len(GAP)),
                          break_long_words=False, break_on_hyphens=False)] or [""]
        for label, _ in rows
    ]  # fmt: skip
    short = [lines[0] for lines in labels if len(lines) == 1 and len(lines[0]) <= room]
    width = max(len(label) for label in [*(label for label, _ in heads), *short])
    texts = []
    for lines, (_, values) in zip(labels, rows, strict=True):
        beside = lines[0] if len(lines) == 1 and len(lines[0]) <= room else ""
        above = () if beside or lines == [""] else tuple(lines)
        texts.append((*above, f"{beside.ljust(width)}{GAP}{values}".rstrip()))
    head = tuple(f"{label.ljust(width)}{GAP}{values}".rstrip() for label, values in heads)
    return MeansTable(head, tuple(texts))


def relative_error(summary: Summary) -> float | None:
    """Return perf stat's `+- x%`: the standard error of the mean, in percent of the mean.

    `rel_stddev_stats(stddev_stats())` in tools/perf/util/stat.c (6.12), where `stddev_stats()` is
    sqrt(variance / n) with the sample's variance. None for one run or a mean of 0.
    """
    if summary.stddev is None or summary.mean == 0:
        return None
    return 100 * summary.stddev / sqrt(summary.n) / abs(summary.mean)


def table_of_counts(head: tuple[str, str], rows: Sequence[CountRow]) -> list[str]:
    """Lay out counts as `perf stat -r` prints them: `name  555 ( +- 25.92% )  8 ( +- 38.45% )`."""
    columns = [[_count(name, pair[side]) for name, *pair in rows] for side in (0, 1)]
    sizes = [max((len(cell[0]) for cell in column), default=0) for column in columns]
    noises = [max((len(cell[1]) for cell in column), default=0) for column in columns]
    cells = [
        [f"{value:>{size}} {noise:{room}}" if room else value for value, noise in column]
        for column, size, room in zip(columns, sizes, noises, strict=True)
    ]
    return _two_columns(head, [name for name, _, _ in rows], cells)


def table_of_sums(
    head: tuple[str, str], rows: Sequence[CountRow], *, means: bool = False
) -> list[str]:
    """Lay out counters as sums over all runs, the vmstat block of the 2018 mail.

    With `means` as means, where the sums would be of different numbers of runs.
    """
    cells = [[_sum(pair[side], means=means) for _, *pair in rows] for side in (0, 1)]
    return _two_columns(head, [name for name, _, _ in rows], cells)


def _sum(summary: Summary | None, *, means: bool) -> str:
    if summary is None:
        return formatting.NOT_SUPPORTED
    return f"{summary.mean:.1f}" if means else f"{summary.mean * summary.n:.0f}"


def _count(name: str, summary: Summary | None) -> tuple[str, str]:
    if summary is None:
        return formatting.NOT_SUPPORTED, ""
    places = 0 if abs(summary.mean) >= 10 else min(formatting.decimals([summary.mean]), 1)
    places = ELAPSED_PLACES if name == ELAPSED else places
    error = relative_error(summary)
    percent = " >999%" if error and error >= 999.995 else f"{error or 0:6.2f}%"
    noise = f"( +-{percent} )" if error else ""
    return formatting.number(summary.mean, places, grouped=True), noise


def _two_columns(
    head: tuple[str, str], names: Sequence[str], cells: Sequence[Sequence[str]]
) -> list[str]:
    heads = [formatting.plain_ascii(text) for text in head]
    sizes = [max(len(text), *map(len, column)) for text, column in zip(heads, cells, strict=True)]
    rows = [(name, right(row, sizes)) for name, *row in zip(names, *cells, strict=True)]
    return _labelled([("", right(heads, sizes))], rows, WIDEST - sum(sizes) - 2 * len(GAP)).lines


def _cells(comparison: MeasureComparison, index: int) -> tuple[str, str, str, str, str]:
    pair = (comparison.summaries[0], comparison.summaries[index])
    places = formatting.row_decimals(pair)
    texts = []
    for summary in pair:
        texts += formatting.mean_and_stddev(summary, places, grouped=False)
    return texts[0], texts[1], texts[2], texts[3], formatting.change(comparison, index)


def table_of_times(
    head: str, rows: Sequence[tuple[str, str, Summary | None, Summary | None]]
) -> list[str]:
    """Lay out times as the 2018 mail does: `numa01.sh Real:  440.65 941.32 758.98 189.17`.

    A row is test case, which time, the summary shown, and the one it is compared with (None for the
    first variant's own table). `StdDev` divides by n, as the mail's does, not by n - 1; `%Change`
    is positive where the time got shorter. `head` names the variant.
    """
    compared = any(base is not None for _, _, _, base in rows)
    cells = [_times(shown, base, compared=compared) for _, _, shown, base in rows]
    titles = [*TIME_TITLES, "%Change"] if compared else list(TIME_TITLES)
    cases = [formatting.cut(case, LONGEST_CASE) for case, _, _, _ in rows]
    width = max([len("Testcase"), *map(len, cases)])
    label = max([len("Time:"), *(len(which) + 1 for _, which, _, _ in rows)])
    sizes = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    lines = [f"{'Testcase':{width}} {'Time:':{label}} {right(titles, sizes, ' ')}"]
    for case, (_, which, _, _), row in zip(cases, rows, cells, strict=True):
        lines.append(f"{case:{width}} {f'{which}:':{label}} {right(row, sizes, ' ')}")
    return [formatting.plain_ascii(head), *(line.rstrip() for line in lines)]


def _times(shown: Summary | None, base: Summary | None, *, compared: bool) -> list[str]:
    """Write one row; a table that is `compared` has a change in each."""
    texts = [formatting.NOT_SUPPORTED] * len(TIME_TITLES)
    if shown is not None:
        values = (shown.minimum, shown.maximum, shown.mean, shown.population_stddev)
        texts = ["" if value is None else f"{value:.2f}" for value in values]
    if not compared:
        return texts
    if shown is None or base is None:
        return [*texts, formatting.NOT_SUPPORTED]
    change = gain_percent(base.mean, shown.mean, Direction.LOWER)
    return [*texts, formatting.FROM_ZERO if change is None else f"{change:.2f}%"]


def gain_percent(base: float | None, value: float | None, direction: Direction) -> float | None:
    """Return the gain in percent of the base, positive is better; None where the base is 0.

    The same value is a gain of 0, also of 0.
    """
    if base is None or value is None:
        return None
    return 0.0 if base == value else improvement_percent(base, value, direction)
