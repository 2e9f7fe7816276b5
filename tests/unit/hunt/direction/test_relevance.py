"""Loads of kinds that run the changed code are drawn more often."""

import random
from collections.abc import Callable

from numalab.hunt.calls.functions import CountedFunctions, is_changed_line
from numalab.hunt.case import Case
from numalab.hunt.direction.relevance import Relevance
from numalab.hunt.generate.families import draw_loads
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.loads.kinds import load_traits
from numalab.hunt.loads.load import Load

LINES = CountedFunctions(("pick",), (0x30,), 0x99).with_lines([0x40, 0x20, 0x30])


def learned(runs: Callable[[Load], bool], machines: int = 6) -> Relevance:
    """Return what is known after some machines, in whose loads a changed line ran or not."""
    rng = random.Random(4)
    relevance = Relevance()
    for _ in range(machines):
        machine = draw_machine(rng)
        case = Case(machine, draw_loads(rng, machine, 24))
        calls = {
            number: {"pick": 9, **({"changed line 1": 2} if runs(load) else {})}
            for number, load in enumerate(case.loads)
        }
        relevance.take(case, calls)
    return relevance


def uses_memory(load: Load) -> bool:
    return any(part.kind == "memory" for part in load.parts)


def test_changed_lines_are_counted_beside_functions_once_each() -> None:
    assert LINES.addresses == (0x20, 0x30, 0x40)
    assert [is_changed_line(name) for name in LINES.names] == [True, False, True]
    assert LINES.names[1] == "pick", "an address that is counted already keeps its name"


def test_kinds_that_run_the_change_weigh_more() -> None:
    relevance = learned(uses_memory)
    assert relevance.is_rare
    share = relevance.total / relevance.count
    assert 0 < share < 0.4
    machine = draw_machine(random.Random(1))
    loads = draw_loads(random.Random(1), machine, 60)
    weights: dict[bool, list[float]] = {True: [], False: []}
    for load in loads:
        weights[uses_memory(load)].append(relevance.weight(load_traits(machine, load)))
    assert min(weights[True]) > 0.9 * min(8.0, 1 / share)
    assert max(weights[True]) <= 8.0 and min(weights[False]) >= 1.0
    assert sum(weights[False]) / len(weights[False]) < 0.7 * min(weights[True])


def test_nothing_is_preferred_before_a_line_has_run_or_where_most_loads_run_it() -> None:
    for runs in (lambda _: False, lambda _: True):
        relevance = learned(runs)
        assert relevance.count == 144 and not relevance.is_rare
        assert relevance.weight({"memory", "hog"}) == 1.0
    assert Relevance().weight({"memory"}) == 1.0
