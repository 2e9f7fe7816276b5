"""Which findings of a round are tried again, in which order, and which of them are left."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import pytest

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.case import Case, machine_of
from numalab.hunt.compare.kernel_samples import KernelSamples
from numalab.hunt.compare.noise import NOISE, excess, least_ratio, noise_of
from numalab.hunt.compare.outcomes import outcome_of
from numalab.hunt.compare.trend import Compared, Trends, compared
from numalab.hunt.confirm import in_context
from numalab.hunt.finding import APART, BootResult, Finding
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.loads.load_text import parse_loads
from numalab.hunt.property import PROPERTIES
from numalab.hunt.suspects.screen import screen
from numalab.hunt.suspects.suspect import Suspect, at_once, chosen, suspects_of
from numalab.hunt.workers import Boot, CaseWorkers
from numalab.topology.topology import Topology

MINE, THEIRS = cast(HuntBench, "mine"), cast(HuntBench, "theirs")


def quota(value: float, load: int | None = 0) -> Finding:
    return Finding("quota", load, value, 2.0, "used", suspect=1.15, apart=least_ratio("quota"))


def switches(value: float, load: int = 0) -> Finding:
    return Finding(
        "more-switches", load, value, 1e12, "", True, suspect=0.0, apart=1.5, differential=True
    )


def affinity(value: float, load: int = 0) -> Finding:
    return Finding("affinity", load, value, 0.0, "ran elsewhere")


def result(*findings: Finding) -> BootResult:
    return BootResult(findings, 1.0)


@pytest.fixture
def case(drawn_case: Case) -> Case:
    return drawn_case.only(*drawn_case.loads[:1] * 12)


def test_the_excess_is_in_units_of_the_noise() -> None:
    assert excess(switches(150), switches(100)) == pytest.approx(1.0)
    assert excess(switches(100), switches(225)) == pytest.approx(-2.0)
    assert excess(quota(1.5), quota(1.0)) > 2, "a quota has little noise"
    assert excess(affinity(0.0), affinity(0.0)) == 0
    assert excess(affinity(5.0), affinity(0.0)) == 10


def test_the_noise_is_that_of_a_property_or_large() -> None:
    assert set(NOISE) <= set(PROPERTIES.all())
    assert noise_of(Finding("of-a-plug-in", 0, 1.0, 8.0, "", suspect=4.0)).floor == 2.0
    assert noise_of(Finding("of-a-plug-in", 0, 1.0, 8.0, "")).ratio == 3.0
    assert least_ratio("lost-time") == APART > least_ratio("quota") > 1


def test_what_equal_kernels_differ_by_is_not_suspected(case: Case) -> None:
    mine = [quota(1.5), switches(140, 1), switches(400, 2), affinity(0.0, 3), affinity(2.0, 4)]
    theirs = result(
        quota(1.0), switches(100, 1), switches(100, 2), affinity(0.0, 3), affinity(0.0, 4)
    )
    suspects = suspects_of(case, [item for item in mine if item.suspected], theirs)
    assert [item.finding.load for item in suspects] == [0, 2, 4]
    assert [item.is_sure for item in suspects] == [False, False, True]
    assert suspects_of(case, [quota(1.5, 7)], theirs) == [], "not judged on the reference kernel"
    (alone,) = suspects_of(case, [quota(3.0)], None)
    assert alone.score == 1.5


def suspect(case: Case, finding: Finding, score: float) -> Suspect:
    return Suspect(case, finding, None, score)


def test_invariants_and_whole_boots_come_first(case: Case) -> None:
    items = [
        suspect(case, quota(1.5), 1.0),
        suspect(case, affinity(1.0, 1), 10.0),
        suspect(case, affinity(1.0, 2), 10.0),
        suspect(case, quota(1.5, None), 1.0),
    ]
    groups = at_once(items, everything=False)
    assert [[item.finding.load for item in group] for group in groups] == [[None], [1, 2]]
    assert len(at_once(items, everything=True)) == 3
    doubtful, clear = suspect(case, quota(1.9, 3), 4.9), suspect(case, quota(1.9, 4), 5.1)
    assert at_once([doubtful, clear], everything=False) == [[clear]], "far above the noise"
    many = [suspect(case, affinity(1.0, n), float(n)) for n in range(8)]
    ((first, *later),) = at_once(many, everything=False)
    assert (first.finding.load, [item.finding.load for item in later]) == (7, [6])
    weaker = suspect(case, replace(affinity(1.0, 9), prop="task-settings"), 0.5)
    ((first, second, *later),) = at_once([*many, weaker], everything=False)
    assert (first.finding.load, second) == (7, weaker), "the clearest of each property first"
    assert [item.finding.load for item in later] == [6], "two loads of an invariant are enough"


def test_the_clearest_are_chosen_and_each_once(case: Case) -> None:
    other = case.only(*case.loads[:7])
    items = [suspect(case, switches(200, n), 1.0 + n / 10) for n in range(12)]
    items += [suspect(other, quota(1.5, n), 2.0 + n) for n in range(7)]
    tried: set[tuple[str, Finding]] = set()
    groups = chosen(items, Trends(), (), {}, tried)
    loads = [[item.finding.load for item in group] for group in groups]
    assert loads == [[6, 5, 4, 3, 2, 1], [11, 10, 9, 8, 7, 6]], "six loads of a machine"
    again = chosen(items, Trends(), (), {}, tried)
    assert [[item.finding.load for item in group] for group in again] == [[0], [5, 4, 3, 2, 1, 0]]
    worn = chosen(items, Trends(), (), {"quota": 40}, set())
    assert worn[0][0].finding.prop == "more-switches", "no quota was confirmed so far"


def test_a_suspect_is_clearer_if_other_loads_go_the_same_way(case: Case) -> None:
    items = [suspect(case, quota(1.5, 0), 2.0), suspect(case, switches(200, 1), 1.2)]
    assert chosen(items, Trends(), (), {}, set())[0][0].finding.prop == "quota"
    trends = with_trend(case, [1.2] * 9)
    assert trends.hunch(case, switches(200, 1)) > 2 > trends.hunch(case, quota(1.5, 0))
    assert chosen(items, trends, (), {}, set())[0][0].finding.prop == "more-switches"


def test_a_suspect_is_less_clear_if_other_loads_differ_as_much_the_other_way(case: Case) -> None:
    items = [suspect(case, quota(1.5, 0), 1.2), suspect(case, switches(200, 1), 2.0)]
    assert chosen(items, Trends(), (), {}, set())[0][0].finding.prop == "more-switches"
    trends = with_trend(case, [1.6, 0.5, 0.4])
    assert trends.by_chance("more-switches") == pytest.approx(excess(switches(250), switches(100)))
    assert trends.by_chance("quota") == 1
    assert chosen(items, trends, (), {}, set())[0][0].finding.prop == "quota"


def machine_with(line: str) -> Topology:
    """Return a machine of two nodes with a line of its file."""
    lines = ['summary = "s"', "nodes = 2", line, "memory_mib = [512, 256]", "links = [[0, 1, 20]]"]
    machine = machine_of("\n".join([*lines, ""]))
    assert machine is not None
    return machine


def with_trend(case: Case, ratios: Sequence[float]) -> Trends:
    trends = Trends()
    for place, ratio in enumerate(ratios):
        mine, theirs = switches(100 * ratio, place % 8), switches(100, place % 8)
        for pair in compared(case, result(mine), result(theirs)):
            trends.add(pair)
    return trends


def test_small_differences_in_most_loads_are_a_trend(case: Case) -> None:
    trends = with_trend(case, [1.2] * 24)
    assert trends.strength("more-switches") == pytest.approx(24**0.5)
    assert len(trends.strong({"more-switches"})) == 6, "the clearest loads"
    assert not trends.strong({"quota"})
    (group,) = chosen([], trends, {"more-switches"}, {}, set())
    assert 1 <= len(group) <= 3
    assert all(item.trend for item in group)
    assert not chosen([], trends, {"more-switches"}, {"more-switches": 5}, set())
    assert with_trend(case, [1.03] * 100).strength("more-switches") == 0, "too little"
    assert with_trend(case, [1.2] * 11).strength("more-switches") == 0, "too few loads"
    assert not with_trend(case, [30.0] * 2 + [0.9, 1.1] * 20).strong({"more-switches"})


def test_a_trend_in_one_kind_of_loads_is_not_lost_among_the_others(case: Case) -> None:
    forks = case.only(*parse_loads("time ms=900;forker n=1 cpus=0|time ms=900;sleeper n=1 cpus=0"))
    rng = random.Random(5)
    trends = Trends()
    for number in range(240):
        mine = 130 if number % 8 == 0 else 100 * rng.lognormvariate(0, 0.3)
        load = int(number % 8 != 0)
        for pair in compared(forks, result(switches(mine, load)), result(switches(100, load))):
            trends.add(pair)
    assert trends.strength("more-switches") < 3
    assert trends.strength("more-switches", "forker") == pytest.approx(30**0.5)
    assert trends.strong({"more-switches"})
    hunches = trends.hunches({"more-switches"})
    assert hunches["forker"] > 3 > hunches["sleeper"]
    assert not trends.hunches({"quota"})


def test_a_trend_on_one_kind_of_machines_is_found(case: Case) -> None:
    rng = random.Random(7)
    smt = case.only(*case.loads)
    smt = replace(smt, machine=draw_machine(rng, smt=True))
    plain = replace(smt, machine=machine_with("cpus = [2, 2]"))
    trends = Trends()
    for number in range(240):
        machine = smt if number % 8 == 0 else plain
        mine = 130 if machine is smt else 100 * rng.lognormvariate(0, 0.3)
        for pair in compared(machine, result(switches(mine)), result(switches(100))):
            trends.add(pair)
    assert trends.strength("more-switches", "SMT") == pytest.approx(30**0.5)
    assert trends.strength("more-switches") < 3 < trends.hunches({"more-switches"})["SMT"]


def test_equal_kernels_have_no_trend(case: Case) -> None:
    rng = random.Random(3)
    hunts = [with_trend(case, [rng.lognormvariate(0, 0.3) for _ in range(100)]) for _ in range(300)]
    assert sum(bool(trends.strong({"more-switches"})) for trends in hunts) <= 1


class Boots:
    """Answers with values by kernel and load, and counts the boots."""

    def __init__(self, value: Callable[[HuntBench, int], float]) -> None:
        self.value = value
        self.booted: list[tuple[HuntBench, int]] = []

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        self.booted += [(bench, len(case.loads)) for case, bench, _ in boots]
        return [
            result(*(switches(self.value(bench, n), n) for n in range(len(case.loads))))
            for case, bench, _ in boots
        ]


def of_loads(case: Case, *loads: int) -> list[Suspect]:
    return [Suspect(case, switches(300, n), switches(100, n), 2.7) for n in loads]


def test_the_reference_kernel_boots_only_for_what_the_kernel_shows_again(case: Case) -> None:
    crew = Boots(lambda bench, n: 280.0 if bench == MINE and n in (2, 4) else 100.0)
    workers = cast(CaseWorkers, crew)
    screened = screen(workers, MINE, THEIRS, 1, [of_loads(case, 0, 5), of_loads(case, 3)])
    assert [[item.finding.load for item in group] for group in screened.left] == [[5]]
    assert crew.booted == [(MINE, 3), (MINE, 2), (THEIRS, 2)], "with the load before each"
    assert {item.finding.load for item in screened.dropped} == {0, 3}
    assert all(item.samples == 1 and not item.confirmed for item in screened.dropped)


def test_what_the_reference_kernel_shows_as_well_is_dropped(case: Case) -> None:
    assert in_context(case, {0, 1, 5}, 2) == [0, 1, 4, 5, 0, 1, 4, 5]
    crew = Boots(lambda bench, n: 280.0)
    screened = screen(cast(CaseWorkers, crew), MINE, THEIRS, 1, [of_loads(case, 0)])
    assert not screened.left
    assert [item.reference for item in screened.dropped] == [280.0]


def test_a_trend_has_only_to_go_the_same_way(case: Case) -> None:
    crew = Boots(lambda bench, n: 112.0 if bench == MINE else 100.0)
    (item,) = of_loads(case, 0)
    trend = replace(item, trend=True)
    assert screen(cast(CaseWorkers, crew), MINE, THEIRS, 1, [[trend]]).left == ((trend,),)
    assert not screen(cast(CaseWorkers, crew), MINE, THEIRS, 1, [[item]]).left


def test_only_findings_of_both_kernels_are_compared(case: Case) -> None:
    pairs = list(compared(case, result(quota(1.5), switches(3, 1)), result(quota(1.0))))
    assert [(type(pair), pair.finding.prop) for pair in pairs] == [(Compared, "quota")]


def test_a_difference_that_was_not_replicated_is_no_chance() -> None:
    mine, theirs = [switches(300.0)] * 9, [switches(100.0)] * 9
    samples = KernelSamples(True, list(mine), list(theirs))
    other = affinity(5.0)
    assert outcome_of(mine[0], samples, [other]).outcome.startswith("differs, not replicated: mean")
    assert outcome_of(mine[0], samples, []).outcome.startswith("not confirmed: mean")
    assert outcome_of(mine[0], samples, [mine[0]]).outcome.startswith("confirmed: mean")
    alike = KernelSamples(True, list(theirs), list(theirs))
    assert outcome_of(theirs[0], alike, [other]).outcome.startswith("not confirmed: mean")
