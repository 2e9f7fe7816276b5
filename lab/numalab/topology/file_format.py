"""The keys of a topology file, the values each may have, and their JSON Schema."""

import json
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)

from numalab.document import Document
from numalab.topology.limits import (
    MAX_CPUS,
    MAX_DISTANCE,
    MAX_LATENCY_NS,
    MAX_MEMORY_MIB,
    MAX_NODES,
    UNREACHABLE,
)
from numalab.topology.shapes.shape import SHAPES, Count, HopDistance, Shape, read_shape

NodeNumber = Annotated[int, Field(ge=0, lt=MAX_NODES)]
TableDistance = Annotated[int, Field(ge=10, le=UNREACHABLE)]
CpuCount = Annotated[int, Field(ge=0, le=MAX_CPUS)]
CpuList = Annotated[str, Field(max_length=2000)]
MemoryMib = Annotated[int, Field(ge=0, le=MAX_MEMORY_MIB)]
Nanoseconds = Annotated[int, Field(ge=1, le=MAX_LATENCY_NS)]
MegabytesPerSecond = Annotated[int, Field(ge=1, le=10_000_000)]


def _give(expected: str) -> WrapValidator:
    """Replace the messages of all forms of a value by one, with the expected value."""

    def check(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        try:
            return validate(_tuples(value))
        except ValidationError:
            raise ValueError(f"give {expected}; found {repr(value)[:60]}") from None

    return WrapValidator(check)


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value


class CpuTable(Document):
    """`[cpu]`: the packaging of the CPUs of the whole machine, like QEMU's `-smp`."""

    sockets: Count | None = Field(
        default=None, description="Sockets in the machine; by default one for each node with CPUs."
    )
    dies: Count = Field(default=1, description="Dies in each socket.")
    threads: Count = Field(default=1, description="Threads in each core.")
    llc: Literal["die", "none"] = Field(
        default="die", description="What shares a last-level cache: the CPUs of a die, or none."
    )


class InterconnectTable(Document):
    """`[[interconnects]]`: latency and bandwidth of one initiator's access to one target (HMAT)."""

    initiator: NodeNumber = Field(description="The node whose CPUs make the access.")
    target: NodeNumber = Field(description="The node that holds the memory.")
    latency_ns: Nanoseconds | None = Field(
        default=None, description="Access latency in nanoseconds."
    )
    bandwidth_kib_s: Annotated[int, Field(ge=1, le=1 << 40)] | None = Field(
        default=None, description="Access bandwidth in KiB/s."
    )


class MemoryTable(Document):
    """`[memory]`: the speed of memory in `timed` mode. Each key has a default."""

    latency_ns: Annotated[
        Nanoseconds | tuple[tuple[Nanoseconds, ...], ...] | None,
        _give(
            "a number of nanoseconds from 1 to 1000000, or a table of them, one row for each node"
        ),
    ] = Field(
        default=None,
        description="Latency of a node's own memory, other nodes' by distance; or a table, one row "
        "for each node. By default the latencies of the interconnects, or 90 ns.",
    )
    bandwidth_mb_s: Annotated[
        MegabytesPerSecond | tuple[MegabytesPerSecond, ...] | None,
        _give("a number of MB/s from 1 to 10000000, or a list of them, one for each node"),
    ] = Field(
        default=None,
        description="Bandwidth of each node's memory in 10^6 bytes a second: one number for all, "
        "or a list. By default 0.8 lines a CPU and latency.",
    )
    link_bandwidth_mb_s: Annotated[
        MegabytesPerSecond | tuple[tuple[MegabytesPerSecond, ...], ...] | None,
        _give("a number of MB/s from 1 to 10000000, or a table of them, one row for each node"),
    ] = Field(
        default=None,
        description="Bandwidth of each direction of a link, or a table: a row for each node that "
        "reads. By default as the interconnects, or half of a memory's.",
    )
    channels: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="Channels of a memory: the more, the later latency rises with load (8).",
    )
    outstanding_lines: Annotated[int, Field(ge=1, le=64)] | None = Field(
        default=None,
        description="Lines of a sequential access that a CPU has under way at a time (1), as "
        "hardware prefetchers do.",
        exclude_if=lambda lines: lines is None,  # newer than the first results: keeps their digest
    )
    l1_kib: Literal[4, 8, 16, 32, 64, 128, 256] | None = Field(
        default=None, description="First-level cache of each CPU (32); its hits cost nothing."
    )
    l2_kib: Annotated[int, Field(ge=0, le=1 << 20)] | None = Field(
        default=None,
        description="Second-level cache of each CPU, 0 for none. By default an eighth of the "
        "last-level cache.",
    )
    l2_ns: Nanoseconds | None = Field(default=None, description="A hit in it (5).")
    llc_kib: Annotated[int, Field(ge=4, le=1 << 24)] | None = Field(
        default=None,
        description="Each last-level cache. By default a 1024th of the memory, shared out.",
    )
    llc_ns: Nanoseconds | None = Field(default=None, description="A hit in it (20).")
    interrupt_ns: Nanoseconds | None = Field(
        default=None,
        description="An interrupt between two CPUs of a node (1000); to another node it takes as "
        "much longer as memory does.",
    )
    far_may_be_nearer: bool = Field(
        default=False, description="Another node's memory may be faster than a node's own."
    )


Figure = Literal["distances", "latency", "bandwidth"]


class PublishedTable(Document):
    """`[published]`: figures that were measured on a machine; the others are derived."""

    figures: Annotated[tuple[Figure, ...], Field(min_length=1, max_length=3)] = Field(
        description="Which ones. Bandwidths keep their proportions only."
    )
    measured_by: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="Who measured them."
    )
    date: Annotated[str, Field(pattern=r"^\d{4}(-\d{2}(-\d{2})?)?$")] = Field(
        description="Year, month or day of the measurement, such as 2025-03-25."
    )

    @field_validator("measured_by")
    @classmethod
    def _check_printable(cls, value: str) -> str:
        return _printable(value)

    @field_validator("date")
    @classmethod
    def _check_date(cls, value: str) -> str:
        try:
            date.fromisoformat(f"{value}-01-01"[:10])
        except ValueError:
            raise ValueError(f"no such date: {value!r}") from None
        return value

    @field_validator("figures")
    @classmethod
    def _check_unique(cls, value: tuple[Figure, ...]) -> tuple[Figure, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"name each figure once, found {', '.join(value)}")
        return value


def _printable(value: str) -> str:
    if value.isprintable():
        return value
    raise ValueError(f"write one line without control characters, found {repr(value)[:60]}")


class TopologyFile(Document):
    """A topology file: nodes, and exactly one of `shape`, `links` and `matrix`."""

    summary: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        description="A line about the machine."
    )
    source: Annotated[str, Field(max_length=1000)] = Field(
        default="", description="Where the numbers of a real machine come from."
    )
    published: PublishedTable | None = Field(
        default=None,
        exclude_if=lambda table: table is None,
        description="Published figures; by default none are measured.",
    )
    nodes: Annotated[int, Field(ge=1, le=MAX_NODES)] = Field(
        description="The number of NUMA nodes."
    )
    cpus: Annotated[
        CpuCount
        | Annotated[tuple[CpuCount, ...], Field(max_length=MAX_NODES)]
        | Annotated[tuple[CpuList, ...], Field(max_length=MAX_NODES)],
        _give(
            f"a number of CPUs from 0 to {MAX_CPUS}, a list of such numbers, or a list of CPU lists"
            ' such as "0-3,8"'
        ),
    ] = Field(
        description="CPUs of each node: one number for all, a list of numbers, or a list of CPU "
        'lists such as "0-3,8".'
    )
    memory_mib: Annotated[
        MemoryMib | Annotated[tuple[MemoryMib, ...], Field(max_length=MAX_NODES)],
        _give(f"a number of MiB from 0 to {MAX_MEMORY_MIB}, or a list of such numbers"),
    ] = Field(description="Memory of each node in MiB: one number for all, or a list.")
    cpu: CpuTable = Field(default=CpuTable(), description="The packaging of CPUs.")
    shape: Annotated[SerializeAsAny[Shape], BeforeValidator(read_shape)] | None = Field(
        default=None, description="A named shape."
    )
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

    memory: MemoryTable = Field(
        default=MemoryTable(), description="The speed of memory in timed mode."
    )

    @field_validator("summary", "source")
    @classmethod
    def _check_printable(cls, value: str) -> str:
        return _printable(value)

    @field_validator("distances", mode="before")
    @classmethod
    def _check_no_table(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        if any(isinstance(row, list) for row in value):
            raise ValueError("these go by hops, with links; a table of distances is called matrix")
        return tuple(value)  # strict: a list from a validator is not a JSON array


def render_schema() -> str:
    """Render the JSON Schema (draft 2020-12) of a topology file."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TopologyFile.model_json_schema(),
        "title": "numalab topology",
    }
    shapes = {name: shape.model_json_schema() for name, shape in SHAPES.all().items()}
    for name, shape in shapes.items():
        shape["properties"]["kind"] = {"const": name, **shape["properties"]["kind"]}
    schema["$defs"]["Shape"] = {"oneOf": [*shapes.values()]}
    return json.dumps(schema, indent=1) + "\n"
