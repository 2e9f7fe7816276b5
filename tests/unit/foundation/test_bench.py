"""The history of `make bench`: its lines, its table, and its picture."""

from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest

from bench import history
from bench.history import Line, MachineFacts, Value, draw, table, with_table
from bench.rows import BY_KEY, ROWS, Figure, Row


def line(day: int, **rows: Value) -> Line:
    return Line(
        date=datetime(2026, 11, day, tzinfo=UTC),
        machine=MachineFacts(cpu="Xeon", cpus=2, memory_mib=4096, load=0.5),
        versions={"numalab": "abc"},
        rows={key.replace("_", "-"): value for key, value in rows.items()},
    )


def test_every_row_has_its_own_key_and_label() -> None:
    assert len(BY_KEY) == len({row.label for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    ("row", "figure", "share"),
    [
        (Row("a", "a", most=2.0), Figure("a", 3.0), 1.5),
        (Row("a", "a", least=2.0), Figure("a", 1.0), 2.0),
        (Row("a", "a", most=0.5, of_ratio=True), Figure("a", 1.0, 4.0), 0.5),
        (Row("a", "a", least=3.6, of_ratio=True), Figure("a", 7.2, 1.0), 0.5),
        (Row("a", "a", most=0.5, of_ratio=True), Figure("a", 1.0), None),
        (Row("a", "a"), Figure("a", 1.0), None),
    ],
)
def test_a_share_above_one_misses_the_target(row: Row, figure: Figure, share: float) -> None:
    assert row.share(figure) == share


def test_the_table_has_the_newest_figure_of_each_row() -> None:
    old = line(1, help=Value(ours=0.3, reference=0.1, ratio=3), site=Value(ours=120))
    new = line(2, help=Value(ours=0.1, reference=0.02, ratio=5))
    first, second = table([old, new]).splitlines()[2:]
    assert first == (
        "| `numalab --help` / `python -c pass` | 0.1 s | 0.02 s | 5.00 | <= 0.15 s | met |"
        " 2026-11-02, 2 CPUs, load 0.5 |"
    )
    assert second == (
        "| `make site` | 120 s | | | <= 30 s | missed | 2026-11-01, 2 CPUs, load 0.5 |"
    )


def test_only_the_table_of_the_page_changes() -> None:
    page = with_table("a\n<!-- table of make bench -->\nold\n<!-- end of the table -->\nb\n", "new")
    assert "old" not in page and "\nnew\n" in page
    assert with_table(page, "new") == page and page.startswith("a\n") and page.endswith("b\n")
    with pytest.raises(ValueError, match="lacks"):
        with_table("a page without marks", "new")


def test_the_page_has_the_table_of_the_stored_lines() -> None:
    page = history.PAGE.read_text("utf-8")
    assert with_table(page, table(history.read())) == page


def test_the_picture_has_a_chart_for_each_row_with_a_target() -> None:
    value = Value(ours=1.0, reference=0.5, ratio=2.0)
    lines = [line(day, help=value, measures=value, jobs_4=value) for day in (1, 2)]
    texts = [node.text for node in ET.fromstring(draw(lines)).iter() if node.tag.endswith("}text")]
    assert "numalab --help" in texts and "runs with --jobs 1 / --jobs 4" in texts
    assert BY_KEY["measures"].label not in texts
