"""Comparisons, checked against the tables that kernel changelogs print.

The figures are those of two posts: [PATCH 00/19] Fixes for sched/numa_balancing (Srikar Dronamraju,
4 June 2018) and [RFC 2/3] sched/topology: fix sched groups on NUMA machines with mesh topology
(Lauro Ramos Venancio, 13 April 2017).
"""

from collections.abc import Sequence
from decimal import ROUND_DOWN, Decimal
from math import comb, sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from numalab.measure import Direction
from numalab.statistics.comparison import (
    LEVEL,
    MANN_WHITNEY,
    WELCH,
    Comparison,
    compare_samples,
    compare_table,
    holm,
    rank_p,
    separated,
    smallest_rank_p,
)
from numalab.statistics.summary import change_percent, improvement_percent, summarise

# Testcase, average before, average after, %Change as printed (time: lower is better).
NUMA_BALANCING = [
    ("numa01.sh Real", 758.98, 498.12, "34.36"),
    ("numa01.sh Sys", 258.42, 208.98, "19.13"),
    ("numa01.sh User", 60302.51, 42001.57, "30.34"),
    ("numa02.sh Real", 62.49, 60.91, "2.528"),
    ("numa02.sh Sys", 21.40, 17.04, "20.37"),
    ("numa02.sh User", 5264.03, 5219.08, "0.853"),
    ("numa03.sh Real", 873.55, 833.86, "4.543"),
    ("numa03.sh Sys", 132.90, 140.47, "-5.69"),
    ("numa03.sh User", 67208.33, 63613.38, "5.348"),
    ("numa04.sh Real", 778.49, 548.56, "29.53"),
    ("numa04.sh Sys", 494.03, 489.18, "0.981"),
    ("numa04.sh User", 58849.44, 42047.87, "28.55"),
    ("numa05.sh Real", 525.77, 421.13, "19.90"),
    ("numa05.sh Sys", 392.49, 348.90, "11.10"),
    ("numa05.sh User", 39105.30, 34846.47, "10.89"),
]
# Threads, mean before, mean after, % as printed (operations: higher is better).
GROUP_CONSTRUCTION = [
    (1, 22801, 27059, 19),
    (8, 146008, 209193, 43),
    (32, 351030, 522445, 49),
    (48, 365835, 594905, 63),
]


def cut(value: float, printed: str) -> Decimal:
    """Cut a value to as many digits after the point as are printed, without rounding."""
    return Decimal(repr(value)).quantize(Decimal(printed), rounding=ROUND_DOWN)


@pytest.mark.parametrize(("name", "before", "after", "printed"), NUMA_BALANCING)
def test_the_change_of_a_time_is_as_the_numa_balancing_post_prints_it(
    name: str, before: float, after: float, printed: str
) -> None:
    """The post cuts its percentages to four places of text, it does not round them.

    Rounded they would differ in the last printed digit in nine of the fifteen rows, such as
    numa01.sh Real: 34.3698 % is printed as 34.36 %.
    """
    change = improvement_percent(before, after, Direction.LOWER)
    assert change is not None, name
    assert cut(change, printed) == Decimal(printed)


def test_by_how_much_the_posts_cutting_differs_from_rounding() -> None:
    differences = []
    for _, before, after, printed in NUMA_BALANCING:
        change = improvement_percent(before, after, Direction.LOWER)
        assert change is not None
        places = Decimal(printed)
        differences.append(abs(Decimal(repr(change)).quantize(places) - places))
    assert sum(difference > 0 for difference in differences) == 9
    assert max(differences) == Decimal("0.01")


@pytest.mark.parametrize(("threads", "before", "after", "printed"), GROUP_CONSTRUCTION)
def test_the_change_of_a_rate_is_as_the_group_construction_post_prints_it(
    threads: int, before: float, after: float, printed: int
) -> None:
    change = improvement_percent(before, after, Direction.HIGHER)
    assert change is not None, threads
    assert round(change) == printed


def test_the_posts_stddev_is_the_populations_and_perfs_is_the_samples() -> None:
    """numa01.sh Real: StdDev 189.17, and perf stat's 759.02 s ( +- 12.46% ) of the same 5 runs.

    perf prints the standard error of the mean, sample stddev / sqrt(n). It agrees with the table
    when the table's StdDev divides by n; ours (n - 1) would be 211.50 where the post has 189.17.
    """
    sample = 189.17 * sqrt(5 / 4)
    assert 100 * sample / sqrt(5) / 759.019898884 == pytest.approx(12.46, abs=0.005)
    assert sample == pytest.approx(211.50, abs=0.005)


def test_a_summary_counts_what_is_there() -> None:
    summary = summarise([4, None, 2.0, 6])
    assert summary is not None
    assert (summary.n, summary.mean, summary.minimum, summary.maximum, summary.stddev) == (
        3,
        4,
        2,
        6,
        2,
    )
    assert summarise([None]) is None
    single = summarise([5])
    assert single is not None
    assert single.stddev is None


def test_a_change_of_a_negative_mean_has_the_sign_of_the_difference() -> None:
    assert change_percent(-8.0, -6.0) == 25.0


def test_a_change_from_nothing_is_no_percentage() -> None:
    assert change_percent(0, 5) is None
    assert improvement_percent(0, 5, Direction.HIGHER) is None
    assert improvement_percent(4, 5, Direction.NONE) is None
    assert change_percent(4, 5) == 25


def test_separated_means_without_any_overlap() -> None:
    assert separated([1, 2], [3, 4])
    assert separated([3, 4], [1, 2])
    assert not separated([1, 3], [2, 4])
    assert not separated([1, 2], [2, 3])
    assert not separated([], [1])


def test_the_means_that_the_seeds_use() -> None:
    summary = summarise([1, 2, 4])
    assert summary is not None
    assert summary.harmonic_mean == pytest.approx(3 / (1 + 1 / 2 + 1 / 4))
    assert summary.geometric_mean == pytest.approx(2)
    assert summary.variation == pytest.approx(100 * sqrt(7 / 3) / (7 / 3))
    assert summary.population_stddev == pytest.approx(sqrt(14 / 9))
    zero = summarise([0, 1])
    assert zero is not None
    assert (zero.harmonic_mean, zero.geometric_mean) == (None, None)


def test_the_population_stddev_is_what_the_2018_table_prints() -> None:
    """From perf stat's standard error of the mean, 12.46 % of 759.02 s in 5 runs."""
    sample = 0.1246 * 759.019898884 * sqrt(5)
    values = [759.02 + sample * shift * sqrt(4 / 2) for shift in (-1, 1, 0, 0, 0)]
    summary = summarise(values)
    assert summary is not None
    assert summary.stddev == pytest.approx(sample)
    assert summary.population_stddev == pytest.approx(189.17, abs=0.1)


def compare(before: Sequence[float | None], after: Sequence[float | None], way: Direction,
            family: int = 1) -> Comparison:  # fmt: skip
    return compare_samples(before, after, direction=way, family=family)


def test_the_smallest_p_of_ranks_is_that_of_the_permutations() -> None:
    assert smallest_rank_p(3, 3) == pytest.approx(2 / 20)
    assert smallest_rank_p(5, 5) == pytest.approx(2 / 252)
    assert smallest_rank_p(1, 1) == 1


def test_holms_correction_by_hand() -> None:
    """0.01 x 4; then 0.02 x 3 = 0.06; 0.03 x 2 = 0.06; and 0.5, the largest, as it is."""
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx((0.06, 0.04, 0.5, 0.06))
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    assert holm([]) == ()


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_never_lowers_a_p_nor_changes_their_order(values: list[float]) -> None:
    corrected = holm(values)
    assert all(p <= c <= 1 for p, c in zip(values, corrected, strict=True))
    ordered = [c for _, c in sorted(zip(values, corrected, strict=True))]
    assert ordered == sorted(ordered)


SPREAD = [3.1, 2.2, 4.0], [7.3, 9.9, 8.8]


def test_few_runs_are_compared_by_welchs_t() -> None:
    comparison = compare(*SPREAD, Direction.HIGHER)
    expected = stats.ttest_ind(SPREAD[1], SPREAD[0], equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert comparison.test == "Welch's t"
    assert comparison.p_value == pytest.approx(expected.pvalue)
    assert comparison.interval == pytest.approx((interval.low, interval.high))
    assert comparison.difference == pytest.approx(26 / 3 - 9.3 / 3)
    assert (comparison.outcome, comparison.separated) == ("better", True)
    assert comparison.verdict == (
        "all 3 runs of after are above all 3 of before (Welch's t, p = 0.0054)"
    )


def test_the_outcome_follows_the_measures_direction() -> None:
    assert compare(*SPREAD, Direction.LOWER).outcome == "worse"
    assert compare(*SPREAD, Direction.NONE).outcome == "different"
    assert compare(SPREAD[1], SPREAD[0], Direction.LOWER).outcome == "better"


def test_what_is_plain_alone_may_be_chance_among_many() -> None:
    comparison = compare(*SPREAD, Direction.HIGHER, family=20)
    assert comparison.corrected == pytest.approx(20 * (comparison.p_value or 0))
    assert comparison.outcome == "no difference shown"
    assert "p = 0.0054, corrected for 20 tests 0.11" in comparison.verdict


def test_few_runs_that_overlap_show_nothing_whatever_their_p() -> None:
    before, after = [1.0, 1.1, 1.25, 1.95], [1.94, 2.2, 2.3, 2.4]
    comparison = compare(before, after, Direction.HIGHER, family=2)
    assert comparison.test == "Welch's t"
    assert comparison.corrected is not None
    assert comparison.corrected < 0.05
    assert (comparison.separated, comparison.outcome) == (False, "no difference shown")
    assert "overlap" in comparison.verdict


def test_runs_enough_are_compared_by_ranks() -> None:
    before, after = [1.0, 2, 3, 4, 5], [6.5, 7, 8, 9, 1000]
    comparison = compare(before, after, Direction.LOWER)
    assert (comparison.test, comparison.outcome) == ("Mann-Whitney", "worse")
    assert comparison.p_value == pytest.approx(2 / 252)
    assert "Mann-Whitney, p = 0.0079" in comparison.verdict


def test_ranks_are_not_used_where_their_smallest_p_is_just_the_level() -> None:
    """2 / C(10, 3) in a family of 3 is 0.05, and a difference is shown below that only."""
    before, after = [1.0, 1.1, 1.2], [5.0, 5.1, 5.2, 5.3, 5.4, 5.5, 5.6]
    comparison = compare(before, after, Direction.LOWER, family=3)
    assert smallest_rank_p(3, 7) * 3 == LEVEL
    assert (comparison.test, comparison.outcome) == (WELCH, "worse")
    assert compare(before, after, Direction.LOWER, family=2).test == MANN_WHITNEY


def test_one_outlier_does_not_turn_the_direction_of_ranks() -> None:
    before = [10.1, 10.2, 10.3, 10.4, 10.5, 10.6, 10.7, 10.8]
    after = [1.1, 2.2, 3.3, 4.4, 5.5, 6.6, 7.7, 1000.5]
    fast = compare(before, after, Direction.LOWER)
    assert (fast.test, fast.outcome, fast.above) == ("Mann-Whitney", "better", False)
    assert fast.difference is not None and fast.difference > 0
    assert "mostly below the 8 of before, though outliers put their mean on" in fast.verdict
    slow = compare(after, before, Direction.LOWER)
    assert (slow.outcome, slow.above) == ("worse", True)


def test_ranks_may_overlap_and_still_differ() -> None:
    before = [1.0, 2, 3, 4, 5, 6, 7, 8]
    after = [7.5, 9, 10, 11, 12, 13, 14, 15]
    comparison = compare(before, after, Direction.HIGHER)
    assert (comparison.outcome, comparison.separated) == ("better", False)
    assert comparison.verdict.startswith("the 8 runs of after are mostly above the 8 of bef")


def test_ties_are_counted_exactly() -> None:
    """Of the C(8, 4) = 70 ways to place the two 1s and six 0s, 15 + 15 put both on one side."""
    comparison = compare([0, 0, 0, 0], [0, 0, 1, 1], Direction.HIGHER)
    assert comparison.test == "Mann-Whitney"
    assert comparison.p_value == pytest.approx(30 / 70)


def test_many_tied_runs_are_counted_exactly() -> None:
    """Four 1s among 18 values: C(9, 4) of C(18, 4) choices have all in one half."""
    comparison = compare([0.0] * 9, [0.0] * 5 + [1.0] * 4, Direction.HIGHER)
    assert comparison.p_value == pytest.approx(2 * comb(9, 4) / comb(18, 4))


@given(st.lists(st.integers(0, 5), min_size=2, max_size=6),
       st.lists(st.integers(0, 5), min_size=2, max_size=6))  # fmt: skip
def test_the_rank_test_is_that_of_all_permutations(first: list[int], second: list[int]) -> None:
    every = stats.PermutationMethod(10**6)
    expected = stats.mannwhitneyu(first, second, method=every).pvalue
    assert rank_p([*map(float, first)], [*map(float, second)]) == pytest.approx(expected)


def test_whole_numbers_without_spread_are_no_proof() -> None:
    """0 and 1 three times each: with nothing but counts, that is three events against none."""
    assert (
        compare([0, 0, 0], [1, 1, 1], Direction.LOWER, family=10).outcome == "no difference shown"
    )
    assert compare([0, 0, 0], [9, 9, 9], Direction.LOWER, family=10).outcome == "worse"
    comparison = compare([0, 0, 0], [1, 1, 1], Direction.LOWER)
    # Variance 1/12 on both sides: t = 1 / sqrt(2 / 36), with 4 degrees of freedom.
    assert comparison.p_value == pytest.approx(2 * stats.t.sf(sqrt(18), 4))


def test_the_smallest_effect_grows_with_spread_and_family() -> None:
    tight = compare([10.0, 10.1, 9.9], [10.0, 10.05, 9.95], Direction.LOWER)
    loose = compare([10.0, 11, 9], [10.0, 10.5, 9.5], Direction.LOWER)
    assert tight.smallest_effect is not None
    assert loose.smallest_effect == pytest.approx(10 * tight.smallest_effect)
    many = compare([10.0, 11, 9], [10.0, 10.5, 9.5], Direction.LOWER, family=10)
    assert (many.smallest_effect or 0) > (loose.smallest_effect or 0)
    error, freedom = (
        sqrt(1 / 3 + 0.25 / 3),
        (1.25 / 3) ** 2 / ((1 / 3) ** 2 / 2 + (1 / 12) ** 2 / 2),
    )
    by_hand = error * (stats.t.ppf(0.975, freedom) + stats.t.ppf(0.8, freedom))
    assert loose.smallest_effect == pytest.approx(by_hand)
    assert "the smallest change that would show: 27 %" in loose.verdict


def test_a_table_shares_one_correction_and_constants_do_not_count() -> None:
    same = ([5, 5, 5], [5, 5, 5], "lower")
    rows = [(*SPREAD, "higher"), same, same, (SPREAD[0], SPREAD[0], "lower"), ([], [1], "lower")]
    comparisons = compare_table(rows)  # type: ignore[arg-type]
    assert [item.outcome for item in comparisons] == [
        *("better", "no difference shown", "no difference shown", "no difference shown"),
        "not comparable",
    ]
    assert comparisons[0].corrected == pytest.approx(2 * (comparisons[0].p_value or 0))
    assert comparisons[1].verdict == "the same value in all 6 runs"
    assert compare_table([]) == ()


def test_rows_without_a_test_do_not_count() -> None:
    """One value on a side has no test; 8 such rows must not ask more of the row that has one."""
    row = ([1.0, 2, 3, 4, 10], [9, 11.5, 12, 13, 14], Direction.LOWER)
    (alone,) = compare_table([row])
    single: tuple[list[float], list[float], Direction] = ([1.0], [2.0, 3.0], Direction.LOWER)
    among, *rest = compare_table([row, *[single] * 8])
    assert (among, among.outcome, among.family) == (alone, "worse", 1)
    assert {(item.p_value, item.outcome) for item in rest} == {(None, "no difference shown")}


def test_two_runs_show_nothing_even_apart() -> None:
    comparison = compare([1, 2], [8000, 9000], Direction.HIGHER)
    assert (comparison.outcome, comparison.separated) == ("no difference shown", True)
    assert "so few runs show nothing" in comparison.verdict
    single = compare([1], [8], Direction.HIGHER)
    assert (single.outcome, single.interval) == ("no difference shown", None)


@pytest.mark.parametrize(("before", "after", "side"), [([None], [1], "before"), ([1], [], "after")])
def test_what_was_not_measured_is_not_comparable(
    before: list[float | None], after: list[float | None], side: str
) -> None:
    comparison = compare(before, after, Direction.LOWER)
    assert comparison.outcome == "not comparable"
    assert comparison.verdict == f"no run of {side} could measure it"


number = st.floats(-1e6, 1e6) | st.integers(-50, 50)


@given(st.lists(number, max_size=7), st.lists(number, max_size=7), st.integers(1, 60))
def test_any_samples_give_a_whole_comparison(
    before: list[float], after: list[float], family: int
) -> None:
    comparison = compare(before, after, Direction.LOWER, family)
    back = compare(after, before, Direction.LOWER, family)
    flipped = {"better": "worse", "worse": "better"}
    assert back.outcome == flipped.get(comparison.outcome, comparison.outcome)
    if comparison.p_value is not None:
        assert 0 <= comparison.p_value <= (comparison.corrected or 0) <= 1
        assert back.p_value == pytest.approx(comparison.p_value, abs=1e-9)
    if comparison.interval is not None:
        assert comparison.interval[0] <= (comparison.difference or 0) <= comparison.interval[1]
    assert comparison.verdict
