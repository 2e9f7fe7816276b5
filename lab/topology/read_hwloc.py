"""Imports hwloc's XML (`lstopo --of xml`), of hwloc 1 and 2."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path

from lab.errors import UserError
from lab.topology.imported import FoundNode, Imported, imported_topology

_CPUSET = re.compile(r"(?:0x[0-9a-f]{1,8})(?:,(?:0x[0-9a-f]{1,8}|))*")


def parse_hwloc(text: str, *, name: str, source: str, file: Path | str) -> Imported:
    """Read the XML of `lstopo --of xml`.

    Takes NUMANode objects with their CPU sets and local memory, Package (or Socket) objects, and
    the latency table of the nodes. Raises UserError for anything that is not such XML.
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
    nodes = [_node(each, file) for each in objects if each.get("type") == "NUMANode"]
    if not nodes:
        raise UserError("no NUMA node found", file=file)
    order = [node.id for node in nodes]
    sockets = sum(each.get("type") in ("Package", "Socket") for each in objects)
    cores = sum(each.get("type") == "Core" for each in objects)
    threads = sum(each.get("type") == "PU" for each in objects)
    even = cores and threads % cores == 0
    return imported_topology(
        nodes,
        _distances(root, order, file),
        name=name,
        source=source,
        file=file,
        sockets=sockets or None,
        threads=threads // cores if even else 1,
    )


def _node(element: ET.Element, file: Path | str) -> FoundNode:
    number = _number(element.get("os_index"), "os_index", file)
    memory = _number(element.get("local_memory", "0"), "local_memory", file)
    return FoundNode(number, _cpus(element.get("cpuset", ""), file), memory >> 20)


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


def _distances(root: ET.Element, order: list[int], file: Path | str) -> list[list[int]]:
    """Find the nodes' latencies in either format, in the order of the NUMANode objects."""
    for table in root.iter("distances2"):
        if table.get("type") != "NUMANode" or "Bandwidth" in table.get("name", ""):
            continue
        indexes = " ".join(part.text or "" for part in table.iter("indexes")).split()
        values = " ".join(part.text or "" for part in table.iter("u64values")).split()
        numbers = [_number(word, "index", file) for word in indexes]
        return _square(numbers, [_number(word, "distance", file) for word in values], order, file)
    for table in root.iter("distances"):
        latencies = [each.get("value", "") for each in table.iter("latency")]
        if len(latencies) == len(order) ** 2:
            base = _float(table.get("latency_base", "10"), file)
            found = [round(_float(value, file) * base) for value in latencies]
            return _square(order, found, order, file)
    if len(order) == 1:
        return [[10]]
    raise UserError("there is no table of the nodes' distances", file=file)


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
