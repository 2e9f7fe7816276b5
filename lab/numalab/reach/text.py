"""The reach of a patch as plain text. Pure."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from numalab.cpulist import format_cpulist
from numalab.reach.model import (
    BranchReach,
    CodeChange,
    FunctionReach,
    LineReach,
    LineState,
    PatchReach,
    Reached,
    RunReach,
)
from numalab.units import counted, runs_of

_WIDTH = 56  # of a source line
_MOST = 40  # rows of one file
_MOST_BRANCHES = 3  # of a line
_TAB = 4
_WHOLE = 100  # a mean above it has no decimals


def verdict_text(reach: PatchReach) -> str:
    """Return the verdict on one line, with how many changed lines it says nothing about."""
    return f"{reach.series}: {_verdict(reach, _uncounted(reach))}"


def _uncounted(reach: PatchReach) -> str:
    states = {"unknown": LineState.UNKNOWN, "not compiled": LineState.COMPILED_OUT}
    counts = {what: reach.in_state(state) for what, state in states.items()}
    text = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return f"; of the other changed lines, {text}" if text else ""


def _verdict(reach: PatchReach, rest: str) -> str:
    code, changed = reach.code, reach.changed
    if code is CodeChange.NONE and any(line.is_changed for line in changed):
        return f"the change compiles to the same code in both kernels{rest}"
    if code is CodeChange.NONE:
        return f"no changed line has code; both kernels have the same code{rest}"
    if code is CodeChange.DATA:
        return f"no changed line has code; only initial data differs{rest}"
    sides = [side for side in (reach.patched, reach.baseline) if side]
    functions = [function for side in sides for function in side.functions]
    names = {function.name for function in functions}
    count = len({function.name for function in functions if function.executions})
    if not changed and not names:
        return _unknown(sides)
    if not changed:
        what = f"the code of {counted(len(names), 'function')} differs"
        return f"no changed line has code, but {what}; {count} of {len(names)} ran{rest}"
    ran = len(changed) - len(reach.not_reached)
    kind = "changed lines with code" if changed[0].is_changed else "lines beside the change"
    more = f" and {count} of {len(names)} functions that differ" if names else ""
    return f"{reach.verdict}, {ran} of {len(changed)} {kind}{more} ran{rest}"


def _unknown(sides: Sequence[RunReach]) -> str:
    """Return why nothing of a patch could be counted."""
    lines = [line for side in sides for line in side.lines if line.state is LineState.UNKNOWN]
    notes = [note for side in sides for note in side.notes]
    why = [*(line.reason for line in lines if line.is_changed), *notes]
    if why:
        return f"unknown whether changed code ran: {why[0]}"
    return "no changed line has code in the objects that were compared"


def reach_lines(reach: PatchReach) -> Iterator[str]:
    """Return verdict and table, a line each."""
    yield verdict_text(reach)
    for side in (reach.patched, reach.baseline):
        if side is not None:
            yield from _side_lines(side, functions_with_lines(reach))


def functions_with_lines(reach: PatchReach) -> frozenset[str]:
    """Return the functions that hold code of changed lines: they may differ by these alone."""
    sides = [side for side in (reach.patched, reach.baseline) if side]
    changed = (line for side in sides for line in side.lines if line.is_changed)
    return frozenset(name for line in changed for name in line.functions)


def _side_lines(side: RunReach, with_lines: Collection[str]) -> Iterator[str]:
    changed = [line for line in side.lines if line.is_changed]
    shown = changed if any(line.executable for line in changed) else side.lines
    rows = [line for line in shown if line.state is not LineState.NO_CODE]
    since = "the boot" if side.since == "boot" else "the command's start"
    if rows:
        yield ""
        yield f"{side.kernel} ({side.side}), {runs_of(side.runs)}, counted from {since}"
    for file, lines in groupby(rows, key=lambda line: line.file):
        group = list(lines)
        yield f"  {file}"
        yield f"  {'line':>6} {'times a run':>12} {'CPUs':<10} {'first':>8}  source"
        yield from (_row(line, side.runs) for line in group[:_MOST])
        if len(group) > _MOST:
            yield f"  {len(group) - _MOST} more lines"
    silent = [line for line in changed if line.state is LineState.NO_CODE]
    if silent and rows:
        yield f"  without code: {_numbers(line.number for line in silent)}"
    for function in side.functions:
        ran = function_text(function, side.runs)
        count = f"{ran} times a run" if function.executions else ran
        differs = "may differ" if function.name in with_lines else "differs"
        yield f"  {function.name}() {differs} in code that no changed line has; entered: {count}"
    yield from (f"  {note}" for note in side.notes)


def _numbers(numbers: Iterable[int]) -> str:
    return format_cpulist(sorted(numbers))


def _row(line: LineReach, runs: int) -> str:
    count = per_run(line.executions, runs) if line.executions else str(line.state)
    first = "" if line.first_s is None else f"{line.first_s:.2f} s"
    text = f"{line.sign}{line.text.expandtabs(_TAB)}"[:_WIDTH].rstrip()
    row = f"  {line.number:>6} {count:>12} {format_cpulist(line.cpus):<10} {first:>8}  {text}"
    if line.reason and line.state in (LineState.COMPILED_OUT, LineState.UNKNOWN):
        row += f"  ({line.reason})"
    ways = [branch_text(branch, runs) for branch in line.executed_branches[:_MOST_BRANCHES]]
    return row.rstrip() + "".join(f"\n{'':41}  {way}" for way in ways)


def per_run(count: int, runs: int) -> str:
    """Write the executions of a mean run; kernels are compared by them, whose runs differ."""
    mean = count / runs
    return f"{mean:,.0f}" if mean >= _WHOLE else f"{mean:.3g}"


def function_text(function: FunctionReach, runs: int) -> str:
    """Write how often a function was entered in a mean run."""
    return per_run(function.executions, runs) if function.executions else "not reached"


def branch_text(branch: BranchReach, runs: int) -> str:
    """Return how often each way of a branch was taken in a mean run."""
    ways = ((branch.taken, branch.taken_line), (branch.not_taken, branch.not_taken_line))
    words = [
        f"{per_run(count, runs)} to {f'line {line}' if line else 'elsewhere'}"
        for count, line in ways
    ]
    return f"{'static branch' if branch.is_static else 'branch'}: {', '.join(words)}"


def is_silent(reach: PatchReach) -> bool:
    """Tell whether runs cannot differ by the patch: nothing of it ran."""
    return reach.verdict in (Reached.NOT, Reached.NO_CODE)
