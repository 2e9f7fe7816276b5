"""A NUMA machine: nodes, CPUs, distances and interconnects."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from numalab.cpulist import format_cpulist
from numalab.topology.file_format import MemoryTable, PublishedTable
from numalab.topology.limits import LOCAL_DISTANCE, UNREACHABLE
from numalab.topology.shapes.shape import Shape
from numalab.units import counted

LastLevelCache = Literal["die", "none"]


@dataclass(frozen=True)
class Node:
    """A NUMA node: its guest CPU numbers (may be none) and its memory (may be 0)."""

    id: int
    cpus: tuple[int, ...]
    memory_mib: int


def describe_node(node: Node) -> tuple[str, str]:
    """Write the CPUs and the memory of a node for people."""
    cpus = f"CPUs {format_cpulist(node.cpus)}" if node.cpus else "no CPUs"
    return cpus, f"{node.memory_mib} MiB" if node.memory_mib else "no memory"


@dataclass(frozen=True)
class CpuShape:
    """The packaging of the CPUs of a machine; the product is the number of CPUs.

    CPU numbers count threads first, then cores, dies and sockets, as in QEMU and libvirt.
    """

    sockets: int
    dies: int
    cores: int
    threads: int

    @property
    def cpus(self) -> int:
        """The number of CPUs."""
        return self.sockets * self.dies * self.cores * self.threads

    def socket_of(self, cpu: int) -> int:
        """Return the socket of a CPU."""
        return cpu // (self.dies * self.cores * self.threads)

    def die_of(self, cpu: int) -> int:
        """Return the die of a CPU, counted over the whole machine."""
        return cpu // (self.cores * self.threads)

    def core_of(self, cpu: int) -> int:
        """Return the core of a CPU, counted over the whole machine."""
        return cpu // self.threads

    def apic_id(self, cpu: int) -> int:
        """Return QEMU's APIC id of a CPU, which may be larger than the CPU's number.

        Threads, cores and dies have separate bits (include/hw/i386/topology.h, QEMU 7.2).
        """
        number, width = 0, 0
        for count in (self.threads, self.cores, self.dies):
            cpu, place = divmod(cpu, count)
            number |= place << width
            width += (count - 1).bit_length()
        return cpu << width | number


def describe_shape(shape: CpuShape) -> str:
    """Write a packaging for people: `2 sockets x 1 die x 4 cores x 1 thread`."""
    return " x ".join(counted(count, name.removesuffix("s")) for name, count in vars(shape).items())


@dataclass(frozen=True)
class Interconnect:
    """The HMAT's values of accesses from an initiator to a target; None where it has none."""

    initiator: int
    target: int
    latency_ns: int | None
    bandwidth_kib_s: int | None


LARGEST_IN_HMAT = 0xFFFE  # times the unit; UINT16_MAX stands for no value


def hmat_mib_s(kib_s: Sequence[int]) -> tuple[int, ...]:
    """Return bandwidths in MiB/s as the HMAT has them: rounded down to multiples of one unit.

    The unit is a power of two, and the largest has at most 16 bits (`parse_numa_hmat_lb()`, QEMU
    7.2, hw/core/numa.c).
    """
    whole = [max(speed >> 10, 1) for speed in kib_s]
    unit = 1
    while max(whole, default=0) // unit > LARGEST_IN_HMAT:
        unit *= 2
    return tuple(max(speed // unit, 1) * unit for speed in whole)


def describe_bandwidth(kib_s: int) -> str:
    """Write a bandwidth of the HMAT for people, in GiB/s."""
    return f"{kib_s / (1 << 20):.4g} GiB/s"


@dataclass(frozen=True)
class Topology:
    """A NUMA machine. `distances[from][to]` is the SLIT; a node's `id` is its place in `nodes`.

    `cpu_shape` is None when the CPUs cannot be packaged evenly; then each CPU is its own socket
    (see `packaging`). The CPUs of an `llc` share a last-level cache. `shape` is the file's, None
    for links and tables. `drawn_links` are the links of the shape or of the file. `memory` is the
    table of the file, which `memory.timing` works out, `slow_motion` times slower. `published` is
    None if no figure is published.
    """

    name: str
    summary: str
    source: str
    nodes: tuple[Node, ...]
    distances: tuple[tuple[int, ...], ...]
    cpu_shape: CpuShape | None
    llc: LastLevelCache = "die"
    interconnects: tuple[Interconnect, ...] = ()
    shape: Shape | None = None
    drawn_links: tuple[tuple[int, int], ...] = ()
    memory: MemoryTable = field(default_factory=MemoryTable)
    published: PublishedTable | None = None
    slow_motion: int = 1

    @cached_property
    def cpu_count(self) -> int:
        """The number of CPUs."""
        return sum(len(node.cpus) for node in self.nodes)

    @cached_property
    def memory_mib(self) -> int:
        """The memory of all nodes, in MiB."""
        return sum(node.memory_mib for node in self.nodes)

    @cached_property
    def packaging(self) -> CpuShape:
        """The CPU shape, or one socket for each CPU without a shape."""
        return self.cpu_shape or CpuShape(self.cpu_count, 1, 1, 1)

    @cached_property
    def nodes_of_cpus(self) -> dict[int, int]:
        """The node of each CPU."""
        return {cpu: node.id for node in self.nodes for cpu in node.cpus}

    def node_of_cpu(self, cpu: int) -> int:
        """Return the node of a CPU. Raises KeyError for an unknown CPU."""
        return self.nodes_of_cpus[cpu]

    @cached_property
    def links(self) -> tuple[tuple[int, int], ...]:
        """The pairs of nodes (smaller number first) that a drawing joins with a line.

        These are the links of the shape or the file. For a table they are the pairs without a
        detour over a third node that is as short, in distance above local.
        """
        if self.drawn_links:
            return self.drawn_links
        ids = range(len(self.nodes))
        pairs = ((a, b) for a in ids for b in ids if a < b)
        return tuple((a, b) for a, b in pairs if not self._has_detour(a, b))

    def _has_detour(self, a: int, b: int) -> bool:
        apart = self._apart
        direct = apart(a, b)
        if direct >= UNREACHABLE - LOCAL_DISTANCE:
            return True
        between = (c for c in range(len(self.nodes)) if c not in (a, b))
        return any(
            apart(a, c) < direct and apart(c, b) < direct and apart(a, c) + apart(c, b) <= direct
            for c in between
        )

    def _apart(self, a: int, b: int) -> int:
        return min(self.distances[a][b], self.distances[b][a]) - LOCAL_DISTANCE


def describe_distance(topology: Topology, a: int, b: int) -> str:
    """Write the distance between two nodes, or those of both directions: `20 / 30`."""
    out, back = topology.distances[a][b], topology.distances[b][a]
    return str(out) if out == back else f"{out} / {back}"


def describe_figures(topology: Topology) -> str:
    """Write which figures of a machine are published: `published: distances, latency`."""
    if topology.published is None:
        return "not published"
    return f"published: {', '.join(topology.published.figures)}"


def memory_first(topology: Topology) -> tuple[int, ...]:
    """Return the nodes in an order that begins with a node with memory.

    The memory of a PC begins at address 0, the place of its kernel, and QEMU lays memory out by
    node. The guest's numbers do not change: its kernel numbers nodes by their CPUs.
    """
    first = next(node.id for node in topology.nodes if node.memory_mib)
    return (first, *(node.id for node in topology.nodes if node.id != first))


def renumbered(topology: Topology, order: Sequence[int]) -> Topology:
    """Return the machine in which node `order[n]` is node n."""
    new = {old: number for number, old in enumerate(order)}
    return replace(
        topology,
        nodes=tuple(replace(topology.nodes[old], id=new[old]) for old in order),
        distances=tuple(tuple(topology.distances[a][b] for b in order) for a in order),
        interconnects=tuple(
            replace(access, initiator=new[access.initiator], target=new[access.target])
            for access in topology.interconnects
        ),
        shape=None,
        drawn_links=tuple(
            (min(new[a], new[b]), max(new[a], new[b])) for a, b in topology.drawn_links
        ),
        memory=_reordered(topology.memory, order),
    )


def _reordered(table: MemoryTable, order: Sequence[int]) -> MemoryTable:
    """Return the speed of memory with rows, and columns of tables, in another order of nodes."""
    rows = {key: value for key, value in vars(table).items() if isinstance(value, tuple)}
    return table.model_copy(
        update={
            key: tuple(
                tuple(row[node] for node in order) if isinstance(row, tuple) else row
                for row in (value[node] for node in order)
            )
            for key, value in rows.items()
        }
    )
