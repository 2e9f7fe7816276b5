"""Reads machines: topology files, and the table that stores one with results."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue

from numalab.cpulist import format_cpulist
from numalab.document import Document, check_document, document_errors, read_document, read_toml
from numalab.errors import UserError, did_you_mean
from numalab.places import find_input, list_inputs
from numalab.topology.file_format import (
    CpuList,
    InterconnectTable,
    MemoryMib,
    NodeNumber,
    TableDistance,
    TopologyFile,
)
from numalab.topology.file_rules import broken_rules, build_topology
from numalab.topology.limits import MAX_NODES, RuleBroken
from numalab.topology.memory.timing import memory_model
from numalab.topology.shapes.shape import Count
from numalab.topology.topology import CpuShape, LastLevelCache, Topology


def list_topologies() -> tuple[str, ...]:
    """Return the names of the topologies in the lab folders, sorted."""
    return tuple(path.stem for path in list_inputs("topologies", "*.toml").values())


def load_topology(name_or_path: str | Path) -> Topology:
    """Load a topology of the lab folders by its name, or a file by its path.

    Raises UserError for an unknown name (with all names), and for a file that is not a topology
    (with file, key, value and valid values).
    """
    return load_topology_file(_existing(topology_file(str(name_or_path))))


def topology_file(text: str) -> Path:
    """Return the file of a topology by its name, or by its path, where none may be.

    Raises UserError for an unknown name (with all names).
    """
    if "/" in text or text.endswith(".toml"):
        return Path(text)
    path = find_input("topologies", f"{text}.toml")
    if path is None:
        names = list_topologies()
        raise UserError(f"no topology is called {text[:80]!r}", choices=names)
    return path


def _existing(path: Path) -> Path:
    """Return the path. Raises UserError, with a suggestion, for a missing file."""
    if path.parent.is_dir() and not path.exists():
        names = (str(path.with_name(file.name)) for file in path.parent.glob("*.toml"))
        hint = did_you_mean(str(path)[:200], [*names, *list_topologies()])
        raise UserError(f"cannot read: No such file or directory{hint}", file=path)
    return path


def load_topology_file(path: Path) -> Topology:
    """Load the topology file at `path`; its name is that of the file. Raises UserError."""
    _check_name(path)
    document = read_document(path, TopologyFile)
    try:
        return build_topology(path.stem, document)
    except RuleBroken as broken:
        raise UserError(broken.message, file=path, key=broken.key) from None


def _check_name(path: Path) -> None:
    if not path.stem.isprintable():
        raise UserError("a file name with control characters cannot name a topology", file=path)


def check_topology_file(path: Path) -> tuple[UserError, ...]:
    """Return all errors of a topology file; of a file that is not TOML, only the first.

    Rules between keys are checked where their values can be read.
    """
    try:
        _check_name(path)
        table = read_toml(path)
    except UserError as error:
        return (error,)
    errors = document_errors(table, TopologyFile, path)
    unread = {re.split(r"[.\[]", error.key or "", maxsplit=1)[0] for error in errors}
    keys = TopologyFile.model_fields.keys() - unread
    stand_ins = {"summary": "x", "nodes": 1, "cpus": 1, "memory_mib": 1}
    readable = stand_ins | {key: value for key, value in table.items() if key in keys}
    document = check_document(readable, TopologyFile, path)
    return errors + tuple(
        UserError(broken.message, file=path, key=broken.key)
        for broken in broken_rules(document, unread)
    )


def topology_to_dict(topology: Topology) -> dict[str, Any]:
    """Return the topology as plain values for JSON, with CPUs as CPU lists."""
    return {
        "name": topology.name,
        "summary": topology.summary,
        "source": topology.source,
        "nodes": [
            {"id": node.id, "cpus": format_cpulist(node.cpus), "memory_mib": node.memory_mib}
            for node in topology.nodes
        ],
        "distances": [list(row) for row in topology.distances],
        "links": [list(link) for link in topology.links],
        "cpu_shape": vars(topology.cpu_shape) if topology.cpu_shape else None,
        "llc": topology.llc,
        "interconnects": [vars(access) for access in topology.interconnects],
    }


def published_to_dict(topology: Topology) -> dict[str, Any] | None:
    """Return who published which figures as plain values for JSON; None if none is."""
    if topology.published is None:
        return None
    return {**topology.published.model_dump(mode="json"), "source": topology.source}


def memory_to_dict(topology: Topology) -> dict[str, Any]:
    """Return the costs of memory in `timed` mode as plain values: tables by node, caches."""
    model = memory_model(topology)
    nodes = range(len(model.latency_ns))
    return {
        "latency_ns": [list(row) for row in model.latency_ns],
        "bandwidth_mb_s": [[round(model.bandwidth_mb_s(a, b)) for b in nodes] for a in nodes],
        "l1_kib": model.l1.kib,
        "l2_kib": model.l2.kib,
        "llc_kib": model.llc.kib,
    }


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
    """Return the machine of a table of `topology_to_dict`; errors name `file`.

    It obeys every rule of a topology file. The table has no shape and no speed of memory. Raises
    UserError.
    """
    machine = check_document(dict(table), _Machine, file)
    packaging = machine.cpu_shape
    document = {
        "summary": machine.summary,
        "source": machine.source,
        "nodes": len(machine.nodes),
        "cpus": [node.cpus for node in machine.nodes],
        "memory_mib": [node.memory_mib for node in machine.nodes],
        "cpu": (packaging.model_dump(exclude={"cores"}) if packaging else {})
        | {"llc": machine.llc},
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
        raise UserError("not a machine that numalab can boot", file=file, key="machine")
    return topology
