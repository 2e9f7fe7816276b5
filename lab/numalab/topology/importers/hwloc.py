"""Imports hwloc's XML (`lstopo --of xml`), of hwloc 1 and 2."""

import re
from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path

from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.topology.importers.hwloc_xml import (
    PACKAGES,
    Object,
    Xml,
    node_set,
    number,
    parse_xml,
    read_objects,
    unknown_types,
)
from numalab.topology.importers.imported import (
    ChangeKind,
    ImportChange,
    Imported,
    ImportedNode,
    Location,
    clusters_left_out,
    imported_topology,
    memory_speeds_left_out,
)
from numalab.topology.importers.packaging import CpuPlace
from numalab.topology.limits import LOCAL_DISTANCE, MAX_NODES


def parse_hwloc(text: str, *, name: str, source: str, file: Path | str) -> Imported:
    """Read the XML of `lstopo --of xml`.

    Uses NUMANode objects with their local memory, the places of the CPUs (Package or Socket, Core,
    caches), and the latency table of the nodes. A machine without NUMANode objects is one node.
    Raises UserError, with the line, for other or contradictory XML.
    """
    xml = parse_xml(text, file)
    if xml.root.tag != "topology":
        raise UserError(f"not hwloc's XML: the root is <{xml.root.tag[:40]}>", file=file)
    objects = read_objects(xml)
    holders = [item for item in objects if item.type == "NUMANode"]
    holders = holders or [item for item in objects if item.type == "Machine"][:1]
    if not holders:
        raise UserError("no NUMA node found", file=file)
    if len(holders) > MAX_NODES:
        raise UserError(f"{len(holders)} nodes; at most {MAX_NODES} are possible", file=file)
    nodes = [_node(item) for item in holders]
    pus = {cpu: item for item in objects if item.type == "PU" for cpu in item.cpus or ()}
    _check_nested(nodes)
    _check_membership(holders, pus)
    rows, rows_at = _distances(xml, holders) or (None, None)
    return imported_topology(
        _nodes(nodes, set(pus)),
        rows,
        name=name,
        source=source,
        file=file,
        places=_places(objects),
        rows_at=[rows_at] * len(nodes) if rows_at else (),
        remarks=[*_remarks(objects, nodes, set(pus)), *_memory_speeds(xml)],
    )


def _node(item: Object) -> ImportedNode:
    node, memory = item.number("os_index"), item.number("local_memory", "0")
    pages = [page for page in item.element if page.tag == "page_type"]
    sizes = [number(page.get("size"), "size", item.at) for page in pages]
    counts = [number(page.get("count", "0"), "count", item.at) for page in pages]
    total = sum(size * count for size, count in zip(sizes, counts, strict=True))
    if total and abs(total - memory) >= min(sizes):
        raise item.at.error(f"local_memory is {memory}, and its pages are {total} bytes")
    return ImportedNode(node, tuple(sorted(item.cpus or ())), memory >> 20, item.at, item.at)


def _check_nested(nodes: list[ImportedNode]) -> None:
    """Check that two nodes share no CPUs, or all CPUs of the smaller node."""
    for place, node in enumerate(nodes):
        for other in nodes[:place]:
            shared = set(node.cpus) & set(other.cpus)
            if shared and len(shared) < min(len(node.cpus), len(other.cpus)):
                raise (node.cpus_at or Location("")).error(
                    f"CPUs {format_cpulist(shared)} of node {node.id} are in two nodes: node "
                    f"{other.id} has them, too ({other.cpus_at})"
                )


def _check_membership(holders: list[Object], pus: dict[int, Object]) -> None:
    """Check that each PU is in a node, and that its `nodeset` has the nodes with this PU."""
    nodes = {item.number("os_index"): item for item in holders}
    for item in holders:
        own = node_set(item)
        if item.type == "NUMANode" and own is not None and own != {item.number("os_index")}:
            raise item.at.error("the nodeset of a NUMANode is its os_index alone")
    for cpu, pu in pus.items():
        having = {node for node, item in nodes.items() if cpu in (item.cpus or ())}
        if not having:
            raise pu.at.error(f"CPU {cpu} is in no node")
        listed = node_set(pu)
        # In hwloc 1, a node of memory alone has no CPUs and is in the nodesets of near CPUs.
        expected = {node for node in listed or () if node in nodes and nodes[node].cpus}
        if listed is not None and holders[0].type == "NUMANode" and expected != having:
            raise pu.at.error(
                f"CPU {cpu} is in nodes {format_cpulist(having)}, and its nodeset is "
                f"{format_cpulist(listed)}"
            )


def _remarks(objects: list[Object], nodes: list[ImportedNode], pus: set[int]) -> list[ImportChange]:
    remarks = []
    if pus and (offline := {cpu for node in nodes for cpu in node.cpus} - pus):
        text = f"left out CPUs without a PU, which are offline: {format_cpulist(offline)}"
        remarks.append(ImportChange(ChangeKind.OFFLINE, text))
    if unknown := unknown_types(objects):
        text = f"left out objects of unknown type: {', '.join(unknown[:10])}"
        remarks.append(ImportChange(ChangeKind.UNKNOWN_OBJECTS, text))
    return [*remarks, *clusters_left_out(_clusters(objects))]


def _memory_speeds(xml: Xml) -> list[ImportChange]:
    """Return the note about latencies and bandwidths, as of `hwloc_memattr_register()`, if any."""
    names = (item.get("name", "") for item in xml.root.iter("memattr") if len(item))
    speeds = any(name.endswith(("Latency", "Bandwidth")) for name in names)
    return [memory_speeds_left_out()] if speeds else []


def _clusters(objects: list[Object]) -> Iterator[int]:
    """Yield the numbers of CPUs of caches that several cores share, within the last-level ones."""
    caches = [(item, frozenset(item.cpus or ())) for item in objects if _cache_level(item)]
    cores = [frozenset(item.cpus or ()) for item in objects if item.type in ("Core", "PU")]
    largest = {cpu: cpus for _, cpus in sorted(caches, key=lambda c: len(c[1])) for cpu in cpus}
    for _, cpus in caches:
        if cpus and cpus < largest[min(cpus)] and not any(cpus <= core for core in cores):
            yield len(cpus)


def _nodes(nodes: list[ImportedNode], online: set[int]) -> list[ImportedNode]:
    """Assign each CPU to the node with the fewest CPUs, of these the first.

    In hwloc, a node of memory alone (HBM, CXL) has the CPUs of the nearest other nodes.
    """
    owner: dict[int, int] = {}
    for node in sorted(nodes, key=lambda node: (len(node.cpus), node.id)):
        for cpu in node.cpus:
            owner.setdefault(cpu, node.id)
    return [
        replace(
            node,
            cpus=tuple(
                cpu for cpu in node.cpus if owner[cpu] == node.id and (not online or cpu in online)
            ),
        )
        for node in nodes
    ]


def _places(objects: list[Object]) -> dict[int, CpuPlace]:
    """Return the package, core and last-level cache of each CPU in a package.

    In a source with cores and without packages, these are unknown.
    """
    packages = _holders([item for item in objects if item.type in PACKAGES])
    unknown = not packages and any(item.type == "Core" for item in objects)
    cores = _holders([item for item in objects if item.type == "Core"])
    caches = _holders(sorted(filter(_cache_level, objects), key=_cache_level))
    cpus = [cpu for item in objects if item.type == "PU" for cpu in item.cpus or ()]
    return {
        cpu: CpuPlace(packages.get(cpu), cores.get(cpu, ("PU", cpu)), caches.get(cpu))
        for cpu in cpus
        if unknown or cpu in packages
    }


def _holders(objects: list[Object]) -> dict[int, Hashable]:
    """Map each CPU to the last of its objects."""
    return {cpu: place for place, item in enumerate(objects) for cpu in item.cpus or ()}


def _cache_level(item: Object) -> int:
    """Return the level of a data cache, in either format of XML; 0 for other objects."""
    depth = item.element.get("depth", "")
    if match := re.fullmatch(r"L([1-9])i?Cache", item.type):
        if depth not in ("", match[1]):
            raise item.at.error(f"{item.type} of depth {depth[:40]!r}")
        return 0 if "i" in item.type else int(match[1])
    if item.type == "Cache" and item.element.get("cache_type", "0") != "2":
        if not re.fullmatch(r"[1-9]", depth):
            raise item.at.error(f"depth is not the level of a cache: {depth[:40]!r}")
        return int(depth)
    return 0


_Table = tuple[list[list[int]], Location]


def _distances(xml: Xml, nodes: list[Object]) -> _Table | None:
    """Return the nodes' latencies in either format, in the order of the NUMANode objects.

    Besides the firmware's table, a machine may have tables of measurements. The firmware's table
    has 10 from each node to itself (ACPI 6.5, 5.2.17); without such a table, it is the first.
    """
    tables = [*_tables(xml, nodes), *_tables_of_hwloc_1(xml, nodes)]
    for table in tables:
        if all(row[node] == LOCAL_DISTANCE for node, row in enumerate(table[0])):
            return table
    return tables[0] if tables else None


def _tables(xml: Xml, nodes: list[Object]) -> Iterator[_Table]:
    by_gp = {item.element.get("gp_index", ""): item.element.get("os_index", "0") for item in nodes}
    for table in xml.root.iter("distances2"):
        if table.get("type") != "NUMANode" or "Bandwidth" in table.get("name", ""):
            continue
        at = xml.at(table)
        indexes = " ".join(part.text or "" for part in table.iter("indexes")).split()
        values = " ".join(part.text or "" for part in table.iter("u64values")).split()
        if table.get("indexing") == "gp":
            if unknown := [word for word in indexes if word not in by_gp]:
                raise at.error(f"no NUMANode has the gp_index {unknown[0][:40]!r}")
            indexes = [by_gp[word] for word in indexes]
        numbers = [number(word, "index", at) for word in indexes]
        if table.get("nbobjs", str(len(numbers))) != str(len(numbers)):
            raise at.error(f"nbobjs is {table.get('nbobjs', '')[:40]}, with {len(numbers)} indexes")
        yield _square(numbers, [number(word, "distance", at) for word in values], nodes, at)


def _tables_of_hwloc_1(xml: Xml, nodes: list[Object]) -> Iterator[_Table]:
    """Yield the tables with a row for each node; other tables are of other objects."""
    for table in xml.root.iter("distances"):
        at = xml.at(table)
        latencies = [_float(item.get("value", ""), xml.at(item)) for item in table.iter("latency")]
        count = number(table.get("nbobjs", str(len(nodes))), "nbobjs", at)
        if len(latencies) != count**2:
            raise at.error(f"{len(latencies)} latencies for {count} objects")
        if count == len(nodes):
            base = _float(table.get("latency_base", "10"), at)
            order = [item.number("os_index") for item in nodes]
            yield _square(order, [round(value * base) for value in latencies], nodes, at)


def _float(text: str, at: Location) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", text):
        raise at.error(f"not a latency: {text[:40]!r}")
    return float(text)


def _square(indexes: list[int], values: list[int], nodes: list[Object], at: Location) -> _Table:
    order = [item.number("os_index") for item in nodes]
    count = len(indexes)
    if len(values) != count * count or sorted(indexes) != sorted(order):
        raise at.error(f"the distances are not a table of {len(order)} x {len(order)}")
    place = {node: index for index, node in enumerate(indexes)}
    return [[values[place[a] * count + place[b]] for b in order] for a in order], at
