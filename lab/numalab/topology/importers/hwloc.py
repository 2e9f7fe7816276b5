"""Imports hwloc's XML (`lstopo --of xml`), of hwloc 1 and 2."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path

from numalab.errors import UserError
from numalab.topology.importers.common import FoundNode, Imported, imported_topology
from numalab.topology.importers.packaging import CpuPlace
from numalab.topology.limits import LOCAL_DISTANCE

_CPUSET = re.compile(r"(?:0x[0-9a-f]{1,8})(?:,(?:0x[0-9a-f]{1,8}|))*")


def parse_hwloc(text: str, *, name: str, source: str, file: Path | str) -> Imported:
    """Read the XML of `lstopo --of xml`.

    Takes NUMANode objects with their local memory, the places of the CPUs (Package or Socket, Core,
    caches), and the latency table of the nodes. A machine without NUMANode objects is one node.
    Raises UserError for anything that is not such XML.
    """
    if "<!ENTITY" in text:
        raise UserError("XML entities are not read", file=file)
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise UserError(f"not XML: {error}", file=file) from None
    if root.tag != "topology":
        raise UserError(f"not hwloc's XML: the root is <{root.tag[:40]}>", file=file)
    objects = list(root.iter("object"))
    elements = [each for each in objects if each.get("type") == "NUMANode"]
    if not elements:
        elements = [each for each in objects if each.get("type") == "Machine"][:1]
    if not elements:
        raise UserError("no NUMA node found", file=file)
    online = {cpu for each in objects if each.get("type") == "PU" for cpu in _own(each, file)}
    nodes = _nodes([_node(each, file) for each in elements], online)
    indexes = {each.get("gp_index", ""): each.get("os_index", "0") for each in elements}
    return imported_topology(
        nodes,
        _distances(root, [node.id for node in nodes], indexes, file),
        name=name,
        source=source,
        file=file,
        places=_places(objects, file),
    )


def _node(element: ET.Element, file: Path | str) -> FoundNode:
    number = _number(element.get("os_index", None), "os_index", file)
    memory = _number(element.get("local_memory", "0"), "local_memory", file)
    return FoundNode(number, _own(element, file), memory >> 20)


def _nodes(found: list[FoundNode], online: set[int]) -> list[FoundNode]:
    """Give each CPU to one node: to that with the fewest CPUs, of these the first.

    hwloc gives a node of memory alone (HBM, CXL) the CPUs that are nearest to it, which are those
    of other nodes.
    """
    owner: dict[int, int] = {}
    for node in sorted(found, key=lambda node: (len(node.cpus), node.id)):
        for cpu in node.cpus:
            owner.setdefault(cpu, node.id)
    return [
        replace(
            node,
            cpus=tuple(
                cpu for cpu in node.cpus if owner[cpu] == node.id and (not online or cpu in online)
            ),
        )
        for node in found
    ]


def _places(objects: list[ET.Element], file: Path | str) -> dict[int, CpuPlace]:
    """Return where each CPU is: its package, core and last-level cache, where the XML has these."""
    packages = _holders([each for each in objects if each.get("type") in PACKAGES], file)
    cores = _holders([each for each in objects if each.get("type") == "Core"], file)
    caches = _holders(sorted(filter(_cache_level, objects), key=_cache_level), file)
    cpus = [cpu for each in objects if each.get("type") == "PU" for cpu in _own(each, file)]
    return {
        cpu: CpuPlace(packages[cpu], cores.get(cpu, ("PU", cpu)), caches.get(cpu))
        for cpu in cpus
        if cpu in packages
    }


PACKAGES = ("Package", "Socket")


def _holders(objects: list[ET.Element], file: Path | str) -> dict[int, Hashable]:
    """Map each CPU to the last of the objects that has it."""
    return {cpu: place for place, each in enumerate(objects) for cpu in _own(each, file)}


def _cache_level(element: ET.Element) -> int:
    """Return the level of a data cache, in either format of XML; 0 for what is none."""
    kind = element.get("type", "")
    if found := re.fullmatch(r"L([1-9])Cache", kind):
        return int(found[1])
    if kind == "Cache" and element.get("cache_type", "0") != "2":
        depth = element.get("depth", "")
        return int(depth) if re.fullmatch(r"[1-9]", depth) else 0
    return 0


def _own(element: ET.Element, file: Path | str) -> tuple[int, ...]:
    return _cpus(element.get("cpuset", ""), file)


def _number(text: str | None, attribute: str, file: Path | str) -> int:
    if text is None or not re.fullmatch(r"[0-9]{1,18}", text):
        raise UserError(f"{attribute} is not a number: {str(text)[:40]!r}", file=file)
    return int(text)


def _cpus(text: str, file: Path | str) -> tuple[int, ...]:
    """Read hwloc's CPU set: 32-bit words, the most significant first, an empty word is 0."""
    if not text or text == "0x0":
        return ()
    if not _CPUSET.fullmatch(text) or len(text) > 4096:
        raise UserError(f"not a CPU set: {text[:60]!r}", file=file)
    mask = 0
    for word in text.split(","):
        mask = mask << 32 | (int(word, 16) if word else 0)
    return tuple(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def _distances(
    root: ET.Element, order: list[int], by_gp: dict[str, str], file: Path | str
) -> list[list[int]] | None:
    """Find the nodes' latencies in either format, in the order of the NUMANode objects.

    A machine may have several tables, which hwloc or its user has measured. The firmware's is that
    with 10 from each node to itself (ACPI 6.5, 5.2.17); without one it is the first.
    """
    tables = [*_tables(root, order, by_gp, file), *_tables_of_hwloc_1(root, order, file)]
    of_firmware = (each for each in tables if _is_slit(each))
    return next(of_firmware, tables[0] if tables else None)


def _is_slit(table: list[list[int]]) -> bool:
    return all(row[node] == LOCAL_DISTANCE for node, row in enumerate(table))


def _tables(
    root: ET.Element, order: list[int], by_gp: dict[str, str], file: Path | str
) -> Iterator[list[list[int]]]:
    for table in root.iter("distances2"):
        if table.get("type") != "NUMANode" or "Bandwidth" in table.get("name", ""):
            continue
        indexes = " ".join(part.text or "" for part in table.iter("indexes")).split()
        values = " ".join(part.text or "" for part in table.iter("u64values")).split()
        if table.get("indexing") == "gp":
            indexes = [by_gp.get(word, word) for word in indexes]
        numbers = [_number(word, "index", file) for word in indexes]
        yield _square(numbers, [_number(word, "distance", file) for word in values], order, file)


def _tables_of_hwloc_1(
    root: ET.Element, order: list[int], file: Path | str
) -> Iterator[list[list[int]]]:
    for table in root.iter("distances"):
        latencies = [each.get("value", "") for each in table.iter("latency")]
        if len(latencies) == len(order) ** 2:
            base = _float(table.get("latency_base", "10"), file)
            found = [round(_float(value, file) * base) for value in latencies]
            yield _square(order, found, order, file)


def _float(text: str, file: Path | str) -> float:
    if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,9})?", text):
        raise UserError(f"not a latency: {text[:40]!r}", file=file)
    return float(text)


def _square(
    indexes: list[int], values: list[int], order: list[int], file: Path | str
) -> list[list[int]]:
    count = len(indexes)
    if len(values) != count * count or sorted(indexes) != sorted(order):
        raise UserError(f"the distances are not a table of {len(order)} x {len(order)}", file=file)
    place = {number: index for index, number in enumerate(indexes)}
    return [[values[place[a] * count + place[b]] for b in order] for a in order]
