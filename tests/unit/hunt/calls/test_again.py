"""A trend of calls is confirmed by other seeds, each alone."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.again import Retrial, alone, finding_of, look_again
from numalab.hunt.calls.findings import quantity_of
from numalab.hunt.calls.trend import CallTrend
from numalab.hunt.case import Case
from numalab.hunt.confirm import FreshBoots
from numalab.hunt.finding import BootResult
from numalab.hunt.generate.families import draw_loads
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.suspects.suspect import Suspect
from numalab.hunt.workers import Boot, BudgetOverError, CaseWorkers

Calls = Callable[[str, int], int]  # on a kernel, with a seed
CASES, LOADS = 5, 10  # of the trend


@dataclass(frozen=True)
class FakeBench:
    """A bench of which only the name counts."""

    name: str

    def for_confirmation(self) -> "FakeBench":
        return self


@dataclass
class FakeWorkers:
    """Answers each load with a number of calls, and keeps the seeds."""

    calls: Calls
    seeds: list[int] = field(default_factory=list)

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        results = []
        for case, bench, seed in boots:
            self.seeds.append(seed)
            name = cast(FakeBench, bench).name
            findings = [
                quantity_of("move").finding(load, self.calls(name, seed), change)
                for load in range(len(case.loads))
                for change in ("more", "less")
            ]
            results.append(BootResult(tuple(findings), 1.0))
        return results


def trend_of() -> CallTrend:
    rng = random.Random(1)
    machine = draw_machine(rng)
    case, *more = (Case(machine, draw_loads(rng, machine, LOADS)) for _ in range(CASES))
    mine, theirs = (quantity_of("move").finding(4, count, "less") for count in (1, 9))
    clear = (Suspect(case, mine, theirs, 4.5), Suspect(case, replace(mine, load=5), theirs, 4.5))
    return CallTrend("move", "memory", "less", 4.5, 30, 40, (case, *more), clear)


@pytest.fixture(autouse=True)
def without_symbols(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numalab.hunt.confirm.for_properties", lambda bench, _: bench)


def fresh(crew: FakeWorkers) -> FreshBoots:
    mine, theirs = (cast(HuntBench, FakeBench(name)) for name in ("mine", "theirs"))
    return FreshBoots(cast(CaseWorkers, crew), mine, theirs, 1)


def looked(calls: Calls) -> tuple[Retrial, FakeWorkers]:
    crew = FakeWorkers(calls)
    return look_again(trend_of(), fresh(crew)), crew


def test_a_trend_that_other_seeds_show_is_a_finding() -> None:
    retrial, crew = looked(lambda kernel, seed: seed % 3 + (2 if kernel == "mine" else 8))
    assert retrial.confirms and len(set(crew.seeds)) == retrial.seeds == 2
    finding = finding_of(trend_of(), retrial)
    assert finding.text == (
        "calls of move(): 1, with the reference kernel 9; less in 30 of 40 loads (memory)"
        " (t = 4.5), and in 100 of 100 with 2 other seeds (t = 10.0, of boots 3.2)"
    )
    assert finding.violated and not replace(finding, value=finding.most).violated


def test_a_weak_trend_gets_more_seeds() -> None:
    rng = random.Random(3)
    retrial, crew = looked(lambda kernel, _: rng.randrange(20) + (4 if kernel == "theirs" else 0))
    assert len(set(crew.seeds)) == retrial.seeds > 2
    assert retrial.count == CASES * LOADS * retrial.seeds


def test_boots_that_differ_as_a_whole_confirm_nothing() -> None:
    rng = random.Random(4)

    @dataclass
    class Levels(FakeWorkers):
        """All loads of a boot call the function alike, few times or often."""

        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            results = []
            for case, _, _ in boots:
                finding = quantity_of("move").finding(0, rng.choice((10, 20)), "less")
                all_loads = (replace(finding, load=load) for load in range(len(case.loads)))
                results.append(BootResult(tuple(all_loads), 1.0))
            return results

    retrials = [look_again(trend_of(), fresh(Levels(lambda *_: 0))) for _ in range(400)]
    assert sum(retrial.strength >= 3.7 for retrial in retrials) > 4, "as single loads say"
    assert sum(retrial.confirms for retrial in retrials) <= 2


def test_a_seed_that_does_not_show_it_ends_the_attempt() -> None:
    rng = random.Random(2)
    retrial, crew = looked(lambda *_: rng.randrange(20))
    assert not retrial.confirms and len(set(crew.seeds)) == 1
    opposite, _ = looked(lambda kernel, _: 9 if kernel == "mine" else 2)
    assert opposite.strength < 0 and not opposite.confirms
    equal, _ = looked(lambda *_: 5)
    assert equal.strength == 0 and not equal.confirms


def test_the_case_of_a_trend_is_a_load_that_shows_it_alone() -> None:
    crew = FakeWorkers(lambda kernel, _: 9 if kernel == "mine" else 90)
    trend, retrial = trend_of(), Retrial(2, 4.0, 3.1, 30, 40)
    settled = alone(trend, retrial, fresh(crew), lambda: True)
    assert settled is not None
    case, finding, seeds = settled
    assert len(case.loads) == 1 and case.machine.cpu_count <= trend.clearest.case.machine.cpu_count
    assert set(seeds) <= {2, 3, 4} and finding.violated and finding.measured == 9
    assert finding.text.startswith(
        "calls of move(): 9, with the reference kernel 90; less in 30 of"
    )
    assert not quantity_of("move").finding(0, 90, "less").value > finding.most


def test_a_case_that_the_budget_ends_at_says_what_the_reference_kernel_does() -> None:
    @dataclass
    class Short(FakeWorkers):
        """There is time to find the load, and none to make it smaller."""

        calls_left: int = 2

        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            self.calls_left -= 1
            if self.calls_left < 0:
                raise BudgetOverError
            return super().boot(boots)

    crew = Short(lambda kernel, _: 9 if kernel == "mine" else 90)
    settled = alone(trend_of(), Retrial(2, 4.0, 3.1, 30, 40), fresh(crew), lambda: True)
    assert settled is not None and crew.calls_left < 0
    assert settled[1].text.startswith("calls of move(): 9, with the reference kernel 90; less in")


def test_a_trend_that_no_load_shows_alone_has_no_smaller_case() -> None:
    noisy = FakeWorkers(lambda kernel, seed: 40 if kernel == "mine" else 30 + 20 * (seed % 2))
    assert alone(trend_of(), Retrial(2, 4.0, 3.1, 30, 40), fresh(noisy), lambda: True) is None
