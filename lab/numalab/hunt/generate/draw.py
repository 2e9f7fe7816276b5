"""What families of loads draw: CPUs of a machine."""

import random
from collections.abc import Callable, Sequence

from numalab.hunt.loads.load import Cpus, Load, Part
from numalab.topology.topology import Topology

ADMITTED = 0.75  # of the CPUs, for deadline tasks: less than what is beside the fair servers
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


def is_admitted(load: Load) -> bool:
    """Whether its deadline tasks, also those of changes, fit on the CPUs that they may use."""
    share, cpus = 0.0, set[int]()
    for place, part in enumerate(load.parts):
        servers = [(part.runtime_us, part.period_us)]
        servers += [(c.runtime_us, c.period_us) for c in load.changes if c.part == place]
        most = max((runtime / period for runtime, period in servers if period), default=0.0)
        share += part.count * most
        cpus.update(part.cpus if most else ())
    return share <= ADMITTED * len(cpus)
