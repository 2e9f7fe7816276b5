"""The instructions that show how often a line ran, and the jumps on it. Pure.

The line table of optimized code has two kinds of rows: of instructions, which may have been moved
out of a branch (a load before the test) or into a later one (a copy that only one branch needs),
and of the beginnings of statements (`is_stmt`, gcc's -gstatement-frontiers), which are at the right
place but may have no instruction left. Where both are at one address, that address is exact.
Otherwise the beginnings count, and instructions only where no beginning is left: then also those
of functions that are inlined at the line, but for moves, which gcc may put before the test.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from numalab.reach.listing import Instruction, Row, StaticJump, without_padding

# Clones that gcc makes of a function (ipa-cp, ipa-split, cold blocks).
_COLD = re.compile(r"\.cold(\.\d+)?$")
_CLONE = re.compile(r"\.(part|isra|constprop|cold)\b.*")
_MOVE = re.compile(r"(c?mov|lea|nop|xor|cltq|cdqe)")
# An instruction that writes memory, which gcc never moves before a test: the last operand of AT&T.
_STORE = re.compile(r"(?!cmp|test|bt|nop|call|jmp)(lock )?\w+\s+(.*,)?[^,()]*\([^()]*\)(\s+#.*)?$")

_TABLE = re.compile(r"(notrack )?jmp\s+\*")  # a jump to where memory says

_LONGEST_CHAIN = 4  # jumps from one to the next

_BEGIN = -1  # of a pass, instead of the address of a point

Place = tuple[str, int]
Point = tuple[int, ...]


@dataclass(frozen=True)
class Jump:
    """A conditional jump or static branch: where it goes, and the lines there (0: unknown)."""

    address: int
    next: int
    target: int
    is_static: bool
    next_line: int
    target_line: int


@dataclass(frozen=True)
class LineCode:
    """The code of a line in one object.

    `parts` are the inlined copies. A point of a part ran as often as the rarest of its addresses;
    points are in the order of paths. Those whose first addresses are `apart` are on different
    paths: gcc has duplicated the line, and their executions add up. Of points on one path the most
    frequent one counts. `functions` hold the line. At the `shared` addresses there may be more of
    it, which gcc has merged with equal code: what ran there may be the line.
    """

    parts: tuple[tuple[Point, ...], ...]
    jumps: tuple[Jump, ...]
    functions: tuple[str, ...]
    shared: tuple[int, ...] = ()
    apart: frozenset[tuple[int, int]] = frozenset()

    @property
    def addresses(self) -> Iterator[int]:
        """The addresses of all points, and the shared ones."""
        yield from (address for part in self.parts for point in part for address in point)
        yield from self.shared


@dataclass(frozen=True)
class _Step:
    """An instruction in the order of its function: those that may follow have lower numbers.

    `later` has the bits of their numbers. That a loop goes back does not count.
    """

    number: int
    later: int


@dataclass
class Code:
    """The code of one object at its addresses in the kernel; `targets` are those of its jumps."""

    rows: Sequence[Row]
    instructions: Sequence[Instruction]
    static_jumps: Sequence[StaticJump]
    _addresses: list[int] = field(init=False)
    _by_place: dict[Place, list[Row]] = field(init=False, default_factory=dict)
    _real: dict[Place, list[Instruction]] = field(init=False, default_factory=dict)
    _inlined: dict[Place, list[Instruction]] = field(init=False, default_factory=dict)
    _static: dict[int, int] = field(init=False)
    _entries: dict[str, int] = field(init=False, default_factory=dict)
    _steps: dict[str, dict[int, _Step]] = field(init=False, default_factory=dict)
    targets: set[int] = field(init=False)

    def __post_init__(self) -> None:
        """Index rows and instructions by line."""
        self.instructions = sorted(self.instructions, key=lambda instruction: instruction.address)
        self._addresses = [instruction.address for instruction in self.instructions]
        for row in self.rows:
            self._by_place.setdefault((row.file, row.line), []).append(row)
        self._static = {jump.address: jump.target for jump in self.static_jumps}
        for instruction in without_padding(self.instructions):
            self._entries.setdefault(instruction.function, instruction.address)
            self._real.setdefault(instruction.places[0], []).append(instruction)
            for place in dict.fromkeys(instruction.places[1:]):
                self._inlined.setdefault(place, []).append(instruction)
        conditional = (instruction.target for instruction in self.instructions)
        plain = (_plain_target(instruction) for instruction in self.instructions)
        groups = (conditional, plain, self._static.values())
        self.targets = {target for group in groups for target in group if target}

    def places(self) -> Iterable[Place]:
        """Return all lines that have code."""
        return self._by_place.keys() | self._real.keys()

    def line(self, place: Place) -> LineCode | None:
        """Return the code of a line, None for a line without code."""
        rows, real = self._by_place.get(place, []), self._real.get(place, [])
        if not rows and not real:
            return None
        stated = any(row.is_statement for row in rows)
        inlined = [] if stated else list(filter(_stays, self._inlined.get(place, [])))
        by_function: dict[str, list[Row]] = {}
        for row in rows:
            if row.is_statement and (instruction := self._at(row.address)):
                by_function.setdefault(_COLD.sub("", instruction.function), []).append(row)
        for instruction in (*real, *inlined):
            by_function.setdefault(_COLD.sub("", instruction.function), [])
        parts: list[tuple[Point, ...]] = []
        apart = set[tuple[int, int]]()
        for function, statements in by_function.items():
            own = [
                instruction
                for instruction in (*real, *inlined)
                if _COLD.sub("", instruction.function) == function
            ]
            steps = self._function(function)
            for part in self._parts(place, statements, own, steps):
                starts = {point[0]: point for point in part}
                order = sorted(starts, key=lambda at: -steps[at].number if at in steps else 1)
                parts.append(tuple(starts[at] for at in order))
                pairs = combinations(order, 2)
                apart.update(pair for pair in pairs if _are_apart(*pair, steps))
        names = tuple(dict.fromkeys(_CLONE.sub("", name) for name in by_function))
        if not parts:
            return None
        counted = {address for part in parts for point in part for address in point}
        stores = (item.address for item in real if _STORE.match(item.text))
        elsewhere = dict.fromkeys((*self._elsewhere(place, rows, (*real, *inlined)), *stores))
        shared = tuple(address for address in elsewhere if address not in counted)
        jumps = tuple(self._jumps(real, self._line_at))
        return LineCode(tuple(parts), jumps, names, shared, frozenset(apart))

    def _function(self, name: str) -> Mapping[int, _Step]:
        """Return the order of a function's instructions by address.

        It has only those to which known ways lead from its first one: none of a function that jumps
        where memory says.
        """
        if name not in self._steps:
            self._steps[name] = self._ordered(name) if name in self._entries else {}
        return self._steps[name]

    def _ordered(self, name: str) -> dict[int, _Step]:
        steps: dict[int, _Step] = {}
        begun = set[int]()
        stack = [self._entries[name]]
        while stack:
            address = stack[-1]
            instruction = self._at(address)
            if instruction is None or _COLD.sub("", instruction.function) != name:
                stack.pop()
                continue
            if _TABLE.match(instruction.text):
                return {}
            ways = self._onward(instruction)
            if address not in begun:
                begun.add(address)
                stack += [way for way in ways if way not in begun]
                continue
            stack.pop()
            if address not in steps:
                later = 0
                for step in (steps[way] for way in ways if way in steps):
                    later |= step.later | 1 << step.number
                steps[address] = _Step(len(steps), later)
        return steps

    def _onward(self, instruction: Instruction) -> list[int]:
        """Return where it goes on. Behind ud2, too: the kernel goes on after a warning."""
        address = instruction.address
        onward = (instruction.target, self._static.get(address), _plain_target(instruction))
        ways = [target for target in onward if target]
        after = self._after(address)
        ends = instruction.text.startswith(("jmp", "ret")) and address not in self._static
        return ways if ends or after is None else [*ways, after.address]

    def _elsewhere(
        self, place: Place, rows: Iterable[Row], own: Sequence[Instruction]
    ) -> Iterator[int]:
        """Yield where a statement begins outside all copies of the function that holds it."""
        copies = [item.places[item.places.index(place) + 1 :] for item in own]
        for row in rows:
            instruction = self._at(row.address) if row.is_statement else None
            if instruction is None or place in instruction.places:
                continue
            inside = (instruction.places[-len(copy) :] == copy for copy in copies if copy)
            if all(copies) and copies and not any(inside):
                yield row.address

    def _parts(
        self,
        place: Place,
        statements: list[Row],
        real: list[Instruction],
        steps: Mapping[int, _Step],
    ) -> Iterable[tuple[Point, ...]]:
        """Return the inlined copies of a line in one function.

        Jumps and stores without a beginning count on paths without one.
        """
        exact: dict[tuple[Place, ...], list[Point]] = {}
        markers: list[Point] = []
        for row in statements:
            instruction = self._at(row.address)
            assert instruction is not None
            if place in instruction.places:
                outer = instruction.places[instruction.places.index(place) + 1 :]
                exact.setdefault(outer, []).append((row.address,))
            else:
                markers.append(self._marker(row.address))
        copies: dict[tuple[Place, ...], list[Instruction]] = {}
        for instruction in real:
            outer = instruction.places[instruction.places.index(place) + 1 :]
            copies.setdefault(outer, []).append(instruction)
        loose = {outer: own for outer, own in copies.items() if outer not in exact}
        for outer, points in exact.items():
            for item in copies.get(outer, ()):
                stays = item.target or _STORE.match(item.text)
                if stays and all(_are_apart(item.address, at, steps) for (at, *_) in points):
                    points.append((item.address,))
        yield from (tuple(dict.fromkeys(points)) for points in exact.values())
        for own in loose.values():
            jumps = [instruction.address for instruction in own if _stays(instruction, place)]
            addresses = jumps or [instruction.address for instruction in own]
            if markers and not jumps and len(loose) == 1:
                yield tuple(dict.fromkeys(markers))
            else:
                yield tuple((address,) for address in addresses)
        if not exact and not loose and markers:
            yield tuple(dict.fromkeys(markers))

    def _marker(self, address: int) -> Point:
        """Return the addresses of a statement without instructions of its own.

        Where other code jumps to the address, it may belong to the block before, unless that ends
        with a conditional jump: gcc removes a block that holds a statement without instructions.
        """
        before = self._before(address)
        if before is None or address not in self.targets:
            return (address,)
        goes_on = before.falls_through and before.target is None
        is_before = goes_on or before.address in self._static
        return (address, before.address) if is_before else (address,)

    def _jumps(
        self, instructions: Iterable[Instruction], line: Callable[[int, Instruction], int]
    ) -> Iterator[Jump]:
        """Return the jumps among instructions; `line` is of an address, seen from a jump."""
        for instruction in instructions:
            target = instruction.target or self._static.get(instruction.address)
            after = self._after(instruction.address)
            if target is None or after is None:
                continue
            yield Jump(
                instruction.address, after.address, target, instruction.address in self._static,
                line(after.address, instruction), line(target, instruction),
            )  # fmt: skip

    def ways(self, place: Place) -> Iterator[Jump]:
        """Return the jumps of a line, and of functions inlined at it.

        The lines are those of the line's own function: 0 where it is unknown, -1 outside it.
        """

        def line(address: int, jump: Instruction) -> int:
            return self._line_in(address, jump.places[jump.places.index(place) + 1 :])

        return self._jumps((*self._real.get(place, []), *self._inlined.get(place, [])), line)

    def _line_in(self, address: int, outer: tuple[Place, ...]) -> int:
        """Return the line to which an address leads in a function that was inlined at `outer`."""
        instruction = self._at(address)
        for _ in range(_LONGEST_CHAIN):
            onward = None if instruction is None else _plain_target(instruction)
            if not onward:
                break
            instruction = self._at(onward)
        if instruction is None:
            return 0
        depth = len(instruction.places) - len(outer)
        inside = depth > 0 and instruction.places[depth:] == outer
        return instruction.places[depth - 1][1] if inside else -1

    def _line_at(self, address: int, jump: Instruction) -> int:
        """Return the line at an address in the function of a jump, or where that was inlined."""
        instruction, outer = self._at(address), jump.places[1:]
        if instruction is None:
            return 0
        for callers in (outer[level:] for level in range(len(outer) + 1)):
            depth = len(instruction.places) - len(callers)
            if depth > 0 and instruction.places[depth:] == callers:
                file, line = instruction.places[depth - 1]
                return line if file == jump.places[0][0] else 0
        return 0

    def _at(self, address: int) -> Instruction | None:
        place = bisect_left(self._addresses, address)
        if place < len(self._addresses) and self._addresses[place] == address:
            return self.instructions[place]
        return None

    def _before(self, address: int) -> Instruction | None:
        place = bisect_left(self._addresses, address)
        return self.instructions[place - 1] if place else None

    def _after(self, address: int) -> Instruction | None:
        place = bisect_left(self._addresses, address) + 1
        return self.instructions[place] if place < len(self._addresses) else None


def executions(code: LineCode, counts: Mapping[int, int]) -> int:
    """Return how often a line ran; `counts` are the executions by address."""
    return sum(_executions(part, code.apart, counts) for part in code.parts)


def _executions(
    part: Sequence[Point], apart: frozenset[tuple[int, int]], counts: Mapping[int, int]
) -> int:
    """Return the highest sum over points that are all apart.

    It is the least number of passes that explain all counts, where a pass may lead through points
    that are not apart (Dilworth 1950): as many as possible go on to a later point.
    """
    rarest = ((point[0], min(counts.get(at, 0) for at in point)) for point in part)
    ran = {at: count for at, count in rarest if count}
    pairs = [pair for pair in combinations(ran, 2) if pair not in apart]
    onward = {at: [later for first, later in pairs if first == at] for at in ran}
    passes = Counter({(_BEGIN, at): count for at, count in ran.items()})
    for at in onward:
        while ran[at] and (count := _go_on(at, ran[at], onward, passes, set())):
            ran[at] -= count
    return sum(passes[_BEGIN, at] for at in ran)


def _go_on(
    at: int,
    most: int,
    onward: Mapping[int, Sequence[int]],
    passes: Counter[tuple[int, int]],
    tried: set[int],
) -> int:
    """Let up to `most` more passes go on from a point; return how many do, 0 if none can.

    They replace passes that came to the later point from elsewhere, and that can go on otherwise.
    """
    if at == _BEGIN:
        return most
    tried.add(at)
    for before, later in product((_BEGIN, *onward), onward[at]):
        count = 0 if before in tried else min(most, passes[before, later])
        if count and (count := _go_on(before, count, onward, passes, tried)):
            passes[before, later] -= count
            passes[at, later] += count
            return count
    return 0


def _stays(instruction: Instruction, place: Place | None = None) -> bool:
    """Whether it remains in its branch: a jump, or what inlined functions do beside moves."""
    is_inlined = instruction.places[0] != place
    return bool(instruction.target) or (is_inlined and not _MOVE.match(instruction.text))


def _plain_target(instruction: Instruction) -> int | None:
    match = re.match(r"jmp\s+([0-9a-f]+)\b", instruction.text)
    return int(match[1], 16) if match else None


def _are_apart(first: int, second: int, steps: Mapping[int, _Step]) -> bool:
    """Tell whether neither of two instructions can follow the other."""
    if first == second or first not in steps or second not in steps:
        return False
    left, right = steps[first], steps[second]
    return not (left.later >> right.number | right.later >> left.number) & 1
