"""What counts as found: in every fresh boot, in none of a rival's, and not weak without one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench
from numalab.hunt.finding import Examined, Finding
from numalab.hunt.hunting import Aim, Hunter
from numalab.hunt.workers import Examiners

PROP = "reachability"
MINE, THEIRS = cast(HuntBench, "mine"), cast(HuntBench, "theirs")
Shown = Callable[[HuntBench, int], tuple[float, bool]]


@dataclass
class FakeExaminers:
    """Answers from a rule, and keeps which boots were asked for."""

    shown: Shown
    booted: list[tuple[HuntBench, int]] = field(default_factory=list)

    def examine(self, cases: Sequence[Case], bench: HuntBench, seed: int) -> list[Examined]:
        self.booted += [(bench, seed) for _ in cases]
        value, weak = self.shown(bench, seed)
        return [
            Examined(
                tuple(Finding(PROP, n, value, 0.5, "idle", weak) for n in range(len(case.loads))),
                1.0,
            )
            for case in cases
        ]


def found(case: Case, shown: Shown, *, rival: HuntBench | None = None) -> int:
    """Return how many violations a hunt over one case found."""
    crew = FakeExaminers(shown)
    aim = Aim(seed=1, properties=frozenset({PROP}), seconds=60)
    hunter = Hunter(aim, MINE, cast(Examiners, crew), lambda _: None, rival)
    hunter._take(case, crew.examine([case], MINE, 1)[0])
    return len(hunter.hunt.found)


@pytest.fixture
def case(drawn_case: Case) -> Case:
    return drawn_case.only(drawn_case.loads[0])


def test_a_violation_is_found_where_every_boot_shows_it(case: Case) -> None:
    assert found(case, lambda bench, seed: (1.0, False)) == 1
    assert found(case, lambda bench, seed: (1.0 if seed < 3 else 0.0, False)) == 0


def test_what_a_rival_shows_in_any_boot_does_not_count(case: Case) -> None:
    assert found(case, lambda bench, seed: (float(bench == MINE), False), rival=THEIRS) == 1
    assert found(case, lambda bench, seed: (float(bench == MINE or seed == 3), False),
                 rival=THEIRS) == 0  # fmt: skip


def test_a_weak_one_counts_only_beside_a_rival(case: Case) -> None:
    assert found(case, lambda bench, seed: (1.0, True)) == 0
    assert found(case, lambda bench, seed: (float(bench == MINE), True), rival=THEIRS) == 1


def test_what_a_rival_was_not_judged_for_does_not_count(case: Case) -> None:
    class NotJudged(FakeExaminers):
        def examine(self, cases: Sequence[Case], bench: HuntBench, seed: int) -> list[Examined]:
            if bench == THEIRS:
                return [Examined((), 1.0, "no QEMU") for _ in cases]
            return super().examine(cases, bench, seed)

    crew = NotJudged(lambda bench, seed: (1.0, False))
    aim = Aim(seed=1, properties=frozenset({PROP}), seconds=60)
    hunter = Hunter(aim, MINE, cast(Examiners, crew), lambda _: None, THEIRS)
    hunter._take(case, crew.examine([case], MINE, 1)[0])
    assert not hunter.hunt.found
