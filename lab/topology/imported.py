"""Turns what another machine says about itself into a topology: the part all importers share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.errors import UserError
from lab.topology.model import (
    LOCAL_DISTANCE,
    MAX_CPUS,
    MAX_MEMORY_MIB,
    MAX_NODES,
    UNREACHABLE,
    CpuShape,
    Node,
    Topology,
)

MAX_TEXT = 16 << 20  # bytes of a file that is imported


@dataclass(frozen=True)
class FoundNode:
    """A node as the other machine numbers it, with its CPU numbers and memory there."""

    id: int
    cpus: tuple[int, ...]
    memory_mib: int


@dataclass(frozen=True)
class Imported:
    """A topology, and what had to be changed to make one: for people to read.

    `old_cpus` are the CPUs' numbers on the machine itself, in the order of their new numbers.
    """

    topology: Topology
    notes: tuple[str, ...]
    old_cpus: tuple[int, ...] = ()


def imported_topology(
    found: Sequence[FoundNode],
    distances: Sequence[Sequence[int]],
    *,
    name: str,
    source: str,
    file: Path | str,
    sockets: int | None = None,
    threads: int = 1,
) -> Imported:
    """Make a topology of what was found; `distances` are in the order of `found`.

    Nodes and CPUs are numbered anew, from 0 without gaps, in the order of their old numbers. A node
    with neither CPUs nor memory is left out. Raises UserError when the machine is too large or its
    table is not one.
    """
    _check_nodes(found, file)
    _check_distances(found, distances, file)
    notes: list[str] = []
    kept = [place for place, node in enumerate(found) if node.cpus or node.memory_mib]
    if len(kept) < len(found):
        empty = [found[place].id for place in range(len(found)) if place not in kept]
        notes.append(f"left out nodes without CPUs and memory: {', '.join(map(str, empty))}")
    kept.sort(key=lambda place: found[place].id)
    if [found[place].id for place in kept] != list(range(len(kept))):
        pairs = (f"{found[place].id} is now {new}" for new, place in enumerate(kept))
        notes.append(f"numbered nodes anew: {', '.join(pairs)}")
    old_cpus = sorted(cpu for place in kept for cpu in found[place].cpus)
    if old_cpus != list(range(len(old_cpus))):
        notes.append("numbered CPUs anew, without the gaps")
    number = {cpu: new for new, cpu in enumerate(old_cpus)}
    nodes = tuple(
        Node(new, tuple(number[cpu] for cpu in sorted(found[place].cpus)), found[place].memory_mib)
        for new, place in enumerate(kept)
    )
    shape = _shape(nodes, sockets, threads, notes)
    table = tuple(tuple(distances[a][b] for b in kept) for a in kept)
    summary = f"Imported: {len(nodes)} nodes, {len(old_cpus)} CPUs"
    topology = Topology(name, summary, source, nodes, table, shape)
    return Imported(topology, tuple(notes), tuple(old_cpus))


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
            if not LOCAL_DISTANCE <= distance <= UNREACHABLE:
                raise UserError(
                    f"distance {distance} from node {found[a].id} to node {found[b].id}; "
                    "distances are 10 to 255",
                    file=file,
                )
        if row[a] != LOCAL_DISTANCE:
            raise UserError(
                f"node {found[a].id} is {row[a]} away from itself; that is always 10", file=file
            )


def _shape(
    nodes: Sequence[Node], sockets: int | None, threads: int, notes: list[str]
) -> CpuShape | None:
    """Package the CPUs: as found where it fits, else one socket for each node where that fits."""
    holders = [node for node in nodes if node.cpus]
    count = sum(len(node.cpus) for node in nodes)
    size = len(holders[0].cpus)
    blocks = all(
        node.cpus == tuple(range(place * size, (place + 1) * size))
        for place, node in enumerate(holders)
    )
    if not blocks:
        notes.append("CPUs are not in even blocks: each becomes a socket of its own")
        return None
    for wanted, each in ((sockets, threads), (sockets, 1)):
        if wanted and count % (wanted * each) == 0 and (count // wanted) % each == 0:
            return CpuShape(wanted, 1, count // (wanted * each), each)
    if sockets:
        notes.append("the sockets are not even: each node becomes one")
    return CpuShape(len(holders), 1, size, 1)
