"""What families of loads draw: CPUs of a machine."""

import random
from collections.abc import Callable, Sequence

from numalab.hunt.loads.load import Cpus, Load, Part
from numalab.topology.topology import Topology

Family = Callable[[random.Random, Topology], Load | None]


def everywhere(machine: Topology) -> Cpus:
    """Return all CPUs of a machine."""
    return tuple(sorted(cpu for node in machine.nodes for cpu in node.cpus))


def some_cpus(rng: random.Random, cpus: Sequence[int], count: int) -> Cpus:
    """Return `count` of some CPUs, at least one, at most all."""
    return tuple(sorted(rng.sample(list(cpus), max(1, min(count, len(cpus))))))


def node_cpus(rng: random.Random, machine: Topology) -> Cpus:
    """Return the CPUs of one node."""
    return rng.choice([node.cpus for node in machine.nodes if node.cpus])


def is_fixed(part: Part) -> bool:
    """Whether its tasks have a deadline, admitted on all CPUs only, or are real-time hogs.

    More real-time hogs would leave nothing to the driver.
    """
    return part.policy == "deadline" or (part.kind == "hog" and part.is_real_time)
