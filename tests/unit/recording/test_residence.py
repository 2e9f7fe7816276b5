"""Where CPU time was spent and since when it stayed, counted by hand."""

import numpy as np
import polars as pl
import pytest

from numalab.analysis.analyse import describe
from numalab.recording.residence import (
    Ranges,
    Resident,
    converged_ms,
    residents,
    spread_ms,
)
from numalab.recording.window import Slices, Window, by_slice, cut

MS = 1_000_000
TEN = Slices(0, 100 * MS, 10 * MS, 10)


def ns(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, np.int64) * MS


def test_a_window_is_cut_into_slices_of_10_ms_or_more() -> None:
    assert cut(Window(5, 5 + 25 * MS)) == Slices(5, 5 + 25 * MS, 10 * MS, 3)
    assert cut(Window(5, 5 + 25 * MS)).lengths_ns() == [10 * MS, 10 * MS, 5 * MS]
    assert cut(Window(0, 2400 * MS)).count == 120
    assert cut(Window(0, 2400 * MS)).ends_ms[0] == 20
    assert cut(Window(7, 7)).count == 0


def test_a_span_counts_in_each_slice_with_its_part() -> None:
    spans = pl.DataFrame(
        {"pid": [1, 1, 2], "start_ns": [2, 12, 30], "end_ns": [9, 35, 40], "n": [1, 2, 1]}
    )
    result = by_slice(spans, Slices(0, 40, 10, 4), "pid").sort("pid", "slice")
    assert result.rows() == [(1, 0, 7), (1, 1, 8), (1, 2, 10), (1, 3, 5), (2, 3, 10)]
    double = by_slice(spans, Slices(0, 40, 10, 4), "pid", weight="n").sort("pid", "slice")
    assert double.rows() == [(1, 0, 7), (1, 1, 16), (1, 2, 20), (1, 3, 10), (2, 3, 10)]


def test_it_converged_at_the_first_moment_after_which_it_stayed() -> None:
    # All of it: 75 of 100 ms. From slice 1 on: 70 of 90. From slice 2 on: 65 of 80, 81 %.
    assert converged_ms(ns(*[(5, 5)] * 5, *[(0, 10)] * 5), TEN) == 20
    # All of it: 80 of 100 ms, just enough.
    assert converged_ms(ns(*[(5, 5)] * 4, *[(0, 10)] * 6), TEN) == 0


@pytest.mark.parametrize(("ms", "moved", "at"), [(80, 6, 60), (80, 7, None), (75, 6, None)])
def test_no_border_in_the_last_fifth_counts(ms: int, moved: int, at: float | None) -> None:
    window = cut(Window(0, ms * MS))
    assert converged_ms(ns(*[(10, 0)] * moved, *[(0, 10)] * (8 - moved)), window) == at


def test_what_moves_until_the_end_never_converged() -> None:
    assert converged_ms(ns(*[(10, 0), (0, 10)] * 5), TEN) is None
    assert converged_ms(ns(*[(10, 0)] * 9, (0, 10)), TEN) is None
    assert converged_ms(ns(*[(0, 0)] * 10), TEN) is None


def test_what_stayed_all_the_time_converged_at_the_start() -> None:
    assert converged_ms(ns(*[(0, 10)] * 10), TEN) == 0
    # it slept from the middle on
    assert converged_ms(ns(*[(0, 10)] * 5, *[(0, 0)] * 5), TEN) == 0


def test_an_even_spread_gives_every_node_what_its_cpus_are() -> None:
    crowded = ns(*[(20, 0)] * 5, *[(10, 10)] * 5)
    # After four slices: 70 to 50, of 120 an even share is 60, 80 % of it 48.
    assert spread_ms(crowded, [1, 1], TEN) == 40
    assert spread_ms(ns(*[(20, 0)] * 10), [1, 1], TEN) is None
    # three of four CPUs are on node 0
    assert spread_ms(ns(*[(30, 10)] * 10), [3, 1], TEN) == 0


def test_processes_and_groups_are_the_sums_of_their_tasks() -> None:
    time = pl.DataFrame(
        {"pid": [1, 2, 3], "node": [0, 1, 1], "slice": [0, 0, 9], "ns": [3 * MS, MS, 8 * MS]}
    )
    ranges = Ranges((0, 1), TEN)
    tasks = residents(time, "task", ranges, names={3: "<b>"})
    assert [(item.id, item.name, int(item.ns.sum())) for item in tasks] == [
        (3, "<b>", 8 * MS),
        (1, "", 3 * MS),
        (2, "", MS),
    ]
    (process,) = residents(time, "process", ranges, names={}, member_of={1: 7, 2: 7})
    shown = describe(process, (0, 1), TEN)
    assert (shown.level, shown.id, shown.cpu_ms, shown.share) == ("process", 7, 4.0, (75.0, 25.0))
    assert shown.slices[0] == (75.0, 25.0)
    assert shown.slices[1:] == (None,) * 9


def test_the_final_node_is_that_of_the_last_slice_with_time() -> None:
    item = Resident("task", 1, "a", ns((5, 0), (4, 6), *[(0, 0)] * 8))
    shown = describe(item, (4, 5), TEN)
    assert shown.final_node == 5
    assert shown.share == pytest.approx((60, 40))
