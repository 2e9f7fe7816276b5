"""What many loads show together and none for sure."""

from collections.abc import Sequence
from typing import cast

import pytest

from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench
from numalab.hunt.finding import Examined, Finding
from numalab.hunt.generate.cases import draw_alike
from numalab.hunt.hunting import Aim, Hunter
from numalab.hunt.load import parse_loads
from numalab.hunt.pursuit.pooled import Pairs, Pooled, Question, answer
from numalab.hunt.workers import Boot, Examiners

ASKED = Question("ping-pong", "hog")
(HOG,) = parse_loads("time ms=1000;hog n=2 cpus=0-3")
MINE, THEIRS = cast(HuntBench, "mine"), cast(HuntBench, "theirs")


def pairs(worse: int, better: int, alike: int = 0, *, much: float = 3.0) -> Pairs:
    mine = [much] * worse + [1.0] * better + [1.0] * alike
    theirs = [1.0] * worse + [1.4] * better + [1.1] * alike
    return Pairs(mine, theirs)


def boot(values: Sequence[float], prop: str = "ping-pong", most: float = 6.0) -> Examined:
    findings = [
        Finding(prop, n, value, most, "moved", False, 1.0) for n, value in enumerate(values)
    ]
    return Examined((*findings, Finding("domains", None, 0.0, 0.0, "as predicted")), 1.0)


def test_chance_is_that_of_a_coin() -> None:
    assert pairs(5, 0, alike=9).chance == pytest.approx(1 / 32)
    assert pairs(0, 0, alike=9).chance == 1.0
    assert pairs(4, 4).chance > 0.5


def test_pairs_that_are_near_each_other_tell_nothing() -> None:
    seen = Pairs([1.29, 1.31, 0.0005], [1.0, 1.0, 0.0])
    assert (seen.worse, seen.better) == (1, 0)


def test_an_answer_needs_a_low_chance_and_means_that_are_apart() -> None:
    found = answer(ASKED, pairs(27, 6, 15), 4.5)
    assert found is not None
    assert (found.loads, found.worse, found.better, found.minutes) == (48, 27, 6, 4.5)
    assert "worse in 27 of 48 loads of the kind 'hog'" in found.text
    assert answer(ASKED, pairs(18, 5), 4.5) is None, "one in 200"
    assert answer(ASKED, pairs(27, 6, 15, much=1.4), 4.5) is None, "means 1.2 apart"


def test_pairs_are_put_together_by_property_and_kind() -> None:
    (other,) = parse_loads("time ms=1000;sleeper n=1 cpus=0")
    pooled = Pooled()
    pooled.take([HOG, other, HOG], boot([3.0, 4.0, 5.0]), boot([1.0, 2.0, 3.0]))
    pooled.take([HOG], boot([1.0], "affinity", most=0.0), boot([0.0], "affinity", most=0.0))
    assert pooled.pairs == {
        ASKED: Pairs([3.0, 5.0], [1.0, 3.0]),
        Question("ping-pong", "sleeper"): Pairs([4.0], [2.0]),
    }, "a promise is not a matter of how much, and a whole boot has no kind"


def test_what_one_boot_did_not_judge_is_no_pair() -> None:
    pooled = Pooled()
    pooled.take([HOG, HOG], boot([3.0, 3.0]), boot([1.0]))
    pooled.take([HOG], Examined((), 1.0, "no host"), boot([1.0]))
    assert pooled.pairs == {ASKED: Pairs([3.0], [1.0])}


def test_each_question_is_asked_once_and_the_likeliest_first() -> None:
    likelier = Question("wandering", "hog")
    pooled = Pooled(
        {ASKED: pairs(9, 0), likelier: pairs(12, 0), Question("storms", "x"): pairs(5, 5)}
    )
    wanted = frozenset({"ping-pong", "wandering", "storms"})
    assert pooled.next_question(frozenset({"ping-pong"})) == ASKED
    assert pooled.next_question(wanted) == likelier
    assert pooled.next_question(wanted) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("time ms=1000;hog n=2 cpus=0-3", "hog"),
        ("time ms=1000;hog n=2 start=0 cpus=0-3;sleeper n=1 cpus=0", "hog elsewhere + sleeper"),
        ("time ms=1000;memory n=2 cpus=0 later=1 threads=1", "memory threads later"),
        (
            "time ms=1000;sleeper n=2 fifo=5 cpus=0;cpuset from=0 to=1 at=4",
            "sleeper real-time + cpuset",
        ),
    ],
)
def test_the_kind_of_a_load_is_what_others_share(text: str, kind: str) -> None:
    (load,) = parse_loads(text)
    assert load.kind == kind


def test_alike_cases_have_that_kind_only_and_are_the_same_each_time() -> None:
    cases = draw_alike(1, "hog", 2, 4)
    assert [len(case.loads) for case in cases] == [4, 4]
    assert {load.kind for case in cases for load in case.loads} == {"hog"}
    assert cases == draw_alike(1, "hog", 2, 4)
    assert not draw_alike(1, "nothing of the kind", 1, 4)


class Tending:
    """A kernel on which hogs move three times as often as on its rival, now and then."""

    count = 1
    asked = 0

    def __init__(self, mine: float) -> None:
        self.mine = mine
        self.cases: set[Case] = set()

    def examine(self, boots: Sequence[Boot]) -> list[Examined]:
        self.cases |= {case for case, _, _ in boots}
        return [
            boot([self.mine if bench == MINE else 1.0 for _ in case.loads])
            for case, bench, _ in boots
        ]


@pytest.mark.parametrize(("mine", "tendencies"), [(3.0, 1), (1.0, 0)])
def test_new_machines_decide(mine: float, tendencies: int) -> None:
    crew, told = Tending(mine), list[str]()
    aim = Aim(seed=1, properties=frozenset({"ping-pong"}), seconds=600)
    hunter = Hunter(aim, MINE, cast(Examiners, crew), told.append, THEIRS)
    hunter.pooled.pairs[ASKED] = pairs(12, 0)
    hunter._ask_many()
    hunter._ask_many()
    assert len(hunter.hunt.tendencies) == tendencies
    assert len(crew.cases) == 6, "asked once"
    assert told[-1].startswith("confirmed" if tendencies else "not confirmed")
