"""Cases depend on the seed and on what earlier boots executed, on nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from numalab.campaign.build import Builds
from numalab.guest.kvm import Choice
from numalab.hunt.boot_case import HuntBench
from numalab.hunt.case import Case
from numalab.hunt.direction.direction import HuntDirection
from numalab.hunt.direction.hints import Bias
from numalab.hunt.finding import BootResult
from numalab.hunt.generate.cases import draw_case
from numalab.hunt.hunting import Aim, Hunter
from numalab.hunt.workers import Boot, CaseWorkers
from numalab.kernel.kernel_specs import KernelSpec
from numalab.reach.line_table import LineTable
from numalab.reach.model import RunReach
from unit.hunt.direction.counted import boot, line

NONE = Bias({}, {})
COMMON, RARE = boot(line(5, "added", 3, (3, 0))), boot(line(5, "added", 3, (3, 1)))


def direction(bias: Bias = NONE, *, steers: bool = True) -> HuntDirection:
    return HuntDirection(cast(LineTable, None), bias, steers)


def drawn(
    guide: HuntDirection, count: int, reaches: Sequence[RunReach], seed: int = 1
) -> list[Case]:
    cases = []
    for number in range(count):
        cases.append(guide.draw(seed, number, timed=False, near=(), most=4))
        guide.take(number, cases[-1], reaches[number % len(reaches)])
    return cases


def test_equal_results_give_equal_cases() -> None:
    first, second = (drawn(direction(), 16, [COMMON, RARE]) for _ in range(2))
    assert first == second
    assert first != drawn(direction(), 16, [COMMON, RARE], seed=2)
    assert first != drawn(direction(), 16, [RARE, COMMON]), "results decide"


def test_some_machines_are_varied_and_some_loads_run_on_other_machines() -> None:
    cases = drawn(direction(), 40, [COMMON, RARE])
    machines = [case.machine for case in cases]
    plain = [draw_case(1, number, most=4) for number in range(40)]
    assert len(set(machines)) < 40
    assert 4 < sum(case in plain for case in cases) < 28
    assert all(1 <= len(case.loads) <= 4 for case in cases)


def test_without_steering_cases_are_those_of_an_undirected_hunt() -> None:
    guide = direction(Bias({"SMT": 9.0}, {}), steers=False)
    assert drawn(guide, 12, [COMMON, RARE]) == [draw_case(1, n, most=4) for n in range(12)]
    assert guide.coverage is not None and guide.coverage.boots == 12


def test_machines_and_loads_follow_the_hints() -> None:
    def shares(bias: Bias) -> tuple[float, float]:
        cases = drawn(direction(bias), 60, [COMMON])
        smt = sum(case.machine.packaging.threads > 1 for case in cases)
        loads = [load for case in cases for load in case.loads]
        return smt / 60, sum(bool(load.hotplug) for load in loads) / len(loads)

    hinted = shares(Bias({"SMT": 9.0}, {"a CPU that goes and comes back": 9.0}))
    assert all(more > 1.2 * usual for more, usual in zip(hinted, shares(NONE), strict=True))


def test_loads_that_run_changed_lines_are_drawn_more_often() -> None:
    def share(*, counted: bool) -> float:
        guide, loads = direction(), list[bool]()
        for number in range(60):
            case = guide.draw(1, number, timed=False, near=(), most=12)
            memory = [any(part.kind == "memory" for part in load.parts) for load in case.loads]
            calls = {n: {"changed line 0": 3} if ran else {} for n, ran in enumerate(memory)}
            guide.take(number, case, COMMON, calls if counted else {})
            loads += memory
        return sum(loads) / len(loads)

    assert share(counted=True) > 1.5 * share(counted=False)


def test_machines_and_loads_that_differ_are_drawn_more_often() -> None:
    def shares(hunches: dict[str, float]) -> tuple[float, float]:
        guide = direction()
        guide.hunches = (hunches,)
        cases = drawn(guide, 60, [COMMON])
        smt = sum(case.machine.packaging.threads > 1 for case in cases)
        loads = [load for case in cases for load in case.loads]
        return smt / 60, sum(bool(load.groups) for load in loads) / len(loads)

    differing = shares({"SMT": 4.0, "cgroups": 4.0})
    usual = shares({"SMT": 1.0, "cgroups": 1.0})
    assert all(more > 1.2 * less for more, less in zip(differing, usual, strict=True))


def test_hints_weigh_most_until_a_changed_line_runs() -> None:
    def smt(reach: RunReach) -> int:
        cases = drawn(direction(Bias({"SMT": 2.0}, {})), 60, [reach])
        return sum(case.machine.packaging.threads > 1 for case in cases)

    assert smt(boot(line(5, "added", 0))) > smt(boot(line(5, "added", 1)))


def test_a_case_of_mode_timed_is_drawn_as_without_direction() -> None:
    guide = direction()
    guide.take(0, draw_case(1, 0), RARE)
    cases = [guide.draw(1, n, timed=True, near=(), most=0) for n in range(6)]
    assert cases == [draw_case(1, n, timed=True) for n in range(6)]


def test_a_boot_without_counts_adds_nothing() -> None:
    guide = direction()
    guide.take(0, draw_case(1, 0), None)
    assert guide.corpus.cases == []
    assert guide.coverage is None


@dataclass
class CountingWorkers:
    """Boots whose counts depend on the case alone; every fifth fails, as on a busy host."""

    count: int
    requested: int = 0
    cases: list[Case] = field(default_factory=list)

    def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
        results = []
        for case, bench, _ in boots:
            assert bench.reach is not None
            self.cases.append(case)
            digit = int(case.key(), 16) % 5
            reach = boot(line(5, "added", 3, (3, digit == 1), (1, digit == 2)), line(6))
            results.append(BootResult((), 1.0, "no space" if digit == 4 else "", reach=reach))
        return results


@pytest.mark.parametrize("count", [2, 3, 8])
def test_any_number_of_workers_boots_the_same_cases(count: int) -> None:
    def booted(workers: int) -> list[Case]:
        crew = CountingWorkers(workers)
        choice = Choice("icount", "host", "asked for")
        bench = HuntBench(cast(KernelSpec, None), cast(Builds, None), choice)
        aim = Aim(seed=1, properties=frozenset(), seconds=600, machines=24, loads=3)
        table = cast(LineTable, "table")
        guide = HuntDirection(table, NONE)
        Hunter(aim, bench, cast(CaseWorkers, crew), lambda _: None, None, guide).run()
        assert guide.coverage is not None
        assert guide.coverage.boots < len(crew.cases) == 24
        return crew.cases

    assert booted(count) == booted(1)
