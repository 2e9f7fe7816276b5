"""The table from which a timeline is drawn."""

import polars as pl

from lab.analysis.occupancy import SCHEMA
from lab.analysis.timeline import timeline
from lab.analysis.window import Window


def spans(*rows: tuple[int, int, int, int | None, str | None]) -> pl.DataFrame:
    """Spans of (cpu, start, end, pid, comm)."""
    whole = [(cpu, 0, start, end, pid, comm, True) for cpu, start, end, pid, comm in rows]
    return pl.DataFrame(whole, schema=SCHEMA, orient="row")


def shown(found: pl.DataFrame) -> list[tuple[int, int, int, str]]:
    return found.select("cpu", "start_ns", "end_ns", "comm").rows()


def test_long_spans_stay_and_idle_time_is_a_hole() -> None:
    found = timeline(
        spans((0, 0, 40, 1, "a"), (0, 40, 60, 0, "swapper"), (0, 60, 100, 2, "b")),
        Window(0, 100),
        columns=10,
    )
    assert shown(found) == [(0, 0, 40, "a"), (0, 60, 100, "b")]


def test_a_part_shows_the_task_that_had_most_of_it() -> None:
    found = timeline(
        spans((0, 0, 3, 1, "a"), (0, 3, 5, 2, "b"), (0, 5, 8, 1, "a"), (0, 8, 20, 2, "b")),
        Window(0, 20),
        columns=2,
    )
    assert shown(found) == [(0, 0, 10, "a"), (0, 10, 20, "b")]


def test_a_short_task_does_not_hide_that_a_part_was_idle() -> None:
    found = timeline(spans((0, 0, 9, 0, "swapper"), (0, 9, 10, 1, "a")), Window(0, 10), columns=1)
    assert found.is_empty()


def test_neighbouring_parts_of_a_task_are_one_row_but_not_across_a_hole() -> None:
    pieces = [(0, 10 * i, 10 * i + 10, 1, "a") for i in range(4)]
    found = timeline(
        spans(*pieces, (0, 40, 50, None, None), (0, 50, 60, 1, "a"), (1, 0, 60, 1, "a")),
        Window(0, 60),
        columns=6,
    )
    assert shown(found) == [(0, 0, 40, "a"), (0, 50, 60, "a"), (1, 0, 60, "a")]


def test_the_last_part_ends_with_the_window() -> None:
    found = timeline(spans((0, 100, 107, 1, "a")), Window(100, 107), columns=2)
    assert shown(found) == [(0, 100, 107, "a")]


def test_there_are_no_more_rows_than_asked_for() -> None:
    many = spans(*[(0, i, i + 1, i % 2 + 1, "ab"[i % 2]) for i in range(1000)])
    assert timeline(many, Window(0, 1000), columns=1000).height == 1000
    assert 0 < timeline(many, Window(0, 1000), columns=1000, max_rows=10).height <= 10


def test_nothing_ran_in_an_empty_window() -> None:
    assert timeline(spans(), Window(0, 0)).is_empty()
    assert timeline(spans(), Window(0, 50)).columns == [
        "cpu",
        "node",
        "start_ns",
        "end_ns",
        "pid",
        "comm",
    ]
