"""Decisions by fresh runs: their error rate, and what they find."""

import random

import pytest

from numalab.statistics.sequential import (
    LEVEL,
    LOOKS,
    FreshSample,
    decide,
    share_of_look,
)


def test_parts_of_the_looks_are_the_level() -> None:
    assert sum(share_of_look(look) for look in range(len(LOOKS))) == pytest.approx(LEVEL)


def test_first_look_can_show_a_clear_difference_among_twelve_candidates() -> None:
    clear = FreshSample(list(range(LOOKS[0])), [100 + n for n in range(LOOKS[0])])
    vague = FreshSample([1, 2, 3, 4, 5, 6, 7, 8], [8, 7, 6, 5, 4, 3, 2, 1])
    first, *rest = decide([clear, *[vague] * 11], share_of_look(0))
    assert first.shown
    assert not first.open
    assert not any(decision.shown or decision.open for decision in rest)


def test_dropped_candidates_still_count() -> None:
    sample = FreshSample([1, 2, 3, 4, 5, 6, 7, 8], [6, 7, 8, 9, 10, 11, 12, 13])
    alone, among = (decide([sample], 0.01, family=family)[0] for family in (1, 12))
    assert among.corrected == pytest.approx(min(1.0, 12 * alone.p_value))
    assert alone.shown
    assert not among.shown
    assert among.open


def test_equal_kernels_are_rarely_called_different() -> None:
    """Of 3,000 experiments without any difference, at most twice the level shows one."""
    rng = random.Random(1)
    wrong = sum(_experiment(rng) for _ in range(3000))
    assert wrong <= 2 * LEVEL * 3000


def _experiment(rng: random.Random) -> bool:
    """Return whether four candidates without a difference give one that is shown.

    Half of them are in two clusters, which a t test with few runs mistakes for a difference.
    """

    def draw(count: int, clustered: bool) -> list[float]:
        if clustered:
            return [rng.choice((0.0, 50.0)) + rng.random() / 100 for _ in range(count)]
        return [rng.gauss(10, 3) for _ in range(count)]

    values = [(draw(LOOKS[-1], n < 2), draw(LOOKS[-1], n < 2)) for n in range(4)]
    remaining = values
    for look, count in enumerate(LOOKS):
        samples = [FreshSample(before[:count], after[:count]) for before, after in remaining]
        decisions = decide(samples, share_of_look(look), family=4)
        if any(decision.shown for decision in decisions):
            return True
        remaining = [
            pair for pair, decision in zip(remaining, decisions, strict=True) if decision.open
        ]
    return False
