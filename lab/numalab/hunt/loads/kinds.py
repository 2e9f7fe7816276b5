"""The kinds of a case: classes of its machine and of its loads, for coverage, hints and trends."""

from collections.abc import Iterator
from functools import lru_cache

from numalab.hunt.case import Case
from numalab.hunt.loads.load import Load
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import predict
from numalab.topology.topology import Topology

# Kinds beside those of the coverage.
FAR, MASKS = "three distances or more", "masks of some CPUs"
BEYOND = "nodes beyond the reclaim distance"  # wake-ups and pushes of real-time tasks end there
_FAR = 3
_RECLAIM_DISTANCE = 30  # of include/linux/topology.h, 6.12
_FEW = 2
# The kinds of machines of which trends are kept: each has a good part of all loads.
_WITH_TRENDS = frozenset({
    FAR, BEYOND, "SMT", "dies", "nodes without CPUs", "nodes without memory", "uneven nodes",
})  # fmt: skip


def classes(case: Case) -> Iterator[str]:
    """Return the coverage classes of a case: of its machine, and of each load.

    `machine: 4 nodes` occurs once, `load: hog` once for each load with hogs. The levels of sched
    domains and the hazards are those of `topology predict` for the default kernel.
    """
    for name in machine_classes(case.machine):
        yield f"machine: {name}"
    for load in case.loads:
        for name in sorted(load_kinds(load)):
            yield f"load: {name}"


def machine_classes(machine: Topology) -> Iterator[str]:
    """Return the coverage classes of a machine, such as `SMT`."""
    prediction = predict(machine)
    deepest = max(len(cpu.domains) for cpu in prediction.cpus)
    drawn = "links" if machine.drawn_links else "a table"
    yield f"{len(machine.nodes)} nodes"
    yield f"{deepest} levels of sched domains"
    yield f"distances of {machine.shape.kind if machine.shape else drawn}"
    if machine.packaging.threads > 1:
        yield "SMT"
    if machine.packaging.dies > 1:
        yield "dies"
    if any(not node.cpus for node in machine.nodes):
        yield "nodes without CPUs"
    if any(not node.memory_mib for node in machine.nodes):
        yield "nodes without memory"
    if len({len(node.cpus) for node in machine.nodes if node.cpus}) > 1:
        yield "uneven nodes"
    yield from dict.fromkeys(f"hazard {hazard.name}" for hazard in hazards(machine, prediction))


def load_kinds(load: Load) -> set[str]:
    """Return the coverage classes of a load: kinds of tasks, and what changes meanwhile."""
    parts = load.parts
    cpus = len({cpu for part in parts for cpu in part.cpus})
    hogs = sum(part.count for part in parts if part.kind in ("hog", "memory"))
    also = {
        "a cpuset that changes": load.cpuset is not None,
        "a CPU that goes and comes back": bool(load.hotplug),
        "a mask that changes": any(part.later for part in parts)
        or any(change.cpus and not change.group for change in load.changes),
        "policies that change": any(change.policy for change in load.changes),
        "one or two CPUs": cpus <= _FEW,
        "more hogs than CPUs": hogs > cpus,
        "fewer hogs than CPUs": 0 < hogs < cpus,
        "nice levels": any(part.nice for part in parts),
        "real-time tasks": any(part.is_real_time for part in parts),
        "deadline tasks": any(part.policy == "deadline" for part in parts),
        "quotas": any(load.has_quota(part) for part in parts),
        "quotas that are saved": any(group.burst_ms for group in load.groups),
        "limits that change": any(
            change.quota_ms is not None or change.period_ms for change in load.changes
        ),
        "policy batch or idle": any(part.policy in ("batch", "idle") for part in parts),
        "cgroups": bool(load.groups),
        "changes": bool(load.changes),
        "partitions": any(group.partition for group in load.groups),
        "changes time and again": any(change.times > 1 for change in load.changes),
        "tasks that change their cgroup": any(change.into for change in load.changes),
        "wakees with masks of their own": any(part.wakee for part in parts),
        "memory that is bound": any(part.bound for part in parts),
        "batches of wakees": any(part.kind == "waker" and part.burst > 1 for part in parts),
        "threads that share memory": any(part.threads for part in parts),
        "memory that rests": any(part.rest for part in parts),
        "memory scanned in pieces": load.scan_mib > 0,
        "memory of many areas": any(part.areas > 1 for part in parts),
        "slices of their own": any(part.slice_us for part in parts),
        "hogs that yield": any(part.yields for part in parts),
        "children that execute a program": any(part.execs for part in parts),
        "children that do not inherit": any(part.resets for part in parts),
    }
    return {*(part.kind for part in parts), *(name for name, has in also.items() if has)}


@lru_cache(maxsize=64)
def machine_traits(machine: Topology) -> frozenset[str]:
    """Return the classes of a machine, FAR and BEYOND included."""
    distances = {value for row in machine.distances for value in row}
    far = {FAR} if len(distances) > _FAR else set()
    beyond = {BEYOND} if max(distances) > _RECLAIM_DISTANCE else set()
    return frozenset({*machine_classes(machine), *far, *beyond})


def load_traits(machine: Topology, load: Load) -> frozenset[str]:
    """Return the classes of a load, MASKS included."""
    partial = any(len(part.cpus) < machine.cpu_count for part in load.parts)
    return frozenset({*load_kinds(load), *([MASKS] if partial else [])})


def trend_kinds(machine: Topology) -> frozenset[str]:
    """Return the kinds of a machine of which trends are kept."""
    return machine_traits(machine) & _WITH_TRENDS
