"""Migrations between last-level caches, beside a count of the events by hand."""

import random
from typing import Any

import pytest

from numalab.analysis.analyse import analyse
from numalab.measure import Measure
from numalab.recording.recording import Recording
from numalab.topology.load import load_topology
from numalab.topology.predict.firmware import cache_of_cpus, guest_machine
from numalab.topology.predict.prediction import DEFAULT_KERNEL
from numalab.topology.predict.rules import rules_for
from numalab.topology.topology import Topology

Trace = Any


def measured(measures: tuple[Measure, ...], name: str) -> object:
    return next(measure.value for measure in measures if measure.name == name)


@pytest.mark.parametrize("seed", range(8))
def test_each_move_to_another_cache_counts_once(
    trace: Trace, three_nodes: Topology, seed: int
) -> None:
    rng = random.Random(seed)
    cpus = [cpu for node in three_nodes.nodes for cpu in node.cpus]
    cache_of = {cpu: rng.choice(cpus) for cpu in cpus}
    events, expected, at = [], 0, rng.choice(cpus)
    for time in range(40):
        to, name = rng.choice(cpus), rng.choice(["hog:1", "other:2"])
        events.append(trace.migrate(time, name, at, to))
        expected += name == "hog:1" and cache_of[at] != cache_of[to]
        at = to
    run = Recording(trace.table(*events), three_nodes, tasks=["hog"], cache_of=cache_of)
    assert measured(analyse(run).measures, "task_llc_migrations") == expected


def test_without_caches_or_events_there_is_no_number(trace: Trace, three_nodes: Topology) -> None:
    events = trace.table(trace.migrate(1, "hog:1", 0, 2))
    assert measured(analyse(Recording(events, three_nodes)).measures, "task_llc_migrations") is None
    unrecorded = Recording(events, three_nodes, cache_of={}, recorded=("sched:sched_switch",))
    assert measured(analyse(unrecorded).measures, "task_llc_migrations") is None


def test_the_caches_are_those_of_the_predicted_machine() -> None:
    rules = rules_for(DEFAULT_KERNEL)
    ring = cache_of_cpus(guest_machine(load_topology("ring-4"), "amd", rules))
    assert ring == {cpu: cpu // 2 * 2 for cpu in range(8)}
