"""Packages the CPUs of an imported machine as QEMU can: sockets, dies and cores of one size."""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace

from numalab.topology.topology import CpuShape, LastLevelCache


@dataclass(frozen=True)
class CpuPlace:
    """The package, the core and the last-level cache of a CPU.

    `package` and `cache` are None if unknown. `pack` takes known packages only.
    """

    package: Hashable | None
    core: Hashable
    cache: Hashable | None = None


@dataclass(frozen=True)
class Packaging:
    """The order of the CPUs in which `shape` holds, and why it is not that of the machine.

    `uneven` is empty where it is.
    """

    order: tuple[int, ...]
    shape: CpuShape | None
    llc: LastLevelCache
    uneven: str


def pack(node_of_cpu: Mapping[int, int], places: Mapping[int, CpuPlace]) -> Packaging:
    """Package CPUs as on their machine, as far as QEMU can.

    `node_of_cpu` has every CPU, `places` all of them or none: then each node becomes a socket.
    QEMU's sockets, dies and cores are all of one size, and its CPU numbers run through a core, a
    die and a socket before the next; so CPUs are put in that order. A core whose threads have
    caches of their own gets one (`splits_cores`).
    """
    split = _split_cores(places)
    places = {
        cpu: replace(place, cache=_core(place)) if _core(place) in split else place
        for cpu, place in places.items()
    }
    for uneven, attempt in _attempts(node_of_cpu, places):
        packed = _even(attempt, node_of_cpu)
        if packed is not None:
            order, shape = packed
            return Packaging(order, shape, _llc(attempt, shape), uneven)
    uneven = "the sockets, the nodes and the cores are" if places else "the nodes are"
    return Packaging(tuple(sorted(node_of_cpu)), None, "die", uneven)


def splits_cores(places: Mapping[int, CpuPlace]) -> bool:
    """Return whether threads of a core have different last-level caches.

    No hardware does; the CPUID of QEMU's AMD models without topoext and without a cache of level 3
    does.
    """
    return bool(_split_cores(places))


def _core(place: CpuPlace) -> tuple[Hashable, ...]:
    return "core", place.package, place.core


def _split_cores(places: Mapping[int, CpuPlace]) -> set[tuple[Hashable, ...]]:
    caches = {(_core(place), place.cache) for place in places.values() if place.cache is not None}
    return {core for core, count in Counter(core for core, _ in caches).items() if count > 1}


def _attempts(
    node_of_cpu: Mapping[int, int], places: Mapping[int, CpuPlace]
) -> list[tuple[str, dict[int, CpuPlace]]]:
    """Return packagings, the most exact first, each with what it gives up, as it is not even."""
    if not places:
        even = len(set(Counter(node_of_cpu.values()).values())) == 1
        separate = {cpu: CpuPlace(node, cpu) for cpu, node in node_of_cpu.items()}
        return [("", separate)] if even else []
    plain = {cpu: replace(place, cache=None) for cpu, place in places.items()}
    of_node = {cpu: replace(place, package=node_of_cpu[cpu]) for cpu, place in plain.items()}
    of_core = {cpu: replace(place, package=place.core) for cpu, place in plain.items()}
    with_caches, caches = [], ""
    if all(place.cache is not None for place in places.values()):
        with_caches = [("", dict(places)), ("the cores are", _without_threads(places))]
        caches = "the last-level caches"
    return [
        *with_caches,
        (f"{caches} are" if caches else "", plain),
        (f"{caches} and the cores are" if caches else "the cores are", _without_threads(plain)),
        ("the sockets are", of_node),
        ("the sockets and the cores are", _without_threads(of_node)),
        ("the sockets and the nodes are", of_core),
    ]


def _without_threads(places: Mapping[int, CpuPlace]) -> dict[int, CpuPlace]:
    return {cpu: replace(place, core=("CPU", cpu)) for cpu, place in places.items()}


def _even(
    places: Mapping[int, CpuPlace], node_of_cpu: Mapping[int, int]
) -> tuple[tuple[int, ...], CpuShape] | None:
    """Return the CPUs' order and their shape; None where packages, dies or cores differ in size."""
    package = {cpu: (place.package,) for cpu, place in places.items()}
    die = {cpu: (place.package, place.cache) for cpu, place in places.items()}
    core = {cpu: _core(place) for cpu, place in places.items()}
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
    """Tell whether the CPUs of a die share a cache, if known."""
    shared = Counter((place.package, place.cache) for place in places.values())
    has_caches = all(place.cache is not None for place in places.values())
    alone = has_caches and set(shared.values()) == {shape.threads}
    return "none" if alone and shape.cores > 1 else "die"
