"""A case: a machine and the loads that run on it, one after the other in one boot."""

import hashlib
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.document import check_document
from numalab.errors import UserError
from numalab.hunt.load import Load
from numalab.hunt.load_text import render_loads
from numalab.topology.export import render_topology_file
from numalab.topology.file_format import TopologyFile
from numalab.topology.file_rules import build_topology
from numalab.topology.limits import RuleBroken
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import predict
from numalab.topology.topology import Topology

_FEW = 2
NAME = "hunted"  # the name of every machine in results


@dataclass(frozen=True)
class Case:
    """A machine and loads. Equal cases have equal texts, and so equal runs."""

    machine: Topology
    loads: tuple[Load, ...]

    @property
    def text(self) -> str:
        """The topology file and the loads as text."""
        return f"{render_topology_file(self.machine)}\n{render_loads(self.loads)}\n"

    def key(self, *also: str) -> str:
        """Return a digest of this case and of further texts."""
        return hashlib.sha256("\0".join([self.text, *also]).encode()).hexdigest()[:16]

    def with_machine_changes_last(self) -> "Case":
        """Return the case with its loads in this order, but those that change the machine last."""
        return replace(self, loads=tuple(sorted(self.loads, key=lambda load: load.changes_machine)))

    def only(self, *loads: Load) -> "Case":
        """Return the machine with these loads."""
        return replace(self, loads=loads)


def machine_of(text: str) -> Topology | None:
    """Return the machine of a topology file; None if the text breaks a rule."""
    path = Path(f"{NAME}.toml")
    try:
        document = check_document(tomllib.loads(text), TopologyFile, path)
        return build_topology(NAME, document)
    except (UserError, RuleBroken, tomllib.TOMLDecodeError):
        return None


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
    }
    return {*(part.kind for part in parts), *(name for name, has in also.items() if has)}
