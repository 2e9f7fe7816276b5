"""Tables of measures in a terminal of any width: no name is broken over lines."""

from io import StringIO

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from numalab.report.formatting import shortened_name
from numalab.report.named_rows import Column, NamedRow, NamedRows

WIDTHS = st.integers(60, 200)
# Names of users' measures have up to 64 characters; a metric has a label more.
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,99}", fullmatch=True)
FIGURES = st.sampled_from(["0", "12.50", "483,057,177", "1,234,567,890", "n/s", ""])
COLUMNS = (
    Column("mean", "baseline"),
    Column("stddev", "baseline", spare=2),
    Column("mean", "a-variant-with-a-name-that-is-long"),
    Column("stddev", "a-variant-with-a-name-that-is-long", spare=2),
    Column("n", spare=3),
    Column("change"),
    Column("kind", spare=4, left=True),
)


def printed(table: NamedRows, width: int) -> list[str]:
    out = StringIO()
    Console(file=out, width=width).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def row(name: str, figure: str, unit: str = "ms") -> NamedRow:
    return NamedRow(name, unit, (figure, figure, figure, figure, "3", "+190%", "placement"))


@given(WIDTHS, st.lists(st.tuples(NAMES, FIGURES), min_size=1, max_size=8))
def test_no_name_is_broken_and_no_line_is_too_wide(
    width: int, measures: list[tuple[str, str]]
) -> None:
    lines = printed(NamedRows("Measure", COLUMNS, [row(*measure) for measure in measures]), width)
    assert all(len(line) <= width for line in lines)
    words = [line.split()[0] for line in lines if line]
    for name, _ in measures:
        assert shortened_name(name, width) in words
    # Each row has its change, in one column.
    ends = {line.index("+190%") for line in lines if "+190%" in line}
    assert len(ends) == 1
    assert sum("+190%" in line for line in lines) == len(measures)


@given(WIDTHS, NAMES)
def test_the_heads_of_columns_are_whole(width: int, name: str) -> None:
    lines = printed(NamedRows("Measure", COLUMNS, [row(name, "483,057,177")]), width)
    heads = lines[1].split()
    assert heads[0] == "Measure"
    assert set(heads[1:]) <= {column.title for column in COLUMNS}
    assert "change" in heads
    assert heads.count("mean") == 2


def test_a_name_too_long_for_its_column_is_above_its_figures() -> None:
    name = "x" * 58
    lines = printed(NamedRows("Measure", COLUMNS, [row(name, "1"), row("short", "2")]), 60)
    place = lines.index(f"{name}")
    assert "+190%" in lines[place + 1]
    assert "[ms]" in lines[place + 1]
    assert lines[place + 2].startswith("short [ms]")


def test_a_narrow_terminal_loses_the_least_important_columns() -> None:
    wide, narrow = (
        printed(NamedRows("Measure", COLUMNS, [row("delay", "483,057,177")]), width)[1]
        for width in (200, 70)
    )
    assert wide.split() == ["Measure", "mean", "stddev", "mean", "stddev", "n", "change", "kind"]
    assert narrow.split() == ["Measure", "mean", "mean", "change"]


def test_control_characters_and_markup_stay_text() -> None:
    lines = printed(
        NamedRows("Measure", COLUMNS, [row("[bold]x\x1b[2J", "1"), NamedRow("\u202ehead")]), 100
    )
    assert any("[bold]x\\x1b[2J" in line for line in lines)
    assert any("\\u202ehead" in line for line in lines)
