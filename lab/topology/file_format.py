"""The tables of a topology file: which keys there are, and which values each may have."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from lab.document import Document
from lab.topology.model import MAX_CPUS, MAX_DISTANCE, MAX_MEMORY_MIB, MAX_NODES, UNREACHABLE

NodeNumber = Annotated[int, Field(ge=0, lt=MAX_NODES)]
HopDistance = Annotated[int, Field(ge=10, le=MAX_DISTANCE)]
TableDistance = Annotated[int, Field(ge=10, le=UNREACHABLE)]
CpuCount = Annotated[int, Field(ge=0, le=MAX_CPUS)]
CpuList = Annotated[str, Field(max_length=2000)]
MemoryMib = Annotated[int, Field(ge=0, le=MAX_MEMORY_MIB)]
Count = Annotated[int, Field(ge=1, le=MAX_CPUS)]


class ShapeTable(Document):
    """`[shape]`: a named shape and the distance of each number of hops."""

    kind: Literal["ring", "mesh", "full", "line", "star", "torus", "hypercube", "backplane"] = (
        Field(description="How the nodes are linked.")
    )
    distances: Annotated[tuple[HopDistance, ...], Field(min_length=1, max_length=MAX_NODES)] = (
        Field(description="SLIT distance of 0 hops (always 10), 1 hop, 2 hops and so on.")
    )
    rows: Count | None = Field(default=None, description="mesh and torus: rows of the grid.")
    columns: Count | None = Field(default=None, description="mesh and torus: columns of the grid.")
    wiring: Literal["neighbours", "rows-and-columns"] | None = Field(
        default=None,
        description="mesh: link each node to the next ones (the default), or to every node of "
        "its row and of its column, so that no two nodes are more than two hops apart.",
    )
    groups: Count | None = Field(
        default=None,
        description="backplane: how many groups of directly connected nodes (default 2).",
    )


class CpuTable(Document):
    """`[cpu]`: how CPUs are packaged. The numbers are of the whole machine, like QEMU's `-smp`."""

    sockets: Count | None = Field(
        default=None, description="Sockets in the machine; by default one for each node with CPUs."
    )
    dies: Count = Field(default=1, description="Dies in each socket.")
    threads: Count = Field(default=1, description="Threads in each core.")
    llc: Literal["die", "none"] = Field(
        default="die", description="Which CPUs share a last-level cache: those of a die, or none."
    )


class InterconnectTable(Document):
    """`[[interconnects]]`: latency and bandwidth of one initiator's access to one target (HMAT)."""

    initiator: NodeNumber = Field(description="The node whose CPUs make the access.")
    target: NodeNumber = Field(description="The node that holds the memory.")
    latency_ns: Annotated[int, Field(ge=1, le=1_000_000)] | None = Field(
        default=None, description="Access latency in nanoseconds."
    )
    bandwidth_kib_s: Annotated[int, Field(ge=1, le=1 << 40)] | None = Field(
        default=None, description="Access bandwidth in KiB/s."
    )


class TopologyFile(Document):
    """A topology file: nodes, and exactly one of `shape`, `links` and `matrix`."""

    summary: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="One line on what the machine is."
    )
    source: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="Where the numbers of a real machine come from."
    )
    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = Field(description="How many NUMA nodes.")
    cpus: (
        CpuCount
        | Annotated[tuple[CpuCount, ...], Field(max_length=MAX_NODES)]
        | Annotated[tuple[CpuList, ...], Field(max_length=MAX_NODES)]
    ) = Field(
        description="CPUs of each node: one number for all, a list of numbers, or a list of CPU "
        'lists such as "0-3,8".'
    )
    memory_mib: MemoryMib | Annotated[tuple[MemoryMib, ...], Field(max_length=MAX_NODES)] = Field(
        description="Memory of each node in MiB: one number for all, or a list."
    )
    cpu: CpuTable = Field(default=CpuTable(), description="How CPUs are packaged.")
    shape: ShapeTable | None = Field(default=None, description="A named shape.")
    links: (
        Annotated[
            tuple[
                Annotated[
                    tuple[Annotated[int, Field(ge=0, le=MAX_DISTANCE)], ...],
                    Field(min_length=2, max_length=3),
                ],
                ...,
            ],
            Field(max_length=MAX_NODES * MAX_NODES),
        ]
        | None
    ) = Field(
        default=None,
        description="Links as [node, node] or [node, node, distance of this link].",
    )
    distances: Annotated[tuple[HopDistance, ...], Field(max_length=MAX_NODES)] | None = Field(
        default=None,
        description="With links: SLIT distance of 0 hops (always 10), 1 hop and so on.",
    )
    matrix: (
        Annotated[
            tuple[Annotated[tuple[TableDistance, ...], Field(max_length=MAX_NODES)], ...],
            Field(max_length=MAX_NODES),
        ]
        | None
    ) = Field(
        default=None, description="The SLIT itself: one row for each node; 255 is unreachable."
    )
    interconnects: Annotated[
        tuple[InterconnectTable, ...], Field(max_length=MAX_NODES * MAX_NODES)
    ] = Field(default=(), description="Latency and bandwidth, for the HMAT.")

    @field_validator("summary", "source")
    @classmethod
    def _check_printable(cls, value: str) -> str:
        if value.isprintable():
            return value
        raise ValueError(f"write one line without control characters, found {repr(value)[:60]}")

    # Without these two, a wrong value gives one message for each of the forms it may have.
    @field_validator("cpus", mode="before")
    @classmethod
    def _check_cpus(cls, value: Any) -> Any:
        if _is_count(value, MAX_CPUS):
            return value
        if _is_list_of(value, lambda v: _is_count(v, MAX_CPUS)):
            return tuple(value)
        if _is_list_of(value, lambda v: isinstance(v, str)):
            return tuple(value)
        raise ValueError(
            f"give a number of CPUs from 0 to {MAX_CPUS}, a list of such numbers, or a list of CPU "
            f'lists such as "0-3,8"; found {repr(value)[:60]}'
        )

    @field_validator("memory_mib", mode="before")
    @classmethod
    def _check_memory(cls, value: Any) -> Any:
        limit = MAX_MEMORY_MIB
        if _is_count(value, limit):
            return value
        if _is_list_of(value, lambda v: _is_count(v, limit)):
            return tuple(value)
        raise ValueError(
            f"give a number of MiB from 0 to {limit}, or a list of such numbers; "
            f"found {repr(value)[:60]}"
        )


def _is_count(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit


def _is_list_of(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(map(fits, value))
