"""Whether two kernels have the same code and data in an object. Pure.

Two builds of one function differ in line numbers (`__LINE__` in might_sleep()), in places of
strings and of the functions around it; none of these is a difference.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

_PLACE = re.compile(r"(inlined by )?/.*:(\d+)(?: \(.*\))?")
_FUNCTION = re.compile(r"[0-9a-f]+ <(.+)>:")
_INSTRUCTION = re.compile(r"\s*[0-9a-f]+:\t(.*)")
_RELOCATION = re.compile(r"\s+[0-9a-f]+: (R_X86_64_\w+)\t(.*)")
_ABSOLUTE = re.compile(r"\b[0-9a-f]+ (?=<)")  # je     45 <f+0x45>
_COMMENT = re.compile(r"\s+#.*")
_SHIFTING = re.compile(r"^(\.(?:rodata\.str|text|init\.text|exit\.text)[\w.]*)([+-]0x[0-9a-f]+)?")
_IMMEDIATE = re.compile(r"\$0x([0-9a-f]+)")
_PADDING = re.compile(r"(data16 |cs )*(nop\w*|xchg +%ax,%ax)\b.*")
_NUMBER = re.compile(r"\.\d+$")
_SECTION = re.compile(r"RELOCATION RECORDS FOR \[(.+)\]:")
# Names of functions, which the compiler writes.
_NO_VALUE = ("__func__", "__already_done")
# Line numbers, and tables of addresses in code.
_NO_DATA = ("__bug_table", "__jump_table", "__ex_table", ".altinstructions", ".smp_locks",
            ".orc_unwind", "__mcount_loc", ".static_call_sites", ".retpoline_sites",
            ".return_sites", ".discard", ".note", ".comment", ".eh_frame", ".init.setup",
            ".ibt_endbr_seal", ".call_sites", "__patchable_function_entries")  # fmt: skip


_RELATIVE = ("R_X86_64_PC32", "R_X86_64_PLT32")
_TO_NEXT = 4  # bytes from such a place in code to the next instruction, to which it is relative


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


class Targets:
    """What an object's relocations mean: gas writes a static function or a string as its place.

    `functions` are those of the object, `data` the contents of its sections of data.
    """

    def __init__(self, functions: Iterable[Variable], data: Mapping[str, bytes]) -> None:
        self._functions: dict[str, list[Variable]] = {}
        for function in sorted(functions, key=lambda item: (item.address, -item.size, item.name)):
            self._functions.setdefault(function.section, []).append(function)
        self._data = data

    def name(self, kind: str, value: str, *, in_code: bool) -> str:
        """Return a relocation's target without what moves with other code.

        A function by its name and the offset in it, a string by its text; where neither is known,
        the section.
        """
        match = _SHIFTING.match(value)
        if match is None:
            return value
        section, offset = match[1], int(match[2] or "0", 16)
        if in_code and kind in _RELATIVE:
            offset += _TO_NEXT
        if section.startswith(".rodata.str"):
            text = self._data.get(section, b"")[max(offset, 0) :].partition(b"\0")[0]
            return f"{section} {text!r}" if text else section
        for function in self._functions.get(section, ()):
            if function.address <= offset < function.address + function.size:
                within = offset - function.address
                return f"{_NUMBER.sub('', function.name)}{f'+{within:#x}' if within else ''}"
        return section


_NO_TARGETS = Targets((), {})


def parse_listing(text: str, targets: Targets = _NO_TARGETS) -> Mapping[str, tuple[str, ...]]:
    """Return the instructions of each function, without what moves when others change.

    `text` is of `objdump --disassemble --line-numbers --inlines --reloc`.
    """
    functions: dict[str, list[str]] = {}
    here: list[str] = []
    own, inliners = 0, set[int]()
    for line in text.splitlines():
        if match := _INSTRUCTION.fullmatch(line):
            here.append(_plain(match[1], {own, *inliners}))
            inliners = set()
        elif match := _RELOCATION.fullmatch(line):
            here.append(f"{match[1]} {targets.name(match[1], match[2], in_code=True)}")
        elif match := _PLACE.fullmatch(line):
            if match[1]:
                inliners.add(int(match[2]))
            else:
                own = int(match[2])
        elif match := _FUNCTION.fullmatch(line):
            here = functions.setdefault(match[1], [])
    return {name: tuple(_unpadded(code)) for name, code in functions.items()}


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
) -> Fingerprint:
    """Hash functions and data; `relocations` is of `objdump --reloc`."""
    moved: dict[str, list[tuple[int, str]]] = {}
    section = ""
    for line in relocations.splitlines():
        if match := _SECTION.fullmatch(line):
            section = match[1]
        elif " R_X86_64_" in line:
            place, kind, value = line.split(maxsplit=2)
            target = targets.name(kind, value, in_code=False)
            moved.setdefault(section, []).append((int(place, 16), f"{kind} {target}"))
    contents: dict[str, list[str]] = {}
    for variable in variables:
        begin, end = variable.address, variable.address + variable.size
        own = data.get(variable.section, b"")[begin:end]
        values = [
            (at - begin, text) for at, text in moved.get(variable.section, ()) if begin <= at < end
        ]
        name = _NUMBER.sub("", variable.name)
        contents.setdefault(name, []).append(_digest(own + repr(values).encode()))
    return Fingerprint(
        {name: _digest("\n".join(code).encode()) for name, code in functions.items()},
        {
            name: _digest(content + repr(moved.get(name, [])).encode())
            for name, content in data.items()
            if not name.startswith(_NO_DATA)
        },
        {name: tuple(sorted(digests)) for name, digests in contents.items()},
    )


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
