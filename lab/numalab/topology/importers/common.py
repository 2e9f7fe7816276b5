"""Turns what another machine says about itself into a topology: the part all importers share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from numalab.errors import UserError
from numalab.topology.importers.packaging import CpuPlace, Packaging, even_size, pack
from numalab.topology.limits import (
    LOCAL_DISTANCE,
    MAX_APIC_ID,
    MAX_CPUS,
    MAX_MEMORY_MIB,
    MAX_NODES,
    UNREACHABLE,
)
from numalab.topology.model import Node, Topology

MAX_TEXT = 16 << 20  # bytes of a file that is imported


@dataclass(frozen=True)
class FoundNode:
    """A node as the other machine numbers it, with its CPU numbers and memory there."""

    id: int
    cpus: tuple[int, ...]
    memory_mib: int


class ChangeKind(StrEnum):
    """What had to be changed of an imported machine."""

    DISTANCES = "distances"
    NODES = "nodes"
    CPU_NUMBERS = "CPU numbers"
    PACKAGING = "packaging"


@dataclass(frozen=True)
class ImportChange:
    """A change of an imported machine: of what, and in words for people."""

    kind: ChangeKind
    text: str


@dataclass(frozen=True)
class Imported:
    """A topology, and what had to be changed to make one.

    `old_cpus` are the CPUs' numbers on the machine itself, in the order of their new numbers.
    """

    topology: Topology
    changes: tuple[ImportChange, ...]
    old_cpus: tuple[int, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """The changes, in words alone."""
        return tuple(change.text for change in self.changes)


def imported_topology(
    found: Sequence[FoundNode],
    distances: Sequence[Sequence[int]] | None,
    *,
    name: str,
    source: str,
    file: Path | str,
    places: Mapping[int, CpuPlace] | None = None,
) -> Imported:
    """Make a topology of what was found; `distances` are in the order of `found`, None where the
    machine does not say them.

    Nodes are numbered anew, from 0 without gaps, in the order of their old numbers; CPUs in the
    order in which QEMU numbers those of a core, a die and a socket, where the machine is packaged
    evenly. `places` are the CPUs' places, none where they are not known. A node with neither CPUs
    nor memory is left out. Raises UserError when the machine is too large or its table is not one.
    """
    _check_nodes(found, file)
    changes: list[ImportChange] = []
    if distances is None:
        distances = _without_slit(len(found))
        if len(found) > 1:
            text = "no table of distances: 20 between nodes, as kernels have it without one"
            changes.append(ImportChange(ChangeKind.DISTANCES, text))
    _check_distances(found, distances, file)
    kept = [place for place, node in enumerate(found) if node.cpus or node.memory_mib]
    if len(kept) < len(found):
        empty = [found[place].id for place in range(len(found)) if place not in kept]
        text = f"left out nodes without CPUs and memory: {', '.join(map(str, empty))}"
        changes.append(ImportChange(ChangeKind.NODES, text))
    kept.sort(key=lambda place: found[place].id)
    if [found[place].id for place in kept] != list(range(len(kept))):
        pairs = (f"{found[place].id} is now {new}" for new, place in enumerate(kept))
        text = f"numbered nodes anew: {', '.join(pairs)}"
        changes.append(ImportChange(ChangeKind.NODES, text))
    node_of_cpu = {cpu: new for new, place in enumerate(kept) for cpu in found[place].cpus}
    size = even_size([len(found[place].cpus) for place in kept])
    packaging = pack(node_of_cpu, _known(places, node_of_cpu), size)
    changes += _changes(packaging)
    number = {cpu: new for new, cpu in enumerate(packaging.order)}
    nodes = tuple(
        Node(
            new,
            tuple(sorted(number[cpu] for cpu in found[place].cpus)),
            found[place].memory_mib,
        )
        for new, place in enumerate(kept)
    )
    table = tuple(tuple(distances[a][b] for b in kept) for a in kept)
    summary = f"Imported: {len(nodes)} nodes, {len(packaging.order)} CPUs"
    shape, llc = packaging.shape, packaging.llc
    topology = Topology(name, summary, source, nodes, table, shape, llc)
    if (last := topology.packaging.apic_id(topology.cpu_count - 1)) > MAX_APIC_ID:
        raise UserError(
            f"{topology.cpu_count} CPUs, the last with APIC id {last}; a guest ends at "
            f"{MAX_APIC_ID}",
            file=file,
        )
    return Imported(topology, tuple(changes), packaging.order)


def _known(
    places: Mapping[int, CpuPlace] | None, node_of_cpu: Mapping[int, int]
) -> dict[int, CpuPlace]:
    """Return the places of the CPUs; none where one is missing."""
    if not places or not places.keys() >= node_of_cpu.keys():
        return {}
    return {cpu: places[cpu] for cpu in node_of_cpu}


def _changes(packaging: Packaging) -> Iterator[ImportChange]:
    order = packaging.order
    if list(order) != sorted(order):
        text = "numbered CPUs anew: those of a core, a die and a socket follow each other"
        yield ImportChange(ChangeKind.CPU_NUMBERS, text)
    elif order != tuple(range(len(order))):
        yield ImportChange(ChangeKind.CPU_NUMBERS, "numbered CPUs anew, without the gaps")
    if packaging.lost and packaging.shape is not None:
        shape = packaging.shape
        text = (
            f"{' and '.join(packaging.lost)}: packaged as {shape.sockets} sockets of {shape.dies} "
            f"dies, {shape.cores} cores and {shape.threads} threads"
        )
        yield ImportChange(ChangeKind.PACKAGING, text)
    if packaging.shape is None:
        lost = " and ".join(packaging.lost) or "CPUs are not in even blocks"
        text = f"{lost}: each CPU becomes a socket of its own"
        yield ImportChange(ChangeKind.PACKAGING, text)


def _without_slit(nodes: int) -> list[list[int]]:
    """Return LOCAL_DISTANCE and REMOTE_DISTANCE of include/linux/topology.h."""
    return [[LOCAL_DISTANCE if a == b else 20 for b in range(nodes)] for a in range(nodes)]


def _check_nodes(found: Sequence[FoundNode], file: Path | str) -> None:
    if not found:
        raise UserError("no NUMA node found", file=file)
    numbers = [node.id for node in found]
    if len(set(numbers)) < len(numbers):
        raise UserError("a node is described twice", file=file)
    if len(found) > MAX_NODES:
        raise UserError(f"{len(found)} nodes; at most {MAX_NODES} are possible", file=file)
    cpus = [cpu for node in found for cpu in node.cpus]
    if not cpus:
        raise UserError("no node has a CPU", file=file)
    if len(set(cpus)) < len(cpus):
        raise UserError("a CPU is in two nodes", file=file)
    if len(cpus) > MAX_CPUS:
        raise UserError(f"{len(cpus)} CPUs; at most {MAX_CPUS} are possible", file=file)
    if not any(node.memory_mib for node in found):
        raise UserError("no node has memory", file=file)
    if any(not 0 <= node.memory_mib <= MAX_MEMORY_MIB for node in found):
        raise UserError(f"a node has more than {MAX_MEMORY_MIB} MiB of memory", file=file)


def _check_distances(
    found: Sequence[FoundNode], distances: Sequence[Sequence[int]], file: Path | str
) -> None:
    if len(distances) != len(found) or any(len(row) != len(found) for row in distances):
        raise UserError(f"the distances are not a table of {len(found)} x {len(found)}", file=file)
    for a, row in enumerate(distances):
        for b, distance in enumerate(row):
            if a != b and not LOCAL_DISTANCE < distance <= UNREACHABLE:
                raise UserError(
                    f"distance {distance} from node {found[a].id} to node {found[b].id}; "
                    "distances between nodes are 11 to 255",
                    file=file,
                )
        if row[a] != LOCAL_DISTANCE:
            raise UserError(
                f"node {found[a].id} is {row[a]} away from itself; that is always 10", file=file
            )
