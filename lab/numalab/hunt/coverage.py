"""What a hunt has gone over: how many machines of each class, and loads of each kind."""

from collections.abc import Iterator

from numalab.hunt.case import Case
from numalab.hunt.load import Load
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import predict
from numalab.topology.topology import Topology


def classes(case: Case) -> Iterator[str]:
    """Name each class of machines that a case's machine is in, and what each of its loads has.

    `machine: 4 nodes` occurs once, `load: hog` once for each load with hogs. The levels of sched
    domains and the hazards are those that `topology predict` tells for the default kernel.
    """
    for name in _machine_classes(case.machine):
        yield f"machine: {name}"
    for load in case.loads:
        for name in sorted(_kinds(load)):
            yield f"load: {name}"


def _machine_classes(machine: Topology) -> Iterator[str]:
    prediction = predict(machine)
    deepest = max(len(cpu.domains) for cpu in prediction.cpus)
    drawn = "links" if machine.drawn_links else "a table"
    yield f"{len(machine.nodes)} nodes"
    yield f"{deepest} levels of sched domains"
    yield f"distances of {machine.shape.kind if machine.shape else drawn}"
    if machine.packaging.threads > 1:
        yield "SMT"
    if any(not node.cpus for node in machine.nodes):
        yield "nodes without CPUs"
    if any(not node.memory_mib for node in machine.nodes):
        yield "nodes without memory"
    if len({len(node.cpus) for node in machine.nodes if node.cpus}) > 1:
        yield "uneven nodes"
    yield from dict.fromkeys(f"hazard {hazard.name}" for hazard in hazards(machine, prediction))


def _kinds(load: Load) -> set[str]:
    parts = load.parts
    also = {
        "a cpuset that changes": load.cpuset is not None,
        "a CPU that goes and comes back": bool(load.hotplug),
        "a mask that changes": any(part.later for part in parts),
        "nice levels": any(part.nice for part in parts),
        "real-time tasks": any(part.fifo for part in parts),
        "threads that share memory": any(part.threads for part in parts),
        "memory that rests": any(part.rest for part in parts),
    }
    return {*(part.kind for part in parts), *(name for name, has in also.items() if has)}
