"""Loads that move to another machine are loads of that machine, and no task loses its last CPU."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.hunt.direction.fit import fitted
from numalab.hunt.generate.cases import draw_case
from numalab.hunt.loads.load_text import parse_loads, render_load
from numalab.topology.predict.firmware import as_guest_numbers


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_load_fits_another_machine(first: int, second: int) -> None:
    old, new = (draw_case(3, number) for number in (first, second))
    rng = random.Random(first)
    cpus = {cpu for node in new.machine.nodes for cpu in node.cpus}
    for load in old.loads:
        moved = fitted(rng, old.machine, new.machine, load)
        if moved is None:
            continue
        assert parse_loads(render_load(moved)) == (moved,)
        assert moved.every_cpu <= cpus
        assert [part.kind for part in moved.parts] == [part.kind for part in load.parts]
        away = {change.cpu for change in moved.hotplug}
        assert 0 not in away
        for part in moved.parts:
            assert part.cpus
            assert part.node is None or as_guest_numbers(new.machine).nodes[part.node].memory_mib
            assert not away or set(part.cpus) - away, "a task needs a CPU that stays"


def test_hotplug_is_left_out_if_a_mask_would_be_empty() -> None:
    old, new = (draw_case(3, number).machine for number in (1, 2))
    (load,) = parse_loads("time ms=900;hog n=1 cpus=1;hotplug cpu=1 off=300 on=600")
    moved = fitted(random.Random(1), old, new, load)
    assert moved is not None
    assert moved.hotplug == ()


def test_tasks_that_a_smaller_machine_might_not_admit_stay() -> None:
    machine = draw_case(3, 1).machine
    texts = (
        "time ms=900;sleeper n=1 policy=deadline runtime=1000 period=9000 cpus=0",
        "time ms=900;hog n=1 policy=fifo priority=5 cpus=0",
    )
    for text in texts:
        (load,) = parse_loads(text)
        assert fitted(random.Random(1), machine, machine, load) is None
