"""Parses what binutils print of an object that was compiled with -g. Pure.

Formats: `readelf --debug-dump=decodedline` and `=info`, `objdump --disassemble --line-numbers
--inlines`, `objdump --reloc` and `readelf --symbols` of binutils 2.40.
"""

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, pairwise

_ROW = re.compile(r"\S.*?\s+(\d+|-)\s+0x([0-9a-f]+)(?:\[\d+\])?(?:\s+\d+)?(\s+x)?\s*")
_FILE = re.compile(r"(?:CU: )?(\S.*):(?:\[\+\+\])?")
_PLACE = re.compile(r"(inlined by )?(/.*):(\d+)(?: \(.*\))?")
_FUNCTION = re.compile(r"[0-9a-f]+ <(.+)>:")
_INSTRUCTION = re.compile(r"\s*([0-9a-f]+):\t(.*)")
_JUMP = re.compile(r"(j\w+|loop\w*)\s+([0-9a-f]+)\b")
_RELOCATION = re.compile(r"([0-9a-f]+) +R_X86_64_PC32 +(\.[\w.]+)(?:\+0x([0-9a-f]+))?")
_ENTRY = re.compile(r" <(\d+)><[0-9a-f]+>: Abbrev Number: \d+(?: \((DW_TAG_\w+)\))?")
_ATTRIBUTE = re.compile(
    r" +<[0-9a-f]+> +DW_AT_(name|data_member_location|data_bit_offset) *:(?: .*:)?.*? (\w+)$"
)
_SYMBOL = re.compile(r"\s*\d+: ([0-9a-f]+)\s+(\d+) (\w+)\s+\w+\s+\w+\s+(?:\[.*\] )?(\w+) (\S+)")
# What no instruction follows; nops are padding, except those of static branches.
_ENDS = ("jmp", "ret", "ud2", "iret", "hlt", "nop", "data16", "cs ")
_NOP = re.compile(r"(data16 |cs )*(nop|xchg +%ax,%ax)")
_JUMP_ENTRY = 16  # bytes: struct jump_entry of arch/x86 (include/linux/jump_label.h)


@dataclass(frozen=True)
class Row:
    """A row of the line table.

    `is_statement`: a statement begins there. `is_empty`: the instruction at the address belongs to
    a later row; the code of this statement was merged or moved.
    """

    address: int
    file: str
    line: int
    is_statement: bool
    is_empty: bool


@dataclass(frozen=True)
class Instruction:
    """An instruction with its places: its own line first, then the lines that inlined it."""

    address: int
    text: str
    function: str
    places: tuple[tuple[str, int], ...]

    @property
    def target(self) -> int | None:
        """The target of a conditional jump, None for other instructions."""
        match = _JUMP.match(self.text)
        return int(match[2], 16) if match and match[1] != "jmp" else None

    @property
    def falls_through(self) -> bool:
        """Whether the instruction behind it may follow."""
        return not self.text.startswith(_ENDS)


@dataclass(frozen=True)
class StaticJump:
    """A static branch: the kernel patches it to be a jump or a nop."""

    address: int
    target: int


@dataclass(frozen=True)
class Symbol:
    """A function or object in a symbol table; `section` is a number, or ABS, UND."""

    address: int
    size: int
    kind: str
    section: str
    name: str


def source_name(name: str, folder: str, tree: str) -> str:
    """Return the name of a source file relative to the tree; `folder` is where gcc ran."""
    path = posixpath.normpath(posixpath.join(folder, name))
    return path.removeprefix(f"{tree.rstrip('/')}/")


def parse_rows(text: str, folder: str, tree: str) -> tuple[Row, ...]:
    """Parse a decoded line table."""
    rows: list[tuple[int, str, int, bool]] = []
    file = ""
    for line in text.splitlines():
        if match := _ROW.fullmatch(line):
            number = 0 if match[1] == "-" else int(match[1])  # "-" ends a sequence
            rows.append((int(match[2], 16), file, number, bool(match[3])))
        elif match := _FILE.fullmatch(line):
            file = source_name(match[1], folder, tree)
    return tuple(
        Row(address, file, number, statement, is_empty=address == after[0])
        for (address, file, number, statement), after in pairwise([*rows, (-1, "", 0, False)])
        if number
    )


def parse_instructions(text: str, tree: str) -> tuple[Instruction, ...]:
    """Parse a disassembly with line numbers and inlined places."""
    instructions: list[Instruction] = []
    function, own = "", ("", 0)
    inliners: list[tuple[str, int]] = []
    for line in text.splitlines():
        if match := _INSTRUCTION.fullmatch(line):
            places = (own, *inliners)
            instructions.append(Instruction(int(match[1], 16), match[2], function, places))
            inliners = []
        elif match := _PLACE.fullmatch(line):
            place = (source_name(match[2], "", tree), int(match[3]))
            # objdump prints an instruction's own line where it changes, its inliners always.
            if match[1] is None:
                own = place
            else:
                inliners.append(place)
        elif match := _FUNCTION.fullmatch(line):
            function = match[1]
    return tuple(instructions)


def without_padding(instructions: Iterable[Instruction]) -> Iterator[Instruction]:
    """Yield instructions in order without the nops behind the last one of a function.

    They align the next function and never run; objdump gives them the place before them.
    """
    for _, group in groupby(instructions, key=lambda instruction: instruction.function):
        own = list(group)
        while own and _NOP.match(own[-1].text):
            own.pop()
        yield from own


def parse_static_jumps(text: str, bases: Mapping[str, int]) -> tuple[StaticJump, ...]:
    """Parse the relocations of `__jump_table`; `bases` are the addresses of sections."""
    fields: dict[int, int] = {}
    for line in text.splitlines():
        match = _RELOCATION.match(line)
        if match and match[2] in bases:
            fields[int(match[1], 16)] = bases[match[2]] + int(match[3] or "0", 16)
    return tuple(
        StaticJump(fields[at], fields[at + 4])
        for at in sorted(fields)
        if at % _JUMP_ENTRY == 0 and at + 4 in fields
    )


def parse_symbols(text: str) -> tuple[Symbol, ...]:
    """Parse `readelf --symbols --wide`."""
    return tuple(
        Symbol(int(match[1], 16), int(match[2]), match[3], match[4], match[5])
        for match in map(_SYMBOL.match, text.splitlines())
        if match
    )


def section_bases(
    symbols: Iterable[Symbol], sections: Mapping[str, str], linked: Iterable[Symbol]
) -> Mapping[str, int]:
    """Return the addresses of an object's sections in the linked kernel.

    `sections` maps the numbers of the object's sections of code to their names. A section lies
    where most of its functions have their names and sizes in the kernel (not all: another object
    may override a weak function). One without such a place is left out.
    """
    places: dict[tuple[str, int], set[int]] = {}
    for symbol in linked:
        if symbol.kind == "FUNC":
            places.setdefault((symbol.name, symbol.size), set()).add(symbol.address)
    votes: dict[str, Counter[int]] = {}
    sizes: Counter[str] = Counter()
    for symbol in symbols:
        name = sections.get(symbol.section)
        if symbol.kind == "FUNC" and name is not None:
            sizes[name] += 1
            addresses = places.get((symbol.name, symbol.size), set())
            votes.setdefault(name, Counter()).update(
                address - symbol.address for address in addresses
            )
    best = {name: counter.most_common(1)[0] for name, counter in votes.items() if counter}
    return {name: base for name, (base, count) in best.items() if count * 2 > sizes[name]}


def parse_members(text: str, struct: str) -> dict[int, str]:
    """Return the members of a structure by their offsets, in bytes; without unnamed ones.

    `text` is of `readelf --debug-dump=info` (DWARF 4 and 5). Empty without the structure.
    """
    members: dict[int, str] = {}
    level, tag, inside, name = 0, "", False, ""
    for line in text.splitlines():
        entry = _ENTRY.match(line)
        if entry:
            level, tag, name = int(entry[1]), entry[2] or "", ""
            if level == 1:
                if members:
                    return members
                inside = False
            continue
        attribute = _ATTRIBUTE.match(line)
        if attribute is None:
            continue
        kind, value = attribute.groups()
        if kind == "name":
            name = value
            inside = inside or (level == 1 and tag == "DW_TAG_structure_type" and name == struct)
        elif inside and level == 2 and tag == "DW_TAG_member" and name:
            offset = int(value, 0)
            members.setdefault(offset // 8 if kind == "data_bit_offset" else offset, name)
    return members
