"""The verdict as text for a terminal and the top of a report: at most 25 lines."""

from collections.abc import Iterator, Sequence

from numalab.errors import shown
from numalab.patch.candidates import LEAST_PERCENT
from numalab.patch.hunting import FoundCase
from numalab.patch.unchanged import Unchanged
from numalab.patch.verdict import (
    CellCase,
    LostRuns,
    MeasureChange,
    PatchVerdict,
    Word,
)
from numalab.patch.warned import NAMES
from numalab.reach.model import LineReach, PatchReach
from numalab.reach.reach_map import feature_text, needed_feature
from numalab.reach.text import verdict_text
from numalab.source.c_functions import called
from numalab.units import counted, format_seconds, runs_of, unit_of_difference

MOST_LINES = 25
UNDECIDED = "UNDECIDED (the same command adds runs)"
NOT_SHOWN = "no change shown"
ONE_SIDED = "one kernel alone has values of it"
REDEFINED = "runs of several versions of numalab define it in several ways"
UNTESTED = "MAY DIFFER (not tested by fresh runs)"
# How many changes of a kind and reports, and how many measures without a change (twice as many
# where nothing changed): the first pair with which all lines have room.
_ROOM = ((4, 4), (4, 2), (4, 0), (2, 0), (1, 0))
_MOST_LINES_OF_REACH = 3
_FEWEST_REMARKS = 3  # that have room before the measures without a change
_HEADLINES: dict[Word, str] = {
    "regressed": "regression found",
    "improved": "improvement, no regression found",
    "changed": "behaviour changed, neither better nor worse",
    "no change found": "no change found",
    "partly compared": "no change found in {compared} of {cells}; {rest} not compared",
    "may differ": "undecided: measures differ that no fresh runs tested",
    "only hunted": "no regression found; only the hunt ran changed lines, so no load is compared",
    "not reached": "not reached: no changed line ran",
    "no code": "no changed line has code: both kernels are the same",
    "not compiled": "not compiled: this kernel's configuration has no code of a changed line",
    "same code": "no effect: the change compiles to the same code in both kernels",
    "may fail": "undecided: in the hunt, the patched kernel lost a guest",
    "runs failed": "undecided: runs failed, and no cell could be compared",
    "undecided": "undecided: the time was over; the same command continues",
}
_ONE_SIDED = "undecided: one kernel alone has the measures that decide"
_FAILED_OR_ONE_SIDED = "undecided: runs failed, or one kernel alone has the measures that decide"
_REDEFINED = (
    "undecided: runs define the measures that decide in several ways; name another --output"
)
_TITLES = {"regressed": "REGRESSED", "improved": "IMPROVED", "changed": "CHANGED"}


def render_verdict(verdict: PatchVerdict) -> str:
    """Return the verdict in at most 25 lines, each with its line break.

    If it is longer, remarks after the third and measures without a change are left out first, then
    changes and reports.
    """
    remarks = verdict.remarks
    for most, most_unchanged in _ROOM:
        lines = [line for block in _blocks(verdict, most, most_unchanged) for line in block]
        if len(lines) + min(len(remarks), _FEWEST_REMARKS + 1) <= MOST_LINES:
            break
    room = max(MOST_LINES - len(lines), _FEWEST_REMARKS + 1)
    fits = len(remarks) if len(remarks) <= room else room - 1
    lines += [f"remark     {remark}" for remark in remarks[:fits]]
    if fits < len(remarks):
        lines += [f"  and {counted(len(remarks) - fits, 'more remark')}: --json has all"]
    if (more := len(lines) - MOST_LINES + 1) > 1:
        lines[MOST_LINES - 1 :] = [f"and {counted(more, 'more line')}: see the page"]
    return "".join(f"{shown(line)}\n" for line in lines)


def headline(verdict: PatchVerdict) -> str:
    """Return the verdict as one sentence."""
    if verdict.word == "runs failed" and verdict.one_sided:
        return _FAILED_OR_ONE_SIDED
    may_go_on = verdict.undecided or verdict.time_over
    if verdict.word == "undecided" and verdict.redefined and not may_go_on:
        return _REDEFINED  # the same command would not help
    if verdict.word == "undecided" and verdict.one_sided and not may_go_on:
        return _ONE_SIDED
    rest = verdict.cells - verdict.compared
    return _HEADLINES[verdict.word].format(
        compared=verdict.compared,
        cells=counted(verdict.cells, "cell"),
        rest="the other was" if rest == 1 else f"{rest} were",
    )


def _blocks(verdict: PatchVerdict, most: int, most_unchanged: int) -> Iterator[list[str]]:
    yield [f"verdict    {headline(verdict)}", f"patch      {_title(verdict)}"]
    yield [f"baseline   {verdict.baseline}, {verdict.release}; {_effort(verdict)}"]
    if verdict.reach is not None:
        yield reach_summary(verdict.reach)
    if verdict.lost is not None:
        yield [f"LOST       {lost_text(verdict.lost)}:"]
        yield [f"  {verdict.lost.reason}", f"  first: {verdict.lost.runs[0]}"]
    for report in verdict.reports[:most]:
        yield [f"REPORTED   {report}", f"  first: {report.first}"]
    if (more := len(verdict.reports) - most) > 0:
        yield [f"  and {counted(more, 'more report')}"]
    for kind, title in _TITLES.items():
        changes = [change for change in verdict.changes if change.went == kind]
        if changes:
            more = len(changes) - most
            rest = [f"  and {counted(more, 'more change')}"] if more > 0 else []
            yield [title, *map(change_line, changes[:most]), *rest]
    if verdict.hunt.case is not None:
        yield ["CASE", *case_lines(verdict.hunt.case)]
    elif verdict.cell_case is not None:
        yield ["CASE", *cell_lines(verdict.cell_case)]
    if verdict.undecided:
        yield [f"{UNDECIDED}  {_few(verdict.undecided)}"]
    if verdict.untested:
        yield [f"{UNTESTED}  {_few(verdict.untested)}"]
    yield from _unchanged(verdict, most_unchanged)


def _unchanged(verdict: PatchVerdict, most: int) -> Iterator[list[str]]:
    """Yield the measures of which a change is excluded, and the others without a shown one."""
    titles = {True: f"NOT CHANGED by {LEAST_PERCENT:.0f} % or more", False: NOT_SHOWN.upper()}
    kinds = {row.excluded for row in verdict.unchanged}
    most = most * (1 if verdict.changes else 2) // max(1, len(kinds))
    for kind in (True, False):
        rows = [row for row in verdict.unchanged if row.excluded is kind]
        if rows and most:
            more = len(rows) - most
            rest = [f"  and {counted(more, 'more measure')}"] if more > 0 else []
            yield [f"{titles[kind]} (in brackets: the smallest change that would have been seen)"]
            yield [*map(unchanged_line, rows[:most]), *rest]


def lost_text(lost: LostRuns) -> str:
    """Return of which kernel how many runs failed, and that none of the other one did there."""
    other = next(name for side, name in NAMES.items() if side != lost.side)
    runs = runs_of(len(lost.runs))
    return f"{runs} of {NAMES[lost.side]} failed, none of {other} in the same cells"


def _few(names: Sequence[str]) -> str:
    """Return the first three names in a line."""
    rest = [f"and {len(names) - 3} more"] if len(names) > 3 else []
    return "; ".join([*names[:3], *rest])


def reach_summary(reach: PatchReach) -> list[str]:
    """Return how many changed lines ran, and the first ones that did not, headers last."""
    text = verdict_text(reach).removeprefix(f"{reach.series}: ")
    lines = [f"reach      {text}"]
    missed = sorted(reach.not_reached, key=lambda line: line.file.endswith(".h"))
    for line in missed[:_MOST_LINES_OF_REACH]:
        removed = " (removed)" if line.kind == "removed" else ""
        lines.append(f"  not reached: {line.file}:{line.number}{removed}{_function(line, reach)}")
    more = len(missed) - _MOST_LINES_OF_REACH
    return [*lines, f"  and {counted(more, 'more line')}"] if more > 0 else lines


def _function(line: LineReach, reach: PatchReach) -> str:
    """Return the function of a line, and what a guest may need so that the function runs."""
    if not line.functions:
        return ""
    name = line.functions[0]
    sides = [side for side in (reach.patched, reach.baseline) if side]
    ran = [other for side in sides for other in side.lines if other.executions and other.functions]
    if any(name in other.functions for other in ran):
        return f" in {called(name)}; other lines of the function ran"
    feature = needed_feature(line.file, name)
    if any(feature == needed_feature(other.file, other.functions[0]) for other in ran):
        return f" in {called(name)}"  # the guests have the feature
    needs = feature_text(feature)
    return f" in {called(name)}{needs and f'; {needs}'}"


def _title(verdict: PatchVerdict) -> str:
    first = verdict.subjects[0] if verdict.subjects else verdict.name
    more = len(verdict.subjects) - 1
    if more <= 0:
        return first
    return f"{first} and {'1 more patch' if more == 1 else f'{more} more patches'}"


def effort(verdict: PatchVerdict) -> str:
    """Return the cells with a finished run, of those planned, and the finished runs."""
    of_all = f"{verdict.cells_run} of " if verdict.cells_run < verdict.cells else ""
    return f"{of_all}{counted(verdict.cells, 'cell')}, {runs_of(verdict.runs)}"


def _effort(verdict: PatchVerdict) -> str:
    parts = [f"mode {verdict.mode}", effort(verdict)]
    if verdict.runs:
        parts.append(f"{counted(verdict.hunt.machines, 'machine')} hunted")
    return f"{', '.join(parts)} in {format_seconds(verdict.seconds)}"


def change_line(change: MeasureChange) -> str:
    """Return a change on a line: measure, means, change in percent, interval, and where."""
    star = "*" if change.simulated else ""
    means = f"{figure(change.before)} to {figure(change.after)} {change.unit}"
    if change.percent is not None and change.unit != "%":
        means += f", {change.percent:+.0f} %"
    interval = ""
    if change.interval is not None:
        low, high = change.interval
        points = " points" if change.unit == "%" else ""
        interval = f" (difference {_signed(low)} to {_signed(high)}{points})"
    return f"  {change.measure}{star}  {means}{interval}  {change.machine}, {change.load}"


def unchanged_line(row: Unchanged) -> str:
    """Return a measure without a change on a line, with the smallest change in brackets."""
    where = f"  {row.measure} in {counted(row.cells, 'cell')}"
    if row.smallest is None:
        return f"{where} (none: it spreads too much)"
    size = f"{figure(row.smallest)} {unit_of_difference(row.unit)}"
    if row.cells > 1:
        size += " in the median cell"
    most = "none in another" if row.largest is None else f"at most {figure(row.largest)}"
    return f"{where} ({size}{'' if row.largest == row.smallest else f', {most}'})"


def case_lines(case: FoundCase) -> list[str]:
    """Return the smallest case: its machine, what happens, and the command that repeats it."""
    size = f"{counted(case.nodes, 'node')}, {case.cpus} CPUs, {counted(case.tasks, 'task')}"
    means = " to ".join(figure(sum(side) / len(side)) for side in (case.before, case.after))
    return [
        f"  {case.prop} {means} on {size}: {case.sentence}",
        f"  repeat it: {case.command}",
    ]


def cell_lines(case: CellCase) -> list[str]:
    """Return the smallest regressed cell, and the command that repeats it."""
    return [
        f"  {case.load} on {case.machine} ({case.cpus} CPUs), the smallest cell that regressed",
        f"  repeat it: {case.command}",
    ]


def figure(value: float) -> str:
    """Write three digits; large numbers whole."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else ''}{figure(value)}"
