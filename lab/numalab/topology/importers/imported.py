"""Makes a topology of the nodes, CPUs and distances that an importer read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from numalab.cpulist import format_cpu_order, format_cpulist
from numalab.errors import UserError
from numalab.topology.importers.packaging import CpuPlace, Packaging, pack, splits_cores
from numalab.topology.limits import (
    LOCAL_DISTANCE,
    MAX_APIC_ID,
    MAX_CPUS,
    MAX_MEMORY_MIB,
    MAX_NODES,
    UNREACHABLE,
)
from numalab.topology.topology import Node, Topology, describe_shape
from numalab.units import counted

MAX_TEXT = 16 << 20  # bytes of a file that is imported
SOURCES = ("numactl -H", "lstopo --of xml", "a sysfs tree")


@dataclass(frozen=True)
class Location:
    """The location of an imported value: its file, and its line in a file with several."""

    file: Path | str
    line: str | None = None

    def error(self, message: str, *, choices: Iterable[str] = ()) -> UserError:
        """Return an error about the value at this location."""
        return UserError(message, file=self.file, key=self.line, choices=choices)

    def parsed(self, parse: Callable[[str], tuple[int, ...]], text: str) -> tuple[int, ...]:
        """Parse a text of this location. Raises UserError where `parse` raises ValueError."""
        try:
            return parse(text)
        except ValueError as error:
            raise self.error(str(error)) from None

    def __str__(self) -> str:
        return self.line or str(self.file)


@dataclass(frozen=True)
class ImportedNode:
    """A node with the numbers of the other machine, its memory, and the locations of both."""

    id: int
    cpus: tuple[int, ...]
    memory_mib: int
    cpus_at: Location | None = None
    memory_at: Location | None = None


class ChangeKind(StrEnum):
    """A part of an imported machine that changes, or that the source lacks."""

    DISTANCES = "distances"
    NODES = "nodes"
    CPU_NUMBERS = "CPU numbers"
    OFFLINE = "offline CPUs"
    PACKAGING = "packaging"
    UNKNOWN_PACKAGING = "unknown packaging"
    CLUSTERS = "clusters"
    SPEEDS = "speeds"
    MEMORY_SPEEDS = "memory speeds"
    UNKNOWN_OBJECTS = "unknown objects"


@dataclass(frozen=True)
class ImportChange:
    """A change of an imported machine, with a sentence for people."""

    kind: ChangeKind
    text: str


@dataclass(frozen=True)
class Imported:
    """A topology, and its changes from the imported machine.

    `old_cpus` and `old_nodes` are the numbers on that machine, in the order of the new numbers.
    """

    topology: Topology
    changes: tuple[ImportChange, ...]
    old_cpus: tuple[int, ...] = ()
    old_nodes: tuple[int, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The sentences of the changes."""
        return tuple(change.text for change in self.changes)


def imported_topology(
    described: Sequence[ImportedNode],
    distances: Sequence[Sequence[int]] | None,
    *,
    name: str,
    source: str,
    file: Path | str,
    places: Mapping[int, CpuPlace] | None = None,
    rows_at: Sequence[Location] = (),
    remarks: Iterable[ImportChange] = (),
) -> Imported:
    """Make a topology of imported nodes, with `distances` in the same order (None: unknown).

    Nodes are numbered from 0 without gaps, as the guest's kernel does: in the order of their CPUs,
    then nodes without CPUs. CPUs are numbered in QEMU's order of cores, dies and sockets where the
    machine is packaged evenly, else in that of their old numbers; `places` are their
    places, if known. Nodes without CPUs and memory are left out. `rows_at` are the locations of the
    rows of distances; `remarks` come first among the changes. Raises UserError for a machine that
    is too large, and for a table that the kernel would not accept.
    """
    _check_nodes(described, file)
    changes = list(remarks)
    if distances is None:
        # LOCAL_DISTANCE and REMOTE_DISTANCE of include/linux/topology.h.
        nodes = range(len(described))
        distances = [[LOCAL_DISTANCE if a == b else 20 for b in nodes] for a in nodes]
        if len(described) > 1:
            text = "no table of distances: 20 between nodes, the default of kernels"
            changes.append(ImportChange(ChangeKind.DISTANCES, text))
    _check_distances(described, distances, rows_at or [Location(file)] * len(described), file)
    kept = sorted(
        (place for place, node in enumerate(described) if node.cpus or node.memory_mib),
        key=lambda place: described[place].id,
    )
    node_of_cpu = {cpu: new for new, place in enumerate(kept) for cpu in described[place].cpus}
    places = places or {}
    has_places = places.keys() >= node_of_cpu.keys()
    no_sockets = []
    if has_places and any(place.package is None for place in places.values()):
        places = {cpu: replace(places[cpu], package=node) for cpu, node in node_of_cpu.items()}
        text = "no sockets in the source: each node becomes a socket"
        no_sockets = [ImportChange(ChangeKind.UNKNOWN_PACKAGING, text)]
    packaging = pack(node_of_cpu, {cpu: places[cpu] for cpu in node_of_cpu} if has_places else {})
    number = {cpu: new for new, cpu in enumerate(packaging.order)}
    first = [min((number[cpu] for cpu in node.cpus), default=len(number)) for node in described]
    kept.sort(key=first.__getitem__)  # as the guest does (`node_numbers`)
    changes += [*_node_changes(described, kept), *no_sockets]
    changes += _changes(packaging, places, node_of_cpu)
    topology = Topology(
        name,
        "An imported machine",
        source,
        tuple(
            Node(new, tuple(sorted(number[cpu] for cpu in node.cpus)), node.memory_mib)
            for new, node in enumerate(described[place] for place in kept)
        ),
        tuple(tuple(distances[a][b] for b in kept) for a in kept),
        packaging.shape,
        packaging.llc,
    )
    if (last := topology.packaging.apic_id(topology.cpu_count - 1)) > MAX_APIC_ID:
        raise UserError(
            f"{topology.cpu_count} CPUs, the last with APIC id {last}; a guest ends at "
            f"{MAX_APIC_ID}",
            file=file,
        )
    return Imported(
        topology, tuple(changes), packaging.order, tuple(described[place].id for place in kept)
    )


def memory_speeds_left_out() -> ImportChange:
    """Return the note about latencies and bandwidths of memory in the source."""
    text = "left out latencies and bandwidths of memory (HMAT): write them in [[interconnects]]"
    return ImportChange(ChangeKind.MEMORY_SPEEDS, text)


def clusters_left_out(sizes: Iterable[int]) -> list[ImportChange]:
    """Return the note about caches within the last-level ones that cores share, if any.

    `sizes` are their numbers of CPUs. Kernels since 5.16 make a domain CLS of them.
    """
    if not (listed := sorted(set(sizes))):
        return []
    cpus = " or ".join(map(str, listed))
    text = f"left out clusters of {cpus} CPUs that share a smaller cache: no guest has them"
    return [ImportChange(ChangeKind.CLUSTERS, text)]


def _node_changes(described: Sequence[ImportedNode], kept: Sequence[int]) -> Iterator[ImportChange]:
    empty = [node.id for place, node in enumerate(described) if place not in kept]
    if empty:
        text = f"left out nodes without CPUs and memory: {', '.join(map(str, empty))}"
        yield ImportChange(ChangeKind.NODES, text)
    if [described[place].id for place in kept] != list(range(len(kept))):
        pairs = (f"{described[place].id} is now {new}" for new, place in enumerate(kept))
        yield ImportChange(ChangeKind.NODES, f"numbered nodes anew: {', '.join(pairs)}")


def _changes(
    packaging: Packaging, places: Mapping[int, CpuPlace], node_of_cpu: Mapping[int, int]
) -> Iterator[ImportChange]:
    missing = node_of_cpu.keys() - places.keys()
    if missing:
        cpus = "" if not places else f" of CPUs {format_cpulist(missing)}"
        text = f"no sockets, cores, threads and caches{cpus} in the source"
        if packaging.shape is not None:
            text += ": each node becomes a socket, each CPU a core"
        text += "; import the sysfs tree for them"
        yield ImportChange(ChangeKind.UNKNOWN_PACKAGING, text)
    elif all(place.cache is None for place in places.values()):
        text = "no caches in the source: the CPUs of a die share one"
        yield ImportChange(ChangeKind.UNKNOWN_PACKAGING, text)
    elif splits_cores(places):
        text = "threads of a core have caches of their own in the source: each core gets one cache"
        yield ImportChange(ChangeKind.PACKAGING, text)
    order = packaging.order
    if order != tuple(range(len(order))):
        text = "without the gaps"
        if list(order) != sorted(order):
            text = "those of a core, a die and a socket follow each other"
        text = f"numbered CPUs anew, {text}: CPUs 0-{len(order) - 1} were {format_cpu_order(order)}"
        yield ImportChange(ChangeKind.CPU_NUMBERS, text)
    if packaging.uneven:
        result = "each CPU becomes a socket of its own, with a cache of its own"
        if packaging.shape is not None:
            result = f"packaged as {describe_shape(packaging.shape)}"
        text = f"{packaging.uneven} not of one size: {result}"
        yield ImportChange(ChangeKind.PACKAGING, text)


def _check_nodes(described: Sequence[ImportedNode], file: Path | str) -> None:
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


def _check_numbers(described: Sequence[ImportedNode], file: Path | str) -> None:
    """Check that each node is described once, and that no CPU is in two nodes."""
    numbers: dict[int, Location] = {}
    holders: dict[int, ImportedNode] = {}
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
    described: Sequence[ImportedNode],
    distances: Sequence[Sequence[int]],
    rows_at: Sequence[Location],
    file: Path | str,
) -> None:
    """Check the table by the rules of slit_valid() of the kernel."""
    square = f"the distances are not a table of {len(described)} x {len(described)}"
    if len(distances) != len(described):
        raise UserError(square, file=file)
    for a, (row, at) in enumerate(zip(distances, rows_at, strict=True)):
        if len(row) != len(described):
            raise at.error(
                f"{counted(len(row), 'distance')} for {counted(len(described), 'node')}: {square}"
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
