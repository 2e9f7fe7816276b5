"""Basic blocks of unchanged functions near a change, whose executions two kernels share.

A patch often changes what a function returns or which CPU it looks at. Then its callers and the
functions that it calls take other branches, though they are called as often. A basic block begins
behind a conditional jump and where jumps lead.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise, zip_longest

from numalab.reach.fingerprint import changed_functions
from numalab.reach.kernel_code_artifact import KernelCode, ObjectText
from numalab.reach.lines import Code
from numalab.reach.listing import Instruction

MOST_BLOCKS = 3000
_CALLED = re.compile(r"(?:call|j\w+)\s+[0-9a-f]+ <([\w.]+)>")
Functions = Mapping[str, Sequence[Instruction]]


def shared_blocks(
    mine: KernelCode, theirs: KernelCode, most: int = MOST_BLOCKS
) -> Mapping[str, str]:
    """Return blocks of functions with the same code: at most `most`, nearest to the change first.

    Those of several objects take turns.

    A block is called FUNCTION+OFFSET, as in a trace of the stack; its value is its file and line.
    """
    other = {item.name: item for item in theirs.objects}
    objects = [
        _of_object(item, other[item.name]).items()
        for item in mine.objects
        if item.name in other and not (item.reason or other[item.name].reason)
    ]
    in_turns = (block for blocks in zip_longest(*objects) for block in blocks if block)
    return dict(islice(in_turns, most))


def _of_object(mine: ObjectText, theirs: ObjectText) -> Mapping[str, str]:
    changed = set(changed_functions(theirs.fingerprint, mine.fingerprint))
    own, their = _functions(mine.code), _functions(theirs.code)
    blocks: dict[str, str] = {}
    for name in _nearest(changed, own):
        code = own[name]
        if name in their and _offsets(code) == _offsets(their[name]):
            blocks |= _blocks(name, code, mine.code)
    return blocks


def _functions(code: Code) -> Functions:
    functions: dict[str, list[Instruction]] = {}
    for instruction in code.instructions:
        functions.setdefault(instruction.function, []).append(instruction)
    return functions


def _offsets(code: Sequence[Instruction]) -> list[int]:
    return [instruction.address - code[0].address for instruction in code]


def _nearest(changed: set[str], functions: Functions) -> Iterator[str]:
    """Yield unchanged functions by their distance from the changed ones in the graph of calls.

    Those without a way come last: a variable or a pointer may connect them.
    """
    if not changed:
        return
    beside: dict[str, set[str]] = {}
    for name, code in functions.items():
        for instruction in code:
            called = _CALLED.match(instruction.text)
            if called and called[1] != name:
                beside.setdefault(name, set()).add(called[1])
                beside.setdefault(called[1], set()).add(name)
    reached, ring = set(changed), sorted(changed)
    while ring:
        near = {other for name in ring for other in beside.get(name, ())} - reached
        reached |= near
        ring = sorted(near & functions.keys())
        yield from _whole(ring)
    yield from _whole(name for name in functions if name not in reached)


def _whole(names: Iterable[str]) -> Iterator[str]:
    """Leave out parts and copies that gcc makes of a function, such as f.cold and f.isra.0."""
    return (name for name in names if "." not in name)


def _blocks(name: str, code: Sequence[Instruction], of: Code) -> Iterable[tuple[str, str]]:
    """Yield the blocks of a function but its first, and where they are in the source."""
    static = {jump.address for jump in of.static_jumps}
    begins = of.targets | {
        after.address
        for instruction, after in pairwise(code)
        if instruction.target or instruction.address in static
    }
    for instruction in code[1:]:
        if instruction.address in begins:
            places = instruction.places  # first that of a helper in a header, if one is inlined
            file, line = next((place for place in places if place[0].endswith(".c")), places[0])
            yield f"{name}+{instruction.address - code[0].address:#x}", f"{file}:{line}"
