"""Makes a topology of the nodes, CPUs and distances that an importer read."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from numalab.cpulist import format_cpu_order, format_cpulist
from numalab.errors import UserError
from numalab.topology.limits import (
    LOCAL_DISTANCE,
    MAX_APIC_ID,
    MAX_CPUS,
    MAX_MEMORY_MIB,
    MAX_NODES,
    UNREACHABLE,
)
from numalab.topology.topology import CpuShape, LastLevelCache, Node, Topology, describe_shape
from numalab.units import counted


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


MAX_TEXT = 16 << 20  # bytes of a file that is imported


@dataclass(frozen=True)
class Location:
    """Where a value was read: the file, and the line in it where the file has several."""

    file: Path | str
    line: str | None = None

    def error(self, message: str) -> UserError:
        """Return the error about the value that was read here."""
        return UserError(message, file=self.file, key=self.line)

    def __str__(self) -> str:
        return self.line or str(self.file)


@dataclass(frozen=True)
class FoundNode:
    """A node as the other machine numbers it, with its CPU numbers and memory there.

    `cpus_at` and `memory_at` are where these were read, None where that is not known.
    """

    id: int
    cpus: tuple[int, ...]
    memory_mib: int
    cpus_at: Location | None = None
    memory_at: Location | None = None


class ChangeKind(StrEnum):
    """What had to be changed of an imported machine, or could not be read."""

    DISTANCES = "distances"
    NODES = "nodes"
    CPU_NUMBERS = "CPU numbers"
    OFFLINE = "offline CPUs"
    PACKAGING = "packaging"
    UNKNOWN_PACKAGING = "unknown packaging"
    UNKNOWN_OBJECTS = "unknown objects"


@dataclass(frozen=True)
class ImportChange:
    """A change of an imported machine: of what, and in words for people."""

    kind: ChangeKind
    text: str


@dataclass(frozen=True)
class Imported:
    """A topology, and what had to be changed to make one.

    `old_cpus` are the CPUs' numbers on the machine itself, in the order of their new numbers, and
    `old_nodes` are the nodes' numbers.
    """

    topology: Topology
    changes: tuple[ImportChange, ...]
    old_cpus: tuple[int, ...] = ()
    old_nodes: tuple[int, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The changes, in words alone."""
        return tuple(change.text for change in self.changes)


def imported_topology(
    described: Sequence[FoundNode],
    distances: Sequence[Sequence[int]] | None,
    *,
    name: str,
    source: str,
    file: Path | str,
    places: Mapping[int, CpuPlace] | None = None,
    rows_at: Sequence[Location] = (),
    remarks: Iterable[ImportChange] = (),
) -> Imported:
    """Make a topology of what was found; `distances` are in the order of `found`, None where the
    machine does not say them.

    Nodes are numbered anew, from 0 without gaps, in the order of their old numbers; CPUs in the
    order in which QEMU numbers those of a core, a die and a socket, where the machine is packaged
    evenly. `places` are the CPUs' places, none where they are not known. A node with neither CPUs
    nor memory is left out. `rows_at` is where each row of distances was read; `remarks` come first
    among the changes. Raises UserError when the machine is too large or its table is not one.
    """
    _check_nodes(described, file)
    changes = list(remarks)
    if distances is None:
        distances = _without_slit(len(described))
        if len(described) > 1:
            text = "no table of distances: 20 between nodes, as kernels have it without one"
            changes.append(ImportChange(ChangeKind.DISTANCES, text))
    _check_distances(described, distances, rows_at or [Location(file)] * len(described), file)
    kept = sorted(
        (place for place, node in enumerate(described) if node.cpus or node.memory_mib),
        key=lambda place: described[place].id,
    )
    changes += _node_changes(described, kept)
    node_of_cpu = {cpu: new for new, place in enumerate(kept) for cpu in described[place].cpus}
    size = even_size([len(described[place].cpus) for place in kept])
    cpu_places = _places_of(places, node_of_cpu)
    packaging = pack(node_of_cpu, cpu_places, size)
    changes += _changes(packaging, places or {}, node_of_cpu)
    number = {cpu: new for new, cpu in enumerate(packaging.order)}
    nodes = tuple(
        Node(
            new,
            tuple(sorted(number[cpu] for cpu in described[place].cpus)),
            described[place].memory_mib,
        )
        for new, place in enumerate(kept)
    )
    table = tuple(tuple(distances[a][b] for b in kept) for a in kept)
    summary = f"Imported: {counted(len(nodes), 'node')}, {counted(len(packaging.order), 'CPU')}"
    topology = Topology(name, summary, source, nodes, table, packaging.shape, packaging.llc)
    if (last := topology.packaging.apic_id(topology.cpu_count - 1)) > MAX_APIC_ID:
        raise UserError(
            f"{topology.cpu_count} CPUs, the last with APIC id {last}; a guest ends at "
            f"{MAX_APIC_ID}",
            file=file,
        )
    return Imported(
        topology, tuple(changes), packaging.order, tuple(described[place].id for place in kept)
    )


def _node_changes(described: Sequence[FoundNode], kept: Sequence[int]) -> Iterator[ImportChange]:
    empty = [node.id for place, node in enumerate(described) if place not in kept]
    if empty:
        text = f"left out nodes without CPUs and memory: {', '.join(map(str, empty))}"
        yield ImportChange(ChangeKind.NODES, text)
    if [described[place].id for place in kept] != list(range(len(kept))):
        pairs = (f"{described[place].id} is now {new}" for new, place in enumerate(kept))
        yield ImportChange(ChangeKind.NODES, f"numbered nodes anew: {', '.join(pairs)}")


def _places_of(
    places: Mapping[int, CpuPlace] | None, node_of_cpu: Mapping[int, int]
) -> dict[int, CpuPlace]:
    """Return the places of the CPUs; none where one is missing."""
    if not places or not places.keys() >= node_of_cpu.keys():
        return {}
    return {cpu: places[cpu] for cpu in node_of_cpu}


def _changes(
    packaging: Packaging, places: Mapping[int, CpuPlace], node_of_cpu: Mapping[int, int]
) -> Iterator[ImportChange]:
    missing = node_of_cpu.keys() - places.keys()
    if missing:
        cpus = "" if not places else f" of CPUs {format_cpulist(missing)}"
        text = (
            f"no sockets, cores, threads and caches{cpus} in the source: each node becomes a "
            "socket, each CPU a core; import the sysfs tree for them"
        )
        yield ImportChange(ChangeKind.UNKNOWN_PACKAGING, text)
    order = packaging.order
    if order != tuple(range(len(order))):
        text = "without the gaps"
        if list(order) != sorted(order):
            text = "those of a core, a die and a socket follow each other"
        text = f"numbered CPUs anew, {text}: CPUs 0-{len(order) - 1} were {format_cpu_order(order)}"
        yield ImportChange(ChangeKind.CPU_NUMBERS, text)
    lost = " and ".join(packaging.lost)
    if packaging.lost and packaging.shape is not None:
        text = f"{lost}: packaged as {describe_shape(packaging.shape)}"
        yield ImportChange(ChangeKind.PACKAGING, text)
    if packaging.shape is None:
        text = f"{lost or 'CPUs are not in even blocks'}: each CPU becomes a socket of its own"
        yield ImportChange(ChangeKind.PACKAGING, text)


def _without_slit(nodes: int) -> list[list[int]]:
    """Return LOCAL_DISTANCE and REMOTE_DISTANCE of include/linux/topology.h."""
    return [[LOCAL_DISTANCE if a == b else 20 for b in range(nodes)] for a in range(nodes)]


def _check_nodes(described: Sequence[FoundNode], file: Path | str) -> None:
    if not described:
        raise UserError("no NUMA node found", file=file)
    _check_numbers(described, file)
    if len(described) > MAX_NODES:
        raise UserError(f"{len(described)} nodes; at most {MAX_NODES} are possible", file=file)
    cpus = sum(len(node.cpus) for node in described)
    if not cpus:
        raise UserError("no node has a CPU", file=file)
    if cpus > MAX_CPUS:
        raise UserError(f"{cpus} CPUs; at most {MAX_CPUS} are possible", file=file)
    for node in described:
        if not 0 <= node.memory_mib <= MAX_MEMORY_MIB:
            raise (node.memory_at or Location(file)).error(
                f"node {node.id} has {node.memory_mib} MiB of memory; 0 to {MAX_MEMORY_MIB} are "
                "possible"
            )
    if not any(node.memory_mib for node in described):
        raise UserError("no node has memory", file=file)


def _check_numbers(described: Sequence[FoundNode], file: Path | str) -> None:
    """Check that each node is described once, and that no CPU is in two nodes."""
    numbers: dict[int, Location] = {}
    holders: dict[int, FoundNode] = {}
    for node in described:
        at = node.cpus_at or Location(file)
        if node.id in numbers:
            raise at.error(f"node {node.id} is described twice, first in {numbers[node.id]}")
        numbers[node.id] = at
        for cpu in node.cpus:
            first = holders.setdefault(cpu, node)
            if first is not node:
                raise at.error(
                    f"CPU {cpu} of node {node.id} is in two nodes: node {first.id} has it "
                    f"({first.cpus_at or file})"
                )


def _check_distances(
    described: Sequence[FoundNode],
    distances: Sequence[Sequence[int]],
    rows_at: Sequence[Location],
    file: Path | str,
) -> None:
    """Check the table as slit_valid() of the kernel does, which drops any other."""
    if len(distances) != len(described):
        raise UserError(
            f"the distances are not a table of {len(described)} x {len(described)}", file=file
        )
    for a, (row, at) in enumerate(zip(distances, rows_at, strict=True)):
        if len(row) != len(described):
            raise at.error(
                f"{counted(len(row), 'distance')} for {counted(len(described), 'node')}: "
                f"the distances are not a table of {len(described)} x {len(described)}"
            )
        for b, distance in enumerate(row):
            if a != b and not LOCAL_DISTANCE < distance <= UNREACHABLE:
                raise at.error(
                    f"distance {distance} from node {described[a].id} to node {described[b].id}; "
                    "distances between nodes are 11 to 255"
                )
        if row[a] != LOCAL_DISTANCE:
            raise at.error(
                f"node {described[a].id} is {row[a]} away from itself; that is always 10"
            )
