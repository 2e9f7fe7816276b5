"""Parses hwloc's XML into objects with their lines, and checks their CPU sets."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat

from numalab.cpulist import cpus_of, format_cpulist
from numalab.errors import UserError
from numalab.topology.importers.imported import Location

MAX_ELEMENTS = 200_000  # an object has a few, a machine of 256 CPUs some thousand objects
DEEPEST = 64
MAX_MEMBERS = 1 << 20  # CPUs in all CPU sets; each of 256 CPUs is in some ten of them
PACKAGES = ("Package", "Socket")
_CPUSET = re.compile(r"(?:0x[0-9a-f]{1,8})(?:,(?:0x[0-9a-f]{1,8}|))*")
_WITH_CPUSET = re.compile(r"NUMANode|Package|Socket|Die|Core|PU|Cache|L[1-9]i?Cache")
_OTHER = re.compile(r"System|Machine|Group|Misc|Bridge|PCIDev|OSDev|MemCache")
_IN_OUT = ("Misc", "Bridge", "PCIDev", "OSDev")


@dataclass(frozen=True)
class Xml:
    """An XML document: its root, and the line of each element."""

    root: ET.Element
    file: Path | str
    lines: dict[ET.Element, int]

    def at(self, element: ET.Element) -> Location:
        """Return the location of an element."""
        return Location(self.file, f"line {self.lines[element]}")


@dataclass
class Object:
    """An `<object>`: its type, its CPUs (None without a CPU set), and its location."""

    element: ET.Element
    type: str
    at: Location
    cpus: frozenset[int] | None
    parent: "Object | None" = None
    pus: set[int] = field(default_factory=set)
    children: list["Object"] = field(default_factory=list)

    def number(self, attribute: str, missing: str | None = None) -> int:
        """Return the number in an attribute. Raises UserError."""
        return number(self.element.get(attribute, missing), attribute, self.at)


def number(text: str | None, attribute: str, at: Location) -> int:
    """Parse a number of ASCII digits. Raises UserError with the attribute."""
    if text is None or not re.fullmatch(r"[0-9]{1,18}", text):
        raise at.error(f"{attribute} is not a number: {str(text)[:40]!r}")
    return int(text)


def parse_xml(text: str, file: Path | str) -> Xml:
    """Parse XML with the line of each element, which ElementTree's parser does not keep.

    Raises UserError for damaged XML and for entities.
    """
    parser, builder = expat.ParserCreate(), ET.TreeBuilder()
    lines: dict[ET.Element, int] = {}
    depth = 0

    def refuse(message: str) -> UserError:
        return UserError(message, file=file, key=f"line {parser.CurrentLineNumber}")

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST or len(lines) >= MAX_ELEMENTS:
            raise refuse(f"more than {MAX_ELEMENTS} elements, or {DEEPEST} in each other")
        lines[builder.start(tag, attributes)] = parser.CurrentLineNumber

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def entity(*_: object) -> None:
        raise refuse("XML entities are not read")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.EntityDeclHandler = builder.data, entity
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        raise refuse(f"not XML: {expat.ErrorString(error.code)}") from None
    return Xml(builder.close(), file, lines)


def read_objects(xml: Xml) -> list[Object]:
    """Return all objects, parents first. Raises UserError for contradictory CPU sets."""
    objects: list[Object] = []
    members = 0
    stack: list[tuple[ET.Element, Object | None]] = [(xml.root, None)]
    while stack:
        element, parent = stack.pop()
        here = parent
        if element.tag == "object":
            here = _object(element, parent, xml.at(element))
            objects.append(here)
            members += len(here.cpus or ())
            if members > MAX_MEMBERS:
                raise here.at.error(f"more than {MAX_MEMBERS} CPUs in all CPU sets")
        stack += [(child, here) for child in reversed(element)]
    for item in objects:
        if item.type == "PU" and item.cpus is not None:
            for holder in _upwards(item):
                holder.pus |= item.cpus
    pus = frozenset[int]().union(*(item.cpus or () for item in objects if item.type == "PU"))
    for item in objects:
        _check_object(item, pus)
    return objects


def _object(element: ET.Element, parent: Object | None, at: Location) -> Object:
    kind, cpuset = element.get("type", ""), element.get("cpuset")
    if cpuset is None and _WITH_CPUSET.fullmatch(kind):
        raise at.error(f"{kind} without a cpuset")
    item = Object(element, kind, at, None if cpuset is None else _cpus(cpuset, at), parent)
    if parent is not None:
        parent.children.append(item)
    return item


def _upwards(item: Object) -> Iterator[Object]:
    holder: Object | None = item
    while holder is not None:
        yield holder
        holder = holder.parent


def _check_object(item: Object, pus: frozenset[int]) -> None:
    """Check an object by the rules of hwloc_topology_check() for CPU sets."""
    if item.type == "PU" and item.cpus != frozenset([item.number("os_index")]):
        raise item.at.error("the cpuset of a PU is its os_index alone")
    if item.cpus is None or item.type in _IN_OUT:
        return
    if item.pus and item.cpus & pus != item.pus:
        wrong = format_cpulist((item.cpus & pus) ^ item.pus)
        raise item.at.error(
            f"CPUs {wrong} are in the cpuset or in PUs of this {item.type}, not both"
        )
    holder = next((above for above in _upwards(item) if above is not item and above.cpus), None)
    if holder is not None and holder.cpus is not None and not item.cpus <= holder.cpus:
        outside = format_cpulist(item.cpus - holder.cpus)
        raise item.at.error(f"CPUs {outside} are not in the {holder.type} around it ({holder.at})")
    owners: dict[int, Object] = {}
    for child in item.children:
        if child.cpus is None or not child.pus:  # a memory child has the CPUs near it
            continue
        for cpu in child.cpus:
            other = owners.setdefault(cpu, child)
            if other is not child:
                raise child.at.error(f"CPU {cpu} is also in the {other.type} at {other.at}")


def unknown_types(objects: list[Object]) -> tuple[str, ...]:
    """Return the undocumented types of objects, with the line of the first."""
    first: dict[str, Location] = {}
    for item in objects:
        if not _WITH_CPUSET.fullmatch(item.type) and not _OTHER.fullmatch(item.type):
            first.setdefault(item.type[:40], item.at)
    return tuple(f"{kind!r} ({at})" for kind, at in first.items())


def _cpus(text: str, at: Location) -> frozenset[int]:
    """Read hwloc's CPU set: 32-bit words, the most significant first, an empty word is 0."""
    if text == "0x0":
        return frozenset()
    if not _CPUSET.fullmatch(text) or len(text) > 4096:
        raise at.error(f"not a CPU set: {text[:60]!r}")
    mask = 0
    for word in text.split(","):
        mask = mask << 32 | (int(word, 16) if word else 0)
    return frozenset(cpus_of(mask))


def node_set(item: Object) -> frozenset[int] | None:
    """Return the nodes of an object's `nodeset`; None where it has none."""
    text = item.element.get("nodeset")
    return None if text is None else _cpus(text, item.at)
