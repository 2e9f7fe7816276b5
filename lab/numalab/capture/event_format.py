"""Parses event formats: the kernel's `events/<system>/<event>/format` texts.

f_show() in kernel/trace/trace_events.c writes them. A recording has its own, so fields are always
read in the layout of the kernel that wrote them.
"""

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "bool", "text", "located text", "open text", "bytes"]
# int: a number; text: char[N]; located text: __data_loc char[] (a 32-bit offset and length);
# open text: char[] that ends with the record; bytes: any other array, kept as hexadecimal.

MAX_FIELD_BYTES = 4096
_FIELD = re.compile(
    r"^\tfield:(?P<decl>[^;]+);\toffset:(?P<offset>\d+);\tsize:(?P<size>\d+);"
    r"(?:\tsigned:(?P<signed>\d);)?"
)
_DECLARATION = re.compile(r"^(?P<type>.*?)\s*(?P<name>\w+)(?P<array>\[[^\]]*\])?$")


@dataclass(frozen=True)
class Field:
    """One field of a record: byte offset and size in the record, and how to read it."""

    name: str
    kind: Kind
    offset: int
    size: int
    signed: bool


@dataclass(frozen=True)
class EventFormat:
    """An event: the number that its records carry, its names, its own fields (no `common_*`)."""

    id: int
    system: str
    name: str
    fields: tuple[Field, ...]

    @property
    def least_bytes(self) -> int:
        """The size that a record must have for every field to lie inside it."""
        return max((field.offset + field.size for field in self.fields), default=8)


def parse_event_format(text: str, system: str) -> EventFormat:
    """Parse one format text. Raises ValueError when it has no name or number."""
    name = re.search(r"^name: (\S+)$", text, re.MULTILINE)
    number = re.search(r"^ID: (\d{1,9})$", text, re.MULTILINE)
    if name is None or number is None:
        raise ValueError(f"not an event format: {text[:60]!r}")
    fields = filter(None, map(_field, text.partition("print fmt:")[0].splitlines()))
    own = tuple(field for field in fields if not field.name.startswith("common_"))
    return EventFormat(int(number[1]), system, name[1], own)


def _field(line: str) -> Field | None:
    match = _FIELD.match(line)
    if match is None:
        return None
    declaration = match["decl"].strip()
    located = declaration.startswith("__data_loc")
    # `__data_loc char[] comm` has the brackets before the name.
    parts = _DECLARATION.match(declaration.replace("[]", "", 1) if located else declaration)
    size, offset = int(match["size"]), int(match["offset"])
    if parts is None or size > MAX_FIELD_BYTES or offset > 1 << 16:
        return None
    kind = _kind(declaration, parts["array"], size, located=located)
    return Field(parts["name"], kind, offset, size, match["signed"] == "1")


def _kind(declaration: str, array: str | None, size: int, *, located: bool) -> Kind:
    is_char = re.search(r"\bchar\b", declaration) is not None
    if located:
        return "located text" if is_char and size == 4 else "bytes"
    if array is not None and is_char:
        return "open text" if size == 0 else "text"
    if array is None and size in (1, 2, 4, 8):
        return "bool" if declaration.startswith("bool ") else "int"
    return "bytes"
