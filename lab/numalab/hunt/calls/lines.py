"""Lines of functions that a patch changes, whose executions two kernels share.

A function whose code differs shares no block with its old version, and with it all functions that
are inlined into it. But most of its lines are the same, and a decision that a patch changes makes
the lines behind it run more or less often.

A line is called FUNCTION:TEXT, its text without what is no word: `return group_overloaded;` is
group_classify:return-group_overloaded. Lines of a function that are alike are numbered.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from numalab.hunt.calls.functions import SOURCES, Read
from numalab.hunt.property import function_in
from numalab.reach.fingerprint import changed_functions
from numalab.reach.kernel_code_artifact import KernelCode
from numalab.reach.line_table import line_code
from numalab.reach.lines import Code, LineCode, Place
from numalab.source.c_functions import function_bodies
from numalab.source.changes import FileChange

MOST_LINES = 2000
_LONGEST = 48  # characters of a name's text


@dataclass(frozen=True)
class SharedLine:
    """A line of both kernels: its name, its place on the first one, and its code on each."""

    name: str
    place: str
    mine: LineCode
    theirs: LineCode


def shared_lines(
    mine: KernelCode,
    theirs: KernelCode,
    changes: Sequence[FileChange],
    read: Read,
    first: Collection[str] = (),
) -> tuple[SharedLine, ...]:
    """Return unchanged lines in functions whose code differs, with code of the same shape.

    Those of SOURCES, where a boot that confirms looks for a line again.

    At most MOST_LINES, those of the functions `first` before others. `changes` are those of the
    patch; `read` returns other files, which both kernels share.
    """
    texts = {change.new: (change.after, change.before) for change in changes if change.new}
    old = {change.new: _old_numbers(change) for change in changes if change.new}
    own, other = ([item.code for item in code.objects if not item.reason]
                  for code in (mine, theirs))  # fmt: skip
    operations = _operations(own), _operations(other)
    lines: list[SharedLine] = []
    for file, numbers in sorted(_places(mine, theirs).items()):
        if file not in texts:
            shared = read(file)
            texts[file] = (shared.text, shared.text) if shared is not None else ("", "")
        after, before = (line_names(text) for text in texts[file])
        for number in numbers:
            previous = old[file].get(number) if file in old else number
            name = after.get(number)
            if name is None or previous is None or before.get(previous) != name:
                continue
            codes = line_code((file, number), own), line_code((file, previous), other)
            if codes[0] is None or codes[1] is None:
                continue
            if _shape(codes[0], operations[0]) == _shape(codes[1], operations[1]):
                lines.append(SharedLine(name, f"{file}:{number}", codes[0], codes[1]))
    lines.sort(key=lambda line: function_in(line.name) not in first)
    return _unambiguous(lines[:MOST_LINES])


def lines_of(
    code: KernelCode, texts: Mapping[str, str], names: Iterable[str]
) -> dict[str, LineCode]:
    """Return the code of lines by name, of those that the kernel has; `texts` are its files."""
    wanted = set(names)
    codes = [item.code for item in code.objects if not item.reason]
    lines: dict[str, LineCode] = {}
    for file, text in texts.items():
        for number, name in line_names(text).items():
            if name in wanted and (own := line_code((file, number), codes)) is not None:
                lines.setdefault(name, own)
    return lines


def line_names(text: str) -> Mapping[int, str]:
    """Return the name of each line (from 1) of a C file that is in a function and has a word."""
    names: dict[int, str] = {}
    for function, first, body in function_bodies(text):
        alike = Counter[str]()
        for number, line in enumerate(body, first):
            words = re.sub(r"\W+", "-", line).strip("-")[:_LONGEST].rstrip("-")
            if words:
                alike[words] += 1
                again = f".{alike[words]}" if alike[words] > 1 else ""
                names[number] = f"{function}:{words}{again}"
    return names


def _places(mine: KernelCode, theirs: KernelCode) -> Mapping[str, Sequence[int]]:
    """Return the lines of SOURCES that are part of functions whose code differs, by file."""
    other = {item.name: item for item in theirs.objects}
    places = set[Place]()
    for item in mine.objects:
        if item.reason or item.name not in other or other[item.name].reason:
            continue
        changed = set(changed_functions(other[item.name].fingerprint, item.fingerprint))
        places.update(chain.from_iterable(_lines_in(item.code, changed)))
    numbers: dict[str, list[int]] = {}
    for file, number in sorted(places):
        if file in SOURCES:
            numbers.setdefault(file, []).append(number)
    return numbers


def _lines_in(code: Code, functions: set[str]) -> Iterator[tuple[Place, ...]]:
    for instruction in code.instructions:
        if instruction.function in functions:
            yield tuple(instruction.places)


def _old_numbers(change: FileChange) -> Mapping[int, int]:
    """Return the number before the patch of each line that it leaves."""
    numbers: dict[int, int] = {}
    new, shift = 1, 0
    for part in change.changes:
        numbers |= {at: at - shift for at in range(new, part.new_start)}
        new = part.new_start + len(part.added)
        shift += len(part.added) - len(part.removed)
    numbers |= {at: at - shift for at in range(new, change.after.count("\n") + 2)}
    return numbers


def _operations(codes: Iterable[Code]) -> Mapping[int, str]:
    """Return what each instruction does, by address."""
    instructions = (instruction for code in codes for instruction in code.instructions)
    return {instruction.address: instruction.text.partition(" ")[0] for instruction in instructions}


def _shape(line: LineCode, operations: Mapping[int, str]) -> object:
    """Return what the code of a line consists of.

    The compiler moves and copies code of some lines. Two kernels whose line has the same shape
    most likely count the same.
    """
    return sorted(
        [[operations.get(address, "") for address in point] for point in part]
        for part in line.parts
    )


def changed_names(changes: Sequence[FileChange]) -> frozenset[str]:
    """Return the functions that have a changed line."""
    names = set[str]()
    for change in changes:
        starts = {part.new_start for part in change.changes}
        for function, first, body in function_bodies(change.after):
            if any(first <= start <= first + len(body) for start in starts):
                names.add(function)
    return frozenset(names)


def _unambiguous(lines: Sequence[SharedLine]) -> tuple[SharedLine, ...]:
    """Leave out names that two files have."""
    count = Counter(line.name for line in lines)
    return tuple(line for line in lines if count[line.name] == 1)
