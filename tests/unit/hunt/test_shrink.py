"""Shrinking: down to what a rule needs, deterministically, and never to what does not violate."""

from collections.abc import Sequence

import pytest

from numalab.hunt.case import Case, machine_of
from numalab.hunt.generate.draw import everywhere, is_admitted
from numalab.hunt.loads.load_text import parse_loads, render_load
from numalab.hunt.simplify.implausibility import implausibility
from numalab.hunt.simplify.shrink import shrink
from numalab.topology.topology import CpuShape


def big() -> Case:
    machine = machine_of(
        'summary = "x"\nnodes = 6\ncpus = 2\nmemory_mib = [512,256,256,256,256,256]\n'
        '[shape]\nkind = "ring"\ndistances = [10, 16, 21, 28]\n'
    )
    assert machine is not None
    return Case(machine, parse_loads(
        "time ms=1500;hog n=8 start=2-3 cpus=2-3,6-7;sleeper n=3 cpus=0-11"
    ))  # fmt: skip


def test_shrinks_to_what_is_needed() -> None:
    """The rule: two hogs or more on CPUs of two nodes, on a machine of three nodes or more."""
    tried: list[Case] = []

    def violates(cases: Sequence[Case]) -> list[list[bool]]:
        tried.extend(cases)
        return [
            [
                len(case.machine.nodes) >= 3
                and any(
                    part.kind == "hog"
                    and part.count >= 2
                    and len({case.machine.node_of_cpu(cpu) for cpu in part.cpus}) >= 2
                    for part in load.parts
                )
                for load in case.loads
            ]
            for case in cases
        ]

    small = shrink(big(), violates, lambda: True).case
    assert (len(small.machine.nodes), small.machine.cpu_count) == (3, 3)
    (load,) = small.loads
    assert load.tasks == 2
    assert load.ms == 750 or load.ms < 750
    assert violates([small]) == [[True]]
    assert implausibility(small) < implausibility(big())
    first = list(tried)
    tried.clear()
    assert shrink(big(), violates, lambda: True).case == small
    assert tried[: len(first) - 1] == first[:-1]


def test_what_nothing_smaller_violates_stays() -> None:
    case = big()
    only = shrink(case, lambda cases: [[False] * len(c.loads) for c in cases], lambda: True)
    assert only.case == case
    assert only.tried > 5


def test_stops_when_time_is_up() -> None:
    shrunk = shrink(big(), lambda cases: [[True] * len(c.loads) for c in cases], lambda: False)
    assert shrunk.case == big()
    assert shrunk.tried == 0


def test_what_violates_by_chance_is_no_step_on_the_way() -> None:
    """With two hogs it violates in few boots and not in all that are wanted of the last case."""

    def hogs(case: Case) -> int:
        return sum(part.count for load in case.loads for part in load.parts if part.kind == "hog")

    def violates(cases: Sequence[Case]) -> list[list[bool]]:
        return [[hogs(case.only(load)) >= 2 for load in case.loads] for case in cases]

    small = shrink(big(), violates, lambda: True, lambda case: hogs(case) >= 3).case
    assert (hogs(small), small.loads[0].tasks) == (3, 3)
    assert hogs(shrink(big(), violates, lambda: True).case) == 2


def test_policies_groups_wakees_and_changes_go_where_they_do_not_matter() -> None:
    (load,) = parse_loads(
        "time ms=1500;group name=a quota=50;waker n=1 cpus=0-3 burst=2 wakee=1 over=futex group=a;"
        "hog n=2 cpus=0-3 policy=batch;change at=300 part=1 nice=5"
    )
    machine = machine_of(
        'summary = "s"\nnodes = 2\ncpus = 2\nmemory_mib = 256\n'
        '[shape]\nkind = "full"\ndistances = [10, 20]\n'
    )
    assert machine is not None

    def violates(cases: Sequence[Case]) -> list[list[bool]]:
        return [[any(p.kind == "hog" for p in load.parts) for load in c.loads] for c in cases]

    small = shrink(Case(machine, (load,)), violates, lambda: True).case
    assert render_load(small.loads[0]).split(";")[1:] == ["hog n=1 cpus=0"]


def test_every_smaller_load_is_one_that_the_driver_reads() -> None:
    machine = big().machine
    texts = (
        "time ms=900;group name=a;group name=b;hog n=2 cpus=0-3 group=a"
        ";change at=100 times=3 every=50 part=0 into=b",
        "time ms=900;group name=a cpus=1-2 partition=1;hog n=2 cpus=0-3 group=a;hog n=2 cpus=0-3",
    )
    for text in texts:
        (load,) = parse_loads(text)
        tried: list[Case] = []

        def violates(cases: Sequence[Case], tried: list[Case] = tried) -> list[list[bool]]:
            tried.extend(cases)
            return [[False] * len(case.loads) for case in cases]

        shrink(Case(machine, (load,)), violates, lambda: True)
        assert tried
        for case in tried:
            for smaller in case.loads:
                assert parse_loads(render_load(smaller)) == (smaller,)


def test_dies_stay_where_the_rule_needs_them_and_go_where_not() -> None:
    machine = machine_of(
        'summary = "x"\nnodes = 2\ncpus = 8\nmemory_mib = [512,256]\n'
        "[cpu]\nsockets = 2\ndies = 2\nthreads = 2\n"
        '[shape]\nkind = "ring"\ndistances = [10, 16]\n'
    )
    assert machine is not None
    case = Case(machine, parse_loads("time ms=1000;hog n=2 cpus=0-3"))

    def small(dies: int) -> CpuShape:
        def violates(cases: Sequence[Case]) -> list[list[bool]]:
            return [[c.machine.packaging.dies >= dies] * len(c.loads) for c in cases]

        return shrink(case, violates, lambda: True).case.machine.packaging

    assert small(2) == CpuShape(1, 2, 1, 1)
    assert small(1).dies == 1


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("hog n=4 cpus=0-3 policy=deadline runtime=4000 period=10000", 4),
        ("hog n=4 cpus=0-3;change at=90 part=0 policy=deadline runtime=4000 period=10000", 4),
        ("hog n=2 cpus=0-3 policy=deadline runtime=4000 period=10000;hog n=2 cpus=0-3", 2),
    ],
)
def test_deadline_tasks_stay_admitted(text: str, least: int) -> None:
    """On all CPUs of the machine, and on enough of them."""
    machine = machine_of(
        'summary = "s"\nnodes = 2\ncpus = 2\nmemory_mib = 256\n'
        '[shape]\nkind = "full"\ndistances = [10, 20]\n'
    )
    assert machine is not None
    tasks = 4 if "n=4" in text else 2

    def violates(cases: Sequence[Case]) -> list[list[bool]]:
        assert all(is_admitted(load) for case in cases for load in case.loads)
        for case in cases:
            for load in case.loads:
                policies = {(c.part, c.policy) for c in load.changes}
                policies |= {(place, part.policy) for place, part in enumerate(load.parts)}
                for place, policy in policies:
                    if place is not None and policy == "deadline":
                        assert load.parts[place].cpus == everywhere(case.machine)
        return [
            ["deadline" in c.only(load).text and load.parts[0].count == tasks for load in c.loads]
            for c in cases
        ]

    small = shrink(Case(machine, parse_loads(f"time ms=1500;{text}")), violates, lambda: True).case
    assert small.machine.cpu_count == least
