"""Plausible cases: the measure prefers plain machines and loads, and shrinking arrives there."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from numalab.hunt.case import Case, machine_of
from numalab.hunt.loads.load import LoadChange
from numalab.hunt.loads.load_text import parse_loads
from numalab.hunt.simplify.implausibility import implausibility, odd_distances
from numalab.hunt.simplify.plainer import plainer_on_other_nodes, plainer_on_own_nodes
from numalab.hunt.simplify.shrink import shrink

ODD = "matrix = [[10,16,16,21],[16,10,16,27],[16,16,10,16],[21,27,16,10]]"
LINE = '[shape]\nkind = "line"\ndistances = [10, 20, 30, 40]'


def case_of(
    load: str, table: str = LINE, cpus: Sequence[int] = (3, 3, 3, 3), further: str = ""
) -> Case:
    memory = [512, *[256] * (len(cpus) - 1)]
    machine = machine_of(
        f'summary = "s"\nnodes = {len(cpus)}\ncpus = {list(cpus)}\nmemory_mib = {memory}\n'
        f"{table}\n{further}"
    )
    assert machine is not None
    return Case(machine, parse_loads(load))


FREE = "time ms=1200;hog n=5 cpus=0-11"


@pytest.mark.parametrize(
    ("table", "odd"),
    [
        (LINE, 0),
        ("matrix = [[10,20,30,40],[20,10,20,30],[30,20,10,20],[40,30,20,10]]", 0),
        ("matrix = [[10,20,30,20],[20,10,20,30],[30,20,10,20],[20,30,20,10]]", 0),
        ("matrix = [[10,20,20,20],[20,10,20,20],[20,20,10,20],[20,20,20,10]]", 0),
        ('[shape]\nkind = "line"\ndistances = [10, 16, 21, 27]', 1),
        ("matrix = [[10,16,21,27],[16,10,16,21],[21,16,10,16],[27,21,16,10]]", 1),
        ("matrix = [[10,20,30,30],[20,10,20,20],[30,20,10,30],[30,20,30,10]]", 0),  # a tree
        ("matrix = [[10,20,20,30],[20,10,20,20],[20,20,10,20],[30,20,20,10]]", 1),
        (ODD, 3),
    ],
)
def test_odd_distances(table: str, odd: int) -> None:
    assert odd_distances(case_of(FREE, table).machine) == odd


@pytest.mark.parametrize(
    ("plain", "less_plain"),
    [
        (case_of(FREE), case_of("time ms=600;hog n=1 cpus=0", ODD, further="")),
        (case_of(FREE), case_of("time ms=600;hog n=3 cpus=0,2,9-10")),
        (case_of(FREE), case_of("time ms=600;hog n=3 start=0 cpus=0-11")),
        (case_of(FREE), case_of("time ms=600;hog n=2 cpus=0-6;cpuset from=0-6 to=0-5 at=9")),
        (case_of(FREE), case_of("time ms=600;hog n=2 cpus=0-6", cpus=(3, 2, 1, 1))),
        (case_of(FREE), case_of("time ms=600;hog n=2 cpus=0-6", cpus=(3, 0, 2, 2))),
        (case_of(FREE), case_of("time ms=600;hog n=2 cpus=0-11;sleeper n=1 cpus=0-11")),
        (case_of(FREE), case_of("time ms=600;hog n=2 nice=3 cpus=0-11")),
        (case_of(FREE), case_of("time ms=600;hog n=5 cpus=0-11;hotplug cpu=2 off=3 on=4")),
        (case_of("time ms=600;hog n=2 cpus=0-3", cpus=(1, 1, 1, 1)), case_of(FREE)),
        (case_of("time ms=1200;hog n=4 cpus=0-11"), case_of(FREE)),
        (case_of("time ms=900;hog n=5 cpus=0-11"), case_of(FREE)),
    ],
)
def test_what_is_plainer_comes_first(plain: Case, less_plain: Case) -> None:
    assert implausibility(plain) < implausibility(less_plain)


def violating(rule: Callable[[Case], bool]) -> Callable[[Sequence[Case]], list[list[bool]]]:
    def violates(cases: Sequence[Case]) -> list[list[bool]]:
        return [[rule(case.only(load)) for load in case.loads] for case in cases]

    return violates


def test_an_odd_case_becomes_a_plain_one_with_more_tasks() -> None:
    """The rule of a hog that two nodes pull: far nodes, and one task less than half the CPUs."""

    def pulled(case: Case) -> bool:
        (part,) = case.loads[0].parts
        far = len({value for row in case.machine.distances for value in row}) == 4
        return far and len(case.machine.nodes) == 4 and part.count * 2 in (
            len(part.cpus) + 2, len(part.cpus) - 2,
        )  # fmt: skip

    odd = case_of("time ms=1200;hog n=3 cpus=0,2,9-10", ODD)
    assert violating(pulled)([odd]) == [[True]]
    small = shrink(odd, violating(pulled), lambda: True).case
    measure = implausibility(small)
    assert (measure.distances, measure.restrictions, measure.uneven) == (0, 0, 0)
    assert small.loads[0].parts[0].start == ()


def test_a_smaller_machine_may_grow_again() -> None:
    """On few CPUs it takes a mask; on four nodes it takes none."""

    def rule(case: Case) -> bool:
        (part,) = case.loads[0].parts
        every = {cpu for node in case.machine.nodes for cpu in node.cpus}
        return set(part.cpus) != every or (len(case.machine.nodes) == 4 and part.count > 2)

    small = shrink(case_of("time ms=700;hog n=3 cpus=0,2", ODD), violating(rule), lambda: True).case
    assert implausibility(small).restrictions == 0
    assert len(small.machine.nodes) == 4


def test_a_table_of_a_shape_becomes_the_shape() -> None:
    table = "matrix = [[10,16,22,26],[16,10,16,21],[22,16,10,16],[26,21,16,10]]"
    plainer = next(plainer_on_own_nodes(case_of(FREE, table)))
    assert plainer.machine.shape is not None
    assert plainer.machine.shape.kind == "line"
    assert implausibility(plainer.only(plainer.loads[0])).distances == 0


def test_a_plainer_load_lets_its_tasks_go_on() -> None:
    case = case_of("time ms=900;hog n=2 cpus=0,2", ODD)
    stop, mask = LoadChange(100, part=0, stop=True), LoadChange(150, part=0, cpus=(0,))
    go = LoadChange(200, part=0, cpus=(2,), go=True)
    load = replace(case.loads[0], changes=(stop, mask, go))
    plainer = next(plainer_on_other_nodes(case.only(load)))
    expected = (stop, replace(go, cpus=()))
    assert {load.changes for load in plainer.loads} == {expected}


def test_loads_of_plainer_cases_fit_their_machines() -> None:
    case = case_of("time ms=900;hog n=4 start=9 cpus=9-11;hotplug cpu=1 off=9 on=99", ODD)
    plainer = [*plainer_on_own_nodes(case), *plainer_on_other_nodes(case)]
    assert len({other.text for other in plainer}) > 20
    for other in plainer:
        every = {cpu for node in other.machine.nodes for cpu in node.cpus}
        assert 0 < len(other.loads) <= 12
        for load in other.loads:
            assert load.every_cpu <= every
            assert load.hotplug == case.loads[0].hotplug
