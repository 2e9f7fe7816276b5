"""Whether two kernels have the same code and data in an object. Pure.

Two builds of one function differ in line numbers (`__LINE__` in might_sleep()), and in places of
strings, of variables and of the functions around it; none of these is a difference. What the
kernel's tables say of its instructions (alternatives, static branches, warnings) is part of it.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

_PLACE = re.compile(r"(inlined by )?/.*:(\d+)(?: \(.*\))?")
_FUNCTION = re.compile(r"[0-9a-f]+ <(.+)>:")
_INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\t(.*)")
_RELOCATION = re.compile(r"\s+([0-9a-f]+): (R_X86_64_\w+)\t(.*)")
_ABSOLUTE = re.compile(r"\b[0-9a-f]+ (?=<)")  # je     45 <f+0x45>
_COMMENT = re.compile(r"\s+#.*")
_LOCAL = re.compile(r"([\w.]+?)([+-]0x[0-9a-f]+)?")
_OF_CODE = re.compile(r"\.([\w.]*text\b|fixup|altinstr).*")
_IMMEDIATE = re.compile(r"\$0x([0-9a-f]+)")
_PADDING = re.compile(r"(data16 |cs )*(nop\w*|xchg +%ax,%ax)\b.*")
_NUMBER = re.compile(r"\.\d+$")
_SECTION = re.compile(r"RELOCATION RECORDS FOR \[(.+)\]:")
# Names of functions, which the compiler writes.
_NO_VALUE = ("__func__", "__already_done")
# Tables of addresses that follow from the code.
_NO_DATA = (".orc_unwind", "__mcount_loc", ".retpoline_sites", ".return_sites", ".discard",
            ".note", ".comment", ".eh_frame", ".ibt_endbr_seal", ".call_sites",
            "__patchable_function_entries")  # fmt: skip
# Tables about instructions of functions, and the bytes of an entry; 0: they differ between
# releases (struct alt_instr, bug_entry), and an entry begins where its instruction's address is.
_TABLES = {"__bug_table": 0, ".altinstructions": 0, "__jump_table": 16, "__ex_table": 12,
           ".static_call_sites": 8, ".smp_locks": 4}  # fmt: skip
_FURTHER = (".rodata", ".L", ".altinstr_replacement")  # other addresses in these entries

_RELATIVE = ("R_X86_64_PC32", "R_X86_64_PLT32")
_TO_NEXT = 4  # bytes from such a place to the next instruction, if that is unknown


@dataclass(frozen=True)
class Variable:
    """A variable in a section of data, or a function in one of code."""

    name: str
    section: str
    address: int
    size: int


@dataclass(frozen=True)
class Fingerprint:
    """The digests of an object's functions, of its sections of data, and of its variables.

    Local variables of one name (`count.1`, `count.2`) are listed together.
    """

    functions: Mapping[str, str]
    data: Mapping[str, str]
    variables: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Relocation:
    """A place in a section that the linker fills."""

    place: int
    kind: str
    value: str


class Targets:
    """What an object's relocations mean: gas writes what is static as its place in a section.

    `symbols` are the object's functions and variables, `data` the contents of its sections of data.
    """

    def __init__(self, symbols: Iterable[Variable], data: Mapping[str, bytes]) -> None:
        self._symbols: dict[str, list[Variable]] = {}
        for symbol in sorted(symbols, key=lambda item: (item.address, -item.size, item.name)):
            self._symbols.setdefault(symbol.section, []).append(symbol)
        self._data = data

    def at(self, value: str, further: int = 0) -> Iterator[tuple[str, int]]:
        """Yield the symbols around a place, `further` bytes behind it, and its offsets in them."""
        section, offset = self._place(value)
        offset += further
        for symbol in self._symbols.get(section, ()):
            if symbol.address <= offset < symbol.address + symbol.size:
                yield symbol.name, offset - symbol.address

    def name(self, relocation: Relocation, to_next: int = 0) -> str:
        """Return a relocation's target without what moves with other code and data.

        A function or variable by its name and the offset in it, a string by its text; where neither
        is known, code by its section. In code, the next instruction is `to_next` bytes behind it.
        """
        value = relocation.value
        section, offset = self._place(value)
        further = to_next if relocation.kind in _RELATIVE else 0
        if section.startswith(".rodata.str"):
            text = self._data.get(section, b"")[max(offset + further, 0) :].partition(b"\0")[0]
            return f"{section} {text!r}" if text else section
        for name, within in self.at(value, further):
            return f"{_NUMBER.sub('', name)}{f'+{within:#x}' if within else ''}"
        return section if _OF_CODE.fullmatch(section) else value

    def _place(self, value: str) -> tuple[str, int]:
        """Return the section and offset of a relocation's value, ("", 0) for a global symbol.

        Some sections have names without a dot, such as __tracepoints_strings.
        """
        match = _LOCAL.fullmatch(value)
        is_local = match and (match[1][0] == "." or match[1] in self._symbols)
        return (match[1], int(match[2] or "0", 16)) if match and is_local else ("", 0)


_NO_TARGETS = Targets((), {})


def parse_listing(text: str, targets: Targets = _NO_TARGETS) -> Mapping[str, tuple[str, ...]]:
    """Return the instructions of each function, without what moves when others change.

    `text` is of `objdump --disassemble --line-numbers --inlines --reloc`.
    """
    functions: dict[str, list[str]] = {}
    here: list[str] = []
    open_places: list[Relocation] = []
    own, inliners = 0, set[int]()
    for line in text.splitlines():
        if match := _INSTRUCTION.fullmatch(line):
            here += _filled(open_places, targets, int(match[1], 16))
            open_places = []
            here.append(_plain(match[2], {own, *inliners}))
            inliners = set()
        elif match := _RELOCATION.fullmatch(line):
            open_places.append(Relocation(int(match[1], 16), match[2], match[3]))
        elif match := _PLACE.fullmatch(line):
            if match[1]:
                inliners.add(int(match[2]))
            else:
                own = int(match[2])
        elif match := _FUNCTION.fullmatch(line):
            here += _filled(open_places, targets)
            open_places = []
            here = functions.setdefault(match[1], [])
    here += _filled(open_places, targets)
    return {name: tuple(_unpadded(code)) for name, code in functions.items()}


def _filled(
    places: Iterable[Relocation], targets: Targets, end: int | None = None
) -> Iterator[str]:
    """Yield the targets in an instruction that ends at `end`; None: behind its last target."""
    for item in places:
        to_next = _TO_NEXT if end is None else end - item.place
        yield f"{item.kind} {targets.name(item, to_next)}"


def _plain(text: str, lines: Iterable[int]) -> str:
    text = _ABSOLUTE.sub("", _COMMENT.sub("", text))
    return _IMMEDIATE.sub(lambda match: "$LINE" if int(match[1], 16) in lines else match[0], text)


def _unpadded(code: list[str]) -> Iterator[str]:
    """Leave out nops behind the last instruction: they align the next function."""
    last = max((at for at, text in enumerate(code) if not _PADDING.fullmatch(text)), default=-1)
    yield from code[: last + 1]


def fingerprint(
    functions: Mapping[str, tuple[str, ...]],
    data: Mapping[str, bytes],
    relocations: str,
    variables: Iterable[Variable] = (),
    targets: Targets = _NO_TARGETS,
    *,
    has_lines: bool = False,
) -> Fingerprint:
    """Hash functions and data; `relocations` is of `objdump --reloc`.

    `has_lines`: the table of warnings has their lines (CONFIG_DEBUG_BUGVERBOSE).
    """
    moved: dict[str, list[Relocation]] = {}
    section = ""
    for line in relocations.splitlines():
        if match := _SECTION.fullmatch(line):
            section = match[1]
        elif " R_X86_64_" in line:
            place, kind, value = line.split(maxsplit=2)
            moved.setdefault(section, []).append(Relocation(int(place, 16), kind, value))
    sites: dict[str, list[str]] = {}
    for table in _TABLES:
        for begin, end in _entries(table, len(data.get(table, b"")), moved.get(table, ())):
            places = [item for item in moved.get(table, ()) if begin <= item.place < end]
            names = (name for name, _ in targets.at(places[0].value)) if places else ()
            owner = next((name for name in names if name in functions), table)
            has_line = has_lines and table == "__bug_table"
            entry = (data[table], (begin, end), places, targets)
            text = f"{table} {_entry_text(*entry, has_line=has_line)}"
            sites.setdefault(owner, []).append(text)
    contents: dict[str, list[str]] = {}
    for variable in variables:
        begin, end = variable.address, variable.address + variable.size
        own = data.get(variable.section, b"")[begin:end]
        inside = [item for item in moved.get(variable.section, ()) if begin <= item.place < end]
        name = _NUMBER.sub("", variable.name)
        contents.setdefault(name, []).append(_digest(own + _values(inside, targets, begin)))
    return Fingerprint(
        {
            name: _digest("\n".join((*code, *sorted(sites.get(name, ())))).encode())
            for name, code in functions.items()
        },
        {
            name: _digest(content + _values(moved.get(name, ()), targets))
            for name, content in data.items()
            if not name.startswith((*_NO_DATA, *_TABLES))
        }
        | {table: _digest("\n".join(sites[table]).encode()) for table in _TABLES if table in sites},
        {name: tuple(sorted(digests)) for name, digests in contents.items()},
    )


def _values(places: Iterable[Relocation], targets: Targets, begin: int = 0) -> bytes:
    values = [(item.place - begin, f"{item.kind} {targets.name(item)}") for item in places]
    return repr(values).encode()


def _entries(table: str, length: int, places: Iterable[Relocation]) -> Iterable[tuple[int, int]]:
    """Return begin and end of each entry of a table."""
    starts: Iterable[int] = range(0, length, _TABLES[table] or 1)
    if not _TABLES[table]:
        starts = [item.place for item in places if not item.value.startswith(_FURTHER)]
    return pairwise([*starts, length])


def _entry_text(
    content: bytes,
    ends: tuple[int, int],
    places: Iterable[Relocation],
    targets: Targets,
    *,
    has_line: bool,
) -> str:
    """Return an entry of a table; that of a warning without its file and line, if it has them.

    The last fields of struct bug_entry are file (4 bytes), line (2) and flags (2).
    """
    begin, end = ends
    skipped = range(end - 8, end - 2) if has_line else range(0)
    own = bytes(content[at] for at in range(begin, end) if at not in skipped)
    kept = [item for item in places if item.place not in skipped]
    return f"{own.hex()} {_values(kept, targets, begin).decode()}"


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def changed_functions(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Return the functions whose code differs, in order, those of one kernel only included."""
    names = {**before.functions, **after.functions}
    return tuple(name for name in names if before.functions.get(name) != after.functions.get(name))


def changed_data(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Return the sections of data that differ."""
    names = {**before.data, **after.data}
    return tuple(name for name in names if before.data.get(name) != after.data.get(name))


def changed_variables(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Return the variables of both kernels whose initial value differs; new ones are left out."""
    return tuple(
        name
        for name, digests in before.variables.items()
        if name in after.variables
        and name not in _NO_VALUE
        and not set(digests) <= set(after.variables[name])
    )
