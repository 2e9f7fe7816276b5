"""Draw loads for a machine, of all families."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from numalab.hunt.generate import (
    changes,
    departures,
    group_changes,
    groups,
    loads,
    memory,
    policies,
)
from numalab.hunt.generate.draw import Family, everywhere, is_fixed, some_cpus
from numalab.hunt.generate.loads import forkers, sleepers, spread, wakers, weighted
from numalab.hunt.generate.machines import worth
from numalab.hunt.generate.mutate import combined
from numalab.hunt.loads.load import Load
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology


def squeezed(rng: random.Random, machine: Topology) -> Load | None:
    """Tasks of another family that share one or two CPUs: what remains is the order in a queue."""
    few = some_cpus(rng, everywhere(machine), rng.choice((1, 1, 2)))
    load = rng.choice(_SQUEEZED)(rng, machine)
    if load is None or any(is_fixed(part) for part in load.parts):
        return None
    parts = tuple(
        replace(part, cpus=few, start=(), later=(), wakee=(), count=min(part.count, 3),
                burst=min(part.burst, 4))
        for part in load.parts
    )  # fmt: skip
    return replace(load, parts=parts)


_SQUEEZED: tuple[Family, ...] = (
    sleepers, wakers, forkers, weighted, policies.yielders, policies.batches, policies.below_all,
    policies.fan_out, policies.executors, changes.policies_in_turn,
)  # fmt: skip


FAMILIES: Mapping[Family, float] = {
    squeezed: 1.5,
    **loads.FAMILIES,
    **policies.FAMILIES,
    **groups.FAMILIES,
    **changes.FAMILIES,
    **group_changes.FAMILIES,
    **departures.FAMILIES,
    **memory.FAMILIES,
}
# The first cases of a hunt have each family once, as far as it fits their machines.
FIRST_CASES = 4
# Shares of all loads: most systems have all tasks in groups, and of more than one kind.
_GROUPED, _TOGETHER = 0.12, 0.1
_IN_PIECES = 0.25  # of loads with more than one MiB of memory


def draw_loads(
    rng: random.Random, machine: Topology, count: int, first: Sequence[Family] = ()
) -> tuple[Load, ...]:
    """Return loads of different families that fit the machine, those of `first` to begin with.

    Where nodes are far apart, the first one spreads over two of them. Loads have the node numbers
    of the guest.
    """
    machine = as_guest_numbers(machine)
    families = [*FAMILIES, squeezed]  # which is of many kinds
    chosen: list[Family] = [spread] if worth(machine) > 0 else []
    chosen += [family for family in first if family not in chosen]
    drawn: list[Load] = []
    while families and len(drawn) < count:
        weights = [FAMILIES[family] for family in families]
        family = chosen.pop(0) if chosen else rng.choices(families, weights)[0]
        families.remove(family)
        if (load := family(rng, machine)) is not None:
            drawn.append(_in_pieces(rng, _beside(rng, machine, load)))
    return tuple(drawn)


def _in_pieces(rng: random.Random, load: Load) -> Load:
    """Scan some memory in pieces, as that of large processes, which takes several scans."""
    most = max((part.mib for part in load.parts if part.kind == "memory"), default=0)
    return replace(load, scan_mib=1) if most > 1 and rng.random() < _IN_PIECES else load


def _beside(rng: random.Random, machine: Topology, load: Load) -> Load:
    """Return a load as it is, in groups, or together with one of another family."""
    kind = rng.random()
    if kind < _GROUPED:
        return groups.grouped(rng, load)
    other = rng.choice(list(FAMILIES))(rng, machine) if kind < _GROUPED + _TOGETHER else None
    return load if other is None else combined(load, other)


def first_families(seed: int, number: int) -> Sequence[Family]:
    """Return the families of case `number` of a seed; none after the first cases."""
    families = list(FAMILIES)
    random.Random(f"{seed}-families").shuffle(families)
    return families[number::FIRST_CASES] if number < FIRST_CASES else ()
