"""The exact test of a shift and its interval, against scipy's permutation test."""

import random
from math import comb, inf, isinf, log
from statistics import fmean

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from numalab.statistics.scale import SCALES, Scale, change_of, margin_of, on_scale, shift_of
from numalab.statistics.shift import (
    LEVEL,
    POWER,
    fewest_runs,
    reaches,
    runs_to_show,
    shift_between,
    smallest_p,
    smallest_shift,
)

values = st.integers(min_value=-1000, max_value=1000).map(lambda number: number / 8)
samples = st.lists(values, min_size=1, max_size=6)


def scipy_p(before: list[float], after: list[float]) -> float:
    """Return the p value of scipy's test with every split."""
    many = {"n_resamples": 10**6, "vectorized": False}
    difference = lambda first, second: fmean(first) - fmean(second)  # noqa: E731
    tested = stats.permutation_test((after, before), difference, **many)
    count = comb(len(before) + len(after), len(before))
    # scipy doubles the smaller tail; with unequal sides the two tails differ.
    null = np.abs(tested.null_distribution)
    assert len(null) == count
    return float((null >= abs(tested.statistic) - 1e-9).sum() / count)


@given(samples, samples, values)
def test_p_is_the_share_of_splits_that_scipy_counts(
    before: list[float], after: list[float], shift: float
) -> None:
    assume(min(len(before), len(after)) > 1 and len(before) + len(after) <= 9)
    tested = shift_between(before, after)
    assert tested.p_value() == pytest.approx(scipy_p(before, after))
    moved = [value - shift for value in after]
    assert tested.p_value(shift) == pytest.approx(scipy_p(before, moved))


def test_p_of_equal_sides_is_the_p_value_of_scipy() -> None:
    before, after = [83.0, 92.5, 70.25, 101.0, 66.0], [75.5, 61.0, 88.0, 59.5, 60.0]
    p_value = stats.permutation_test(
        (before, after),
        lambda first, second, axis: first.mean(axis) - second.mean(axis),
        vectorized=True,
    ).pvalue
    assert shift_between(before, after).p_value() == pytest.approx(p_value)


@given(samples, samples, values, st.sampled_from([0.01, 0.05 / 6, LEVEL, 0.2]))
def test_the_interval_holds_what_the_test_does_not_reject(
    before: list[float], after: list[float], shift: float, level: float
) -> None:
    tested = shift_between(before, after)
    low, high = tested.interval(level)
    assert low <= tested.difference <= high
    assert (low <= shift <= high) == (not reaches(tested.p_value(shift), level))
    for end, beyond in ((low, -1e-6), (high, 1e-6)):
        if not isinf(end):
            assert not reaches(tested.p_value(end), level)
            assert reaches(tested.p_value(end + beyond), level)


@given(samples, samples, values)
def test_the_interval_moves_with_the_runs_and_turns_with_the_sides(
    before: list[float], after: list[float], shift: float
) -> None:
    low, high = shift_between(before, after).interval()
    moved = shift_between(before, [value + shift for value in after]).interval()
    assert moved == pytest.approx((low + shift, high + shift), abs=1e-6)
    assert shift_between(after, before).interval() == pytest.approx((-high, -low), abs=1e-6)


def test_the_interval_of_equal_runs_is_a_point() -> None:
    low, high = shift_between([3.1] * 5, [3.1] * 5).interval()
    assert (low, high) == pytest.approx((0, 0), abs=1e-9)
    assert shift_between([3.1] * 5, [3.1] * 5).p_value() == 1
    low, high = shift_between([0.0] * 5, [1.0] * 5).interval()
    assert (low, high) == pytest.approx((1, 1), abs=1e-6)


def test_the_interval_covers_the_shift_as_often_as_it_says() -> None:
    """Of 2,000 samples with a shift of 3, at most 5 % and some noise are not covered."""
    rng, missed = random.Random(1), 0
    for _ in range(2000):
        before = [rng.expovariate(1) for _ in range(5)]
        low, high = shift_between(before, [3 + rng.expovariate(1) for _ in range(5)]).interval()
        missed += not low <= 3 <= high
    assert missed <= 125


def test_many_runs_are_sampled_and_always_in_the_same_way() -> None:
    rng = random.Random(2)
    before, after = ([rng.gauss(mean, 1) for _ in range(20)] for mean in (0, 0.8))
    tested, again = shift_between(before, after), shift_between(before, after)
    assert tested.interval() == again.interval()
    welch = stats.ttest_ind(before, after, equal_var=False).pvalue
    assert tested.p_value() == pytest.approx(welch, rel=0.3)
    assert shift_between([0.0] * 20, [1.0] * 20).p_value() == pytest.approx(0, abs=1e-4)


def test_any_number_of_runs_is_bounded() -> None:
    tested = shift_between([0.0] * 20_000, [1.0] * 30_000)
    assert tested.p_value() < LEVEL
    assert tested.interval() == pytest.approx((1, 1), abs=0.1)
    assert tested.p_value() == smallest_p(20_000, 30_000)
    assert smallest_p(500_000, 500_000) == 1 / 2_000  # of which the observed split is one
    assert shift_between([0.0], [float(value) for value in range(40_000)]).p_value() > 0


def test_an_empty_sample_has_no_shift() -> None:
    with pytest.raises(ValueError, match="empty"):
        shift_between([], [1.0])


def test_fewest_runs() -> None:
    """One claim takes four seeds, six take five."""
    assert fewest_runs(LEVEL) == 4
    assert fewest_runs(LEVEL / 6) == 5
    assert fewest_runs(1e-5) == 11
    assert fewest_runs(9e-6) is None  # of 11 and 11 runs on, 100,000 splits are drawn
    assert smallest_p(3, 3) == 0.1
    assert shift_between([1.0, 2, 3], [7.0, 8, 9]).p_value() == 0.1
    assert shift_between([1.0, 2, 3], [7.0, 8, 9]).interval() == (-inf, inf)
    assert smallest_p(3, 4) == shift_between([1.0, 2, 4], [7.0, 8, 9, 14]).p_value()


def test_the_smallest_shift_is_shown_as_often_as_it_says() -> None:
    rng = random.Random(3)
    spread = [rng.gauss(0, 1) for _ in range(400)]
    smallest = smallest_shift(spread, spread, runs=10, level=LEVEL)
    assert smallest is not None
    shown = 0
    for _ in range(300):
        before = [rng.gauss(0, 1) for _ in range(10)]
        after = [rng.gauss(smallest, 1) for _ in range(10)]
        shown += reaches(shift_between(before, after).p_value(), LEVEL)
    assert shown / 300 == pytest.approx(POWER, abs=0.08)


def test_how_many_runs_show_a_shift() -> None:
    before, after = [1.0, 2, 3, 4, 5], [2.0, 3, 4, 5, 6]
    runs = runs_to_show(before, after, 1.0, LEVEL)
    assert runs is not None
    shown = [smallest_shift(before, after, runs=n, level=LEVEL) or 0 for n in (runs - 1, runs)]
    assert shown[1] <= 1 < shown[0]
    assert runs_to_show([1.0] * 5, [2.0] * 5, 1.0, LEVEL) == 4
    assert runs_to_show(before, after, 0.001, LEVEL) is None
    assert runs_to_show(before, after, 0.0, LEVEL) is None
    assert runs_to_show([1.0], after, 1.0, LEVEL) is None
    assert smallest_shift(before, after, runs=3, level=LEVEL) == inf


@pytest.mark.parametrize("scale", SCALES)
@given(st.floats(min_value=-99, max_value=1000))
def test_a_change_and_its_shift_are_inverse(scale: Scale, change: float) -> None:
    assert change_of(shift_of(change, scale), scale) == pytest.approx(change, abs=1e-9)


def test_scales() -> None:
    assert on_scale([0, 3], "count") == [log(0.5), log(3.5)]
    assert on_scale([2.0, 3.0], "ratio") == [log(2), log(3)]
    assert on_scale([-2.0, 0.0], "linear") == [-2, 0]
    with pytest.raises(ValueError, match="0 has no logarithm"):
        on_scale([0.0, 1.0], "ratio")
    assert shift_of(-100, "count") == -inf
    assert change_of(-inf, "ratio") == -100
    assert change_of(inf, "ratio") == inf
    assert margin_of(5, "linear") == (-5, 5)
    assert margin_of(5, "ratio") == (log(0.95), log(1.05))
