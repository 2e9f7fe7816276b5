"""Verdicts by size, and the two families of claims."""

import random
from dataclasses import replace
from math import inf, log

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from numalab.statistics.comparison import holm
from numalab.statistics.scale import default_scale
from numalab.statistics.shift import LEVEL, reaches
from numalab.statistics.verdict import (
    ClaimedChange,
    Family,
    SizeJudgement,
    Towards,
    claim_test,
    family_level,
    judged,
)

BASE = [100.0, 101.0, 99.0, 100.5, 99.5]
TENTH = (log(0.85), log(0.9))


def judge(
    towards: Towards,
    after: list[float],
    *,
    published: tuple[float, float] | None = None,
    before: list[float] = BASE,
    fires: bool | None = True,
) -> SizeJudgement:
    """Judge a claim that is alone in its family."""
    claim = ClaimedChange(towards, "ratio", published)
    return judged(claim_test(claim, before, after, fires=fires), "primary", 1, LEVEL)


def times(factor: float) -> list[float]:
    return [factor * value for value in BASE]


def test_a_published_change_stands_for_all_that_round_to_it() -> None:
    """48 to 47 is -4.1 to 0 %: a change by -0.5 % is within that, and the verdict says so."""
    exact = ClaimedChange("lower", "ratio", (log(47 / 48),) * 2)
    rounded = replace(exact, rounded=(log(46.5 / 48.5), 0.0))
    verdicts = {
        claim: judged(claim_test(claim, [100.0, 100.1] * 4, [99.5, 99.6] * 4), "primary", 1, LEVEL)
        for claim in (exact, rounded)
    }
    assert verdicts[exact].verdict == "direction only"
    assert verdicts[rounded].verdict == "reproduced"
    assert verdicts[rounded].detail == "within the rounding of the published figures"
    assert exact.smallest == rounded.smallest, "what runs have to show is the printed change"


def test_a_published_fall_beyond_that_to_0_is_said() -> None:
    claim = ClaimedChange("lower", "count", (log(1.5 / 4244.5),) * 2)
    verdict = judged(claim_test(claim, [49.0] * 5, [0.0] * 5), "primary", 1, LEVEL)
    assert (verdict.verdict, verdict.detail) == (
        "reproduced",
        "a larger fall is published: to about 0",
    )


NOISY = [60.0, 140.0, 100.0, 80.0, 120.0]


@pytest.mark.parametrize(
    ("towards", "after", "published", "verdict", "detail"),
    [
        ("lower", times(0.9), TENTH, "reproduced", ""),
        ("lower", times(0.8), TENTH, "direction only", "larger than published"),
        ("lower", times(0.967), (log(0.5), log(0.5)), "direction only", "smaller than published"),
        ("higher", times(1.02), (log(1.07), log(1.15)), "direction only", "smaller than published"),
        ("higher", times(1.5), (log(1.07), log(1.15)), "direction only", "larger than published"),
        ("lower", times(1.0), TENTH, "refuted", "the interval excludes the published change"),
        ("lower", times(1.2), TENTH, "refuted", "the change is opposite"),
        ("lower", times(1.02), TENTH, "refuted", "no change beyond the margin"),
        ("lower", NOISY, TENTH, "inconclusive", ""),
        ("lower", times(0.9), None, "reproduced", ""),
        ("lower", times(0.97), None, "direction only", "within the margin"),
        ("lower", times(1.0), None, "refuted", "no change beyond the margin"),
        ("higher", NOISY, None, "inconclusive", ""),
        (
            "lower",
            [110.0, 99.5, 104.0, 100.2, 108.0],
            None,
            "refuted",
            "the interval excludes a decrease beyond the margin",
        ),
        ("same", times(1.01), None, "reproduced", ""),
        ("same", times(1.2), None, "refuted", "it changes by more than the margin"),
        ("same", [65.0, 145.0, 105.0, 82.0, 122.0], None, "inconclusive", ""),
        ("lower", [50.0] * 3, None, "inconclusive", ""),  # three runs show nothing
    ],
)
def test_verdicts(
    towards: Towards,
    after: list[float],
    published: tuple[float, float] | None,
    verdict: str,
    detail: str,
) -> None:
    before = BASE[: len(after)]
    judgement = judge(towards, after, published=published, before=before)
    assert (judgement.verdict, judgement.detail) == (verdict, detail)
    runs = judgement.runs
    assert (runs is not None and runs > len(after)) == (verdict == "inconclusive")


@pytest.mark.parametrize(
    ("towards", "after", "published", "runs"),
    [
        ("lower", [50.0, 51.0, 49.0], None, 4),  # three against three are never significant
        ("lower", [50.0, 51.0, 49.0], TENTH, 4),
        ("higher", [130.0, 85.0, 128.0], (log(1.1), log(1.1)), 36),  # about (2.8 * 0.24 / 0.116)^2
        ("same", [97.0, 103.0, 106.0], None, 21),  # about (2.8 * 0.045 / 0.030)^2
        ("same", [105.0, 105.3, 104.9], None, None),  # it is the margin
    ],
)
def test_how_many_runs_decide_if_means_and_spread_stay(
    towards: Towards, after: list[float], published: tuple[float, float] | None, runs: int | None
) -> None:
    judgement = judge(towards, after, published=published, before=BASE[:3])
    assert (judgement.verdict, judgement.runs) == ("inconclusive", runs)


def test_no_number_of_runs_decides_one_of_very_many_claims() -> None:
    claim = ClaimedChange("lower", "ratio")
    judgement = judged(claim_test(claim, BASE, times(0.5)), "secondary", 5001, LEVEL / 5001)
    assert (judgement.verdict, judgement.runs) == ("inconclusive", None)


def test_a_mechanism_that_does_not_act() -> None:
    assert judge("same", times(1.0), fires=False).verdict == "vacuous"
    assert judge("same", times(1.2), fires=False).verdict == "refuted"
    assert judge("lower", times(1.0), fires=False).verdict == "not reached"
    assert judge("lower", times(0.9), fires=False).verdict == "reproduced"


def test_a_mechanism_that_no_run_measured() -> None:
    """It matters only where no change is shown."""
    for towards in ("same", "lower"):
        unknown = judge(towards, times(1.0), fires=None)
        assert (unknown.verdict, unknown.detail) == (
            "cannot be seen",
            "no run of the baseline measured the mechanism",
        )
    assert judge("same", times(1.2), fires=None).verdict == "refuted"
    assert judge("lower", times(0.9), fires=None).verdict == "reproduced"


def test_the_figures_are_those_of_the_rule() -> None:
    judgement = judge("lower", times(0.9), published=TENTH)
    assert judgement.change == pytest.approx(-10)
    assert judgement.interval[0] < -10 < judgement.interval[1] < 0
    assert judgement.p_value == pytest.approx(2 / 252)
    three = judge("lower", [50.0] * 3, before=BASE[:3])
    assert three.interval == (-100, inf)


def test_no_change_is_tested_against_the_margin() -> None:
    """The p value is at most the level if and only if the interval is within the margin."""
    rng = random.Random(4)
    for _ in range(300):
        spread = rng.choice([0.5, 2.0, 4.0])
        before, after = ([100 + rng.gauss(0, spread) for _ in range(6)] for _ in range(2))
        judgement = judge("same", after, before=before)
        assert (judgement.verdict == "reproduced") == reaches(judgement.p_value, LEVEL)


families = st.sampled_from(["primary", "secondary"])
p_lists = st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=12)


@given(p_lists)
def test_primary_claims_are_those_of_holm(p_values: list[float]) -> None:
    level = family_level("primary", p_values, len(p_values))
    corrected = holm(p_values)
    for p_value, adjusted in zip(p_values, corrected, strict=True):
        if abs(adjusted - LEVEL) > 1e-6:
            assert reaches(p_value, level) == (adjusted < LEVEL)


@given(p_lists)
def test_secondary_claims_are_those_of_scipy(p_values: list[float]) -> None:
    level = family_level("secondary", p_values, len(p_values))
    corrected = stats.false_discovery_control(p_values)
    for p_value, adjusted in zip(p_values, corrected, strict=True):
        if abs(adjusted - LEVEL) > 1e-6:
            assert reaches(p_value, level) == (adjusted < LEVEL)


@given(families, p_lists, st.integers(min_value=0, max_value=30))
def test_a_larger_family_is_never_less_strict(
    family: Family, p_values: list[float], more: int
) -> None:
    size = len(p_values)
    assert family_level(family, p_values, size + more) <= family_level(family, p_values, size)


def test_levels_of_families() -> None:
    assert family_level("primary", [0.5] * 6, 6) == LEVEL / 6
    assert family_level("primary", [0.001, 0.009, 0.5], 3) == LEVEL / 2
    assert family_level("primary", [0.001], 6) == LEVEL / 6
    assert family_level("secondary", [0.5] * 10, 10) == LEVEL / 10
    assert family_level("secondary", [0.001, 0.009, 0.5, 0.5], 4) == LEVEL / 2
    assert family_level("secondary", [], 0) == LEVEL


@pytest.mark.parametrize(
    ("unit", "scale"),
    [("%", "linear"), ("s", "ratio"), ("Mbit/s", "ratio"), ("events", "count")],
)
def test_the_scale_of_a_unit(unit: str, scale: str) -> None:
    assert default_scale(unit) == default_scale(unit, [0, 3.0]) == scale
    assert default_scale(unit, [3.0, 0.25]) == ("linear" if unit == "%" else "ratio")
    assert default_scale(unit, [0.0, 0.25]) == default_scale(unit, [-1.0, 0.25]) == scale
