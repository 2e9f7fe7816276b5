"""The changed lines of one kernel with their code: what a guest has to count. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from numalab.reach.counts import Counts
from numalab.reach.lines import Code, Jump, LineCode, executions
from numalab.reach.model import (
    BranchReach,
    CodeChange,
    FunctionReach,
    LineKind,
    LineReach,
    LineState,
    RunReach,
    Side,
)
from numalab.reach.source_text import SourceText
from numalab.source.c_functions import enclosing_function, function_lines
from numalab.source.changes import FileChange

_CONTEXT = 3  # lines of a patch around changed ones
_NEIGHBOURS = 16  # lines to search for code beside an insertion
_MAX_JUMPS = 1 << 14
_MAX_LINES = 2000  # of one file


@dataclass(frozen=True)
class TableLine:
    """One line; `code` is None where it has none, and `reason` says why.

    `ways` are of the body of an `if`: the jumps of its `condition` that lead there, and whether
    they do so when they are taken. `function` is the one around it in the source, or the macro, ""
    for none.
    """

    file: str
    number: int
    kind: LineKind
    text: str
    code: LineCode | None
    reason: str = ""
    state: LineState = LineState.NO_CODE
    ways: tuple[tuple[Jump, bool], ...] = ()
    condition: LineCode | None = None
    function: str = ""

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that hold its code: that of the source, then those it is inlined in."""
        code = self.code or self.condition
        names = (self.function, *code.functions) if code else ()
        return tuple(dict.fromkeys(filter(None, names)))

    @property
    def is_changed(self) -> bool:
        """Whether the patch adds or removes it."""
        return self.kind in ("added", "removed")


@dataclass(frozen=True)
class TableFunction:
    """A function whose code differs, and the address of its first instruction."""

    name: str
    file: str
    address: int


@dataclass(frozen=True)
class LineTable:
    """What a guest with one kernel has to count for one patch.

    `jiffies` is the address of jiffies_64, `hz` the ticks a second. `data`: the patch also changes
    initial data, or code that cannot be counted.
    """

    series: str
    kernel: str
    side: Side
    change: CodeChange
    lines: tuple[TableLine, ...]
    functions: tuple[TableFunction, ...]
    jiffies: int
    hz: int
    notes: tuple[str, ...] = ()
    data: bool = False

    @property
    def digest(self) -> str:
        """A digest of the counted lines: counts of equal tables can be summed."""
        lines = [(line.file, line.number, line.kind, line.text) for line in self.lines]
        return hashlib.sha256(repr([self.kernel, lines]).encode()).hexdigest()[:16]

    @property
    def addresses(self) -> Iterator[int]:
        """The addresses of all instructions to count."""
        for line in self.lines:
            yield from line.code.addresses if line.code else ()
        yield from (function.address for function in self.functions)
        yield from (jump.address for jump in self.jumps)  # the plugin follows jumps of sites only

    @property
    def changed_addresses(self) -> Iterator[int]:
        """One address of each copy of a changed line.

        Where none has code, as in a patch that removes lines: of each line beside the change, and
        where none of those has code, of each changed function.
        """
        coded = [(line, line.code) for line in self.lines if line.code]
        changed = [code for line, code in coded if line.is_changed]
        beside = [code for line, code in coded if line.kind == "context"]
        yield from (part[0][0] for code in changed or beside for part in code.parts)
        if not (changed or beside):
            yield from (function.address for function in self.functions)

    @property
    def jumps(self) -> Iterator[Jump]:
        """The jumps to follow."""
        count = 0
        for line in self.lines:
            of_ways = [jump for jump, _ in line.ways]
            for jump in (*of_ways, *(line.code.jumps if line.code else ())):
                if (count := count + 1) <= _MAX_JUMPS:
                    yield jump


def _with_neighbours(
    change: FileChange, side: Side, source: SourceText, name: str, codes: Sequence[Code]
) -> Mapping[int, LineKind]:
    """Return the changed lines of one side in order, and lines beside them.

    Beside them are three lines of the patched file, as in a patch, and the next lines with code
    where the other side has lines and this one has none.
    """
    kinds: dict[int, LineKind] = {}
    around: set[int] = set()
    count = change.after.count("\n") if side == "patched" else 0
    for part in change.changes:
        lines = part.added if side == "patched" else part.removed
        kinds |= {line.number: "added" if side == "patched" else "removed" for line in lines}
        start = part.new_start if side == "patched" else part.old_start
        for first, step in () if lines else ((start - 1, -1), (start, 1)):
            near = range(first, first + step * _NEIGHBOURS, step)
            number = next((at for at in near if _own_code(name, at, codes, source)), None)
            if number is not None:
                kinds.setdefault(number, "context")
        near = range(start - _CONTEXT, start + len(lines) + _CONTEXT)
        around |= {number for number in near if 0 < number <= count}
    for number in around:
        kinds.setdefault(number, "context")
    return dict(sorted(kinds.items()))


def _with_functions(
    change: FileChange, side: Side, kinds: Mapping[int, LineKind]
) -> Mapping[int, LineKind]:
    """Return the lines of one side in order, with those of the functions around the changes."""
    text = change.after if side == "patched" else change.before
    whole: dict[int, LineKind] = {}
    for part in change.changes:
        lines = part.added if side == "patched" else part.removed
        start = part.new_start if side == "patched" else part.old_start
        for number in {line.number for line in lines} or {start}:
            function = function_lines(text, number)
            if len(whole) + len(function) <= _MAX_LINES:
                whole.update((at, "function") for at in function)
    return dict(sorted((whole | dict(kinds)).items()))


def table_lines(
    change: FileChange,
    side: Side,
    codes: Sequence[Code],
    source: SourceText,
    *,
    whole_functions: bool = False,
) -> Iterator[TableLine]:
    """Return the lines of one file with their code in all objects.

    With `whole_functions` also the other lines of the functions that are changed.
    """
    name, text = (change.new, change.after) if side == "patched" else (change.old, change.before)
    if name is None:
        return
    lines = text.split("\n")
    kinds = _with_neighbours(change, side, source, name, codes)
    for number, kind in (
        _with_functions(change, side, kinds) if whole_functions else kinds
    ).items():
        content = lines[number - 1] if number <= len(lines) else ""
        code, ways = _own_code(name, number, codes, source), _ways_to(name, number, codes, source)
        if code is not None:
            leading = _leading(name, number, code, codes, source)
            code = replace(code, shared=(*code.shared, *leading))
        if code is not None or ways:
            yield TableLine(
                name, number, kind, content, code, state=LineState.NOT_REACHED,
                ways=tuple(way for way, _ in ways),
                condition=line_code((name, ways[0][1]), codes) if ways else None,
                function=enclosing_function(text, number),
            )  # fmt: skip
            continue
        for first in source.whole(number):
            if code := _own_code(name, first, codes, source):
                code = replace(code, jumps=())
                reason = f"part of the statement in line {first}"
                yield TableLine(
                    name, number, kind, content, code, reason, state=LineState.NOT_REACHED,
                    function=enclosing_function(text, number),
                )  # fmt: skip
                break
        else:
            why = source.reason(number)
            state = LineState.COMPILED_OUT if why.compiled_out else LineState.NO_CODE
            yield TableLine(
                name, number, kind, content, None, why.text, state,
                function=enclosing_function(text, number),
            )  # fmt: skip


def _ways_to(
    name: str, number: int, codes: Sequence[Code], source: SourceText
) -> list[tuple[tuple[Jump, bool], int]]:
    """Return the ways of the jumps of an `if` that lead to its body, each with its line.

    gcc merges bodies such as `return 0;` with each other, so that code of their own counts the
    others, too. Where one side of a jump leads there, the other must lead behind the body, or, in a
    condition with `||`, to another part of it; else, and without jumps, nothing is known. (Code
    behind the body may have been moved, so that the way around it looks like one to it, or merged
    with the body, so that both sides look like ways around it.)
    """
    head = source.guard(number)
    behind = source.after_guard(number) if head else ()
    if not any(line_code((name, at), codes) for at in behind):
        return []
    parts = head if any("||" in source.code(at) for at in head) else ()
    ways, around = list[tuple[tuple[Jump, bool], int]](), False
    for at in head:
        for jump in (jump for code in codes for jump in code.ways((name, at))):
            sides = {True: jump.target_line, False: jump.next_line}
            leads = [line in behind for line in sides.values()]
            around = around or any(leads)
            away = [taken for taken, line in sides.items() if line not in (*head, *behind)]
            astray = any(sides[not taken] not in (*parts, *behind) for taken in away)
            if astray or all(leads) or not all(sides.values()):
                return []
            ways += [((jump, taken), at) for taken in away]
    return ways if around else []


def _leading(
    name: str, number: int, code: LineCode, codes: Sequence[Code], source: SourceText
) -> Iterator[int]:
    """Yield the jumps that lead to a line of a condition from its earlier lines.

    Only to one with fewer jumps than operands: gcc may count its first operand for a line before.
    """
    operands = source.operands(number)
    if operands == 1 or len(code.jumps) >= operands * len(code.parts):
        return
    for at in source.statement(number):
        before = line_code((name, at), codes) if at < number else None
        for jump in before.jumps if before else ():
            if number in (jump.next_line, jump.target_line):
                yield jump.address


def line_code(place: tuple[str, int], codes: Iterable[Code]) -> LineCode | None:
    """Return the code of a line in all objects together, None for none."""
    pieces = [piece for piece in (code.line(place) for code in codes) if piece is not None]
    return _joined(pieces) if pieces else None


def _joined(pieces: Sequence[LineCode]) -> LineCode:
    return LineCode(
        tuple(part for code in pieces for part in code.parts),
        tuple(jump for code in pieces for jump in code.jumps),
        tuple(dict.fromkeys(name for code in pieces for name in code.functions)),
        tuple(address for code in pieces for address in code.shared),
        frozenset(pair for code in pieces for pair in code.apart),
    )


def _own_code(name: str, number: int, codes: Sequence[Code], source: SourceText) -> LineCode | None:
    """Return the code that is counted for a line, None for none.

    A function begins at the line with its name where it is inlined, else at its `{`. A line that
    leaves runs as often as the statement before it: gcc merges it with other ends.
    """
    if not source.can_run(number):
        return None
    for at in source.statement_before(number):
        if code := line_code((name, at), codes):
            return replace(code, jumps=())
    pieces: list[LineCode] = []
    for at in source.head(number) or (number,):
        code = line_code((name, at), codes)
        if code and not any(set(code.functions) & set(piece.functions) for piece in pieces):
            pieces.append(code)
    return _joined(pieces) if pieces else None


def run_reach(table: LineTable, counts: Counts) -> RunReach:
    """Return the reach of a run from its counts; bytes of lines that are no UTF-8 become U+FFFD."""
    totals = {address: site.total for address, site in counts.sites.items()}
    return RunReach(
        series=table.series,
        kernel=table.kernel,
        side=table.side,
        code=table.change,
        data=table.data,
        lines=tuple(_line_reach(line, table, counts, totals) for line in table.lines),
        functions=tuple(
            FunctionReach(
                name=function.name,
                file=function.file,
                executions=totals.get(function.address, 0),
            )
            for function in table.functions
        ),
        notes=table.notes,
    )


def _line_reach(
    line: TableLine, table: LineTable, counts: Counts, totals: Mapping[int, int]
) -> LineReach:
    plain = LineReach(
        file=line.file,
        number=line.number,
        kind=line.kind,
        text=line.text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
        state=line.state,
        reason=line.reason,
        functions=line.functions,
    )
    if line.code is None and not line.ways:
        return plain
    count = executions(line.code, totals) if line.code else 0
    if line.ways:
        taken = (counts.jumps.get(jump.address, (0, 0))[not way] for jump, way in line.ways)
        count = sum(taken)
    state, reason = LineState.REACHED if count else LineState.NOT_REACHED, line.reason
    shared = line.code.shared if line.code and not line.ways else ()
    if not count and any(totals.get(address) for address in shared):
        state, reason = (
            LineState.UNKNOWN,
            "a part of it may have run: gcc merged it with other code",
        )
    ran = [
        counts.sites[address]
        for part in (line.code.parts if line.code and count else ())
        for point in part
        if all(address in counts.sites for address in point)
        for address in point
    ]
    firsts = [site.first for site in ran if site.first is not None]
    return plain.model_copy(
        update={
            "state": state,
            "reason": reason,
            "executions": count,
            "cpus": tuple(sorted({cpu for site in ran for cpu in _cpus(site.by_cpu)})),
            "first_s": _uptime(min(firsts), table.hz) if firsts else None,
            "branches": tuple(_branches(line.code.jumps if line.code else (), counts)),
        }
    )


def _cpus(by_cpu: Sequence[int]) -> Iterable[int]:
    return (cpu for cpu, count in enumerate(by_cpu) if count)


def _branches(jumps: Iterable[Jump], counts: Counts) -> Iterator[BranchReach]:
    """Return the ways of the jumps of a line, inlined copies with the same ways together."""
    ways: dict[tuple[int, int, bool], tuple[int, int]] = {}
    for jump in jumps:
        taken, other = counts.jumps.get(jump.address, (0, 0))
        key = (jump.target_line, jump.next_line, jump.is_static)
        before = ways.get(key, (0, 0))
        ways[key] = (before[0] + taken, before[1] + other)
    for (target, after, static), (taken, other) in ways.items():
        yield BranchReach(
            taken=taken,
            taken_line=target,
            not_taken=other,
            not_taken_line=after,
            is_static=static,
        )


def _uptime(jiffies: int, hz: int) -> float:
    """Return seconds since the boot: jiffies begin at -300 s (include/linux/jiffies.h)."""
    begin = (-300 * hz) & 0xFFFFFFFF
    return round((jiffies - begin) / hz, 3)
