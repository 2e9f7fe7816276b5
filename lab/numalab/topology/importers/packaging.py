"""How the CPUs of another machine are packaged, and in which order QEMU would number them."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from numalab.topology.model import CpuShape, LastLevelCache


@dataclass(frozen=True)
class CpuPlace:
    """Where a CPU is: its package, the group of CPUs that share a last-level cache, its core.

    Numbers of any kind that only tell one from another. `cache` is None where it is not known.
    """

    package: Hashable
    core: Hashable
    cache: Hashable | None = None


@dataclass(frozen=True)
class Packaging:
    """The order of the CPUs in which `shape` holds, and what could not be kept, in words."""

    order: tuple[int, ...]
    shape: CpuShape | None
    llc: LastLevelCache
    lost: tuple[str, ...]


def pack(
    node_of_cpu: Mapping[int, int], places: Mapping[int, CpuPlace], size: int | None
) -> Packaging:
    """Package CPUs as they were found, or as much of that as QEMU can make.

    `node_of_cpu` has every CPU, `places` each of them or none: then each node becomes a socket.
    QEMU's sockets, dies and cores are all of one size, and its CPU numbers run through a core, a
    die and a socket before the next; so CPUs are put in that order. `size` is how many CPUs there
    are in each node with CPUs, None where they are not alike.
    """
    lost: list[str] = []
    for level, attempt in _attempts(node_of_cpu, places, size):
        packed = _even(attempt, node_of_cpu)
        if packed is not None:
            order, shape = packed
            return Packaging(order, shape, _llc(attempt, shape), tuple(lost))
        lost.append(level)
    return Packaging(tuple(sorted(node_of_cpu)), None, "die", tuple(lost))


def _attempts(
    node_of_cpu: Mapping[int, int], places: Mapping[int, CpuPlace], size: int | None
) -> list[tuple[str, dict[int, CpuPlace]]]:
    """List what may be kept, most first, each with the words for when it cannot be."""
    attempts = []
    if places:
        has_caches = all(place.cache is not None for place in places.values())
        if has_caches:
            attempts.append(("the last-level caches are not even", dict(places)))
        plain = {cpu: replace(place, cache=None) for cpu, place in places.items()}
        attempts.append(("the sockets are not even", plain))
        of_node = {cpu: replace(place, package=node_of_cpu[cpu]) for cpu, place in plain.items()}
        attempts.append(("the nodes are not even", of_node))
        of_core = {cpu: replace(place, package=place.core) for cpu, place in plain.items()}
        attempts.append(("the cores are not even", of_core))
    elif size is not None:
        separate = {cpu: CpuPlace(node, cpu) for cpu, node in node_of_cpu.items()}
        attempts.append(("the nodes are not even", separate))
    return attempts


def _even(
    places: Mapping[int, CpuPlace], node_of_cpu: Mapping[int, int]
) -> tuple[tuple[int, ...], CpuShape] | None:
    """Return the CPUs' order and their shape; None where packages, dies or cores differ in size."""
    package = {cpu: (place.package,) for cpu, place in places.items()}
    die = {cpu: (place.package, place.cache) for cpu, place in places.items()}
    core = {cpu: (place.package, place.cache, place.core) for cpu, place in places.items()}
    # A cache of a core's own makes no die: that is a machine without a shared cache.
    if set(Counter(die.values()).values()) == set(Counter(core.values()).values()):
        die = {cpu: (place.package, None) for cpu, place in places.items()}
    sizes = [set(Counter(level.values()).values()) for level in (package, die, core)]
    if any(len(values) > 1 for values in sizes):
        return None
    (in_package,), (in_die,), (threads,) = sizes
    if in_package % in_die or in_die % threads:
        return None
    first: dict[Hashable, tuple[int, int]] = {}
    for cpu in sorted(places, key=lambda cpu: (node_of_cpu[cpu], cpu)):
        for level in (package, die, core):
            first.setdefault((len(level[cpu]), level[cpu]), (node_of_cpu[cpu], cpu))
    order = sorted(
        places,
        key=lambda cpu: [
            *(first[len(level[cpu]), level[cpu]] for level in (package, die, core)),
            (0, cpu),
        ],
    )
    shape = CpuShape(
        sockets=len(places) // in_package,
        dies=in_package // in_die,
        cores=in_die // threads,
        threads=threads,
    )
    return tuple(order), shape


def _llc(places: Mapping[int, CpuPlace], shape: CpuShape) -> LastLevelCache:
    """Say whether the CPUs of a die share a cache, where that is known."""
    shared = Counter((place.package, place.cache) for place in places.values())
    has_caches = all(place.cache is not None for place in places.values())
    alone = has_caches and set(shared.values()) == {shape.threads}
    return "none" if alone and shape.cores > 1 else "die"


def even_size(counts: Sequence[int]) -> int | None:
    """Return the number that all counts above 0 are, or None."""
    sizes = {count for count in counts if count}
    return sizes.pop() if len(sizes) == 1 else None
