"""Reads the table in which results describe a machine (`numalab.topology.load`)."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field, JsonValue

from numalab.document import Document, check_document
from numalab.errors import UserError
from numalab.topology.broken_rule import RuleBroken
from numalab.topology.build import build_topology
from numalab.topology.file_format import (
    CpuList,
    InterconnectTable,
    MemoryMib,
    NodeNumber,
    TableDistance,
    TopologyFile,
)
from numalab.topology.limits import MAX_NODES
from numalab.topology.load import topology_to_dict
from numalab.topology.model import CpuShape, LastLevelCache, Topology
from numalab.topology.shapes.shape import Count


class _Node(Document):
    id: NodeNumber
    cpus: CpuList
    memory_mib: MemoryMib


class _Packaging(Document):
    sockets: Count
    dies: Count
    cores: Count
    threads: Count


class _Machine(Document):
    name: Annotated[str, Field(max_length=200)]
    summary: str
    source: str
    nodes: Annotated[tuple[_Node, ...], Field(min_length=1, max_length=MAX_NODES)]
    distances: Annotated[
        tuple[Annotated[tuple[TableDistance, ...], Field(max_length=MAX_NODES)], ...],
        Field(max_length=MAX_NODES),
    ]
    links: Annotated[
        tuple[tuple[NodeNumber, NodeNumber], ...], Field(max_length=MAX_NODES * MAX_NODES)
    ]
    cpu_shape: _Packaging | None
    llc: LastLevelCache
    interconnects: Annotated[tuple[InterconnectTable, ...], Field(max_length=MAX_NODES * MAX_NODES)]


def read_topology_table(table: Mapping[str, JsonValue], file: Path) -> Topology:
    """Return the machine that `topology_to_dict` wrote; `file` is named in errors.

    It obeys every rule of a topology file. Its shape and the speed of its memory are not part of
    the table. Raises UserError.
    """
    machine = check_document(dict(table), _Machine, file)
    packaging = machine.cpu_shape
    document = {
        "summary": machine.summary,
        "source": machine.source,
        "nodes": len(machine.nodes),
        "cpus": [node.cpus for node in machine.nodes],
        "memory_mib": [node.memory_mib for node in machine.nodes],
        "cpu": {
            "sockets": packaging.sockets if packaging else None,
            "dies": packaging.dies if packaging else 1,
            "threads": packaging.threads if packaging else 1,
            "llc": machine.llc,
        },
        "matrix": machine.distances,
        "interconnects": [vars(link) for link in machine.interconnects],
    }
    try:
        built = build_topology(machine.name, check_document(document, TopologyFile, file))
    except RuleBroken as broken:
        raise UserError(broken.message, file=file, key=f"machine.{broken.key}") from None
    shape = CpuShape(**vars(packaging)) if packaging else None
    topology = replace(built, cpu_shape=shape, drawn_links=machine.links)
    if topology_to_dict(topology) != table or any(
        max(link) >= len(machine.nodes) for link in machine.links
    ):
        raise UserError("describes no machine that numalab could boot", file=file, key="machine")
    return topology
