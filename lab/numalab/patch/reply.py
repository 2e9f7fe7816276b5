"""The verdict as a plain-text mail for the list: 72 columns, ASCII, tables as in changelogs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap

from numalab.patch.candidates import LEAST_PERCENT
from numalab.patch.hunting import FoundCase
from numalab.patch.text import effort, figure, headline, lost_text, reach_summary
from numalab.patch.unchanged import Unchanged
from numalab.patch.verdict import MeasureChange, PatchVerdict
from numalab.report.formatting import plain_ascii
from numalab.units import counted, unit_of_difference

WIDTH = 72
_LONGEST_NAME = 30  # in the column of a table
_TITLES = {"regressed": "Regressed:", "improved": "Improved:", "changed": "Changed:"}


@dataclass(frozen=True)
class _Command:
    """A command that the reader can run: not wrapped, and not written in other characters."""

    text: str


_Block = Sequence[str | _Command]


def render_reply(verdict: PatchVerdict) -> str:
    """Return the body of a reply, in lines of at most 72 columns without trailing blanks.

    Only a command is longer where it has to be: a wrapped command would not run.
    """
    blocks = [block for block in _blocks(verdict) if block]
    lines = [line for block in blocks for line in [*block, ""]]
    return "".join(
        f"  $ {line.text}\n" if isinstance(line, _Command) else f"{_ascii(line)}\n"
        for line in lines[:-1]
    )


def _blocks(verdict: PatchVerdict) -> Iterator[_Block]:
    yield [line for subject in verdict.subjects for line in _quoted(subject)]
    did, where = "compared", " on virtual NUMA machines"
    if not verdict.runs and not verdict.hunt.machines:
        did, where = "built", ""
    yield _wrapped(
        f"I {did} {verdict.baseline} ({verdict.release}) with and without this patch{where} with"
        f" numalab. Result: {headline(verdict)}."
    )
    if verdict.lost is not None:
        yield _wrapped(f"{lost_text(verdict.lost)}:")
        yield _said(verdict.lost.reason)
    yield [line for report in verdict.reports for line in _wrapped(f"{report}.")]
    for kind, title in _TITLES.items():
        if changes := [change for change in verdict.changes if change.went == kind]:
            yield [title, "", *_table(changes)]
    if verdict.changes:
        yield _wrapped(_table_note(verdict.changes))
    if verdict.hunt.case is not None:
        yield _case(verdict.hunt.case)
    elif verdict.cell_case is not None:
        case = verdict.cell_case
        text = f"The smallest machine on which it regressed: {case.machine} ({case.cpus} CPUs)"
        yield [*_wrapped(f"{text}, {case.load}."), "", _Command(case.command)]
    for excluded, what in (
        (True, f"No change of {LEAST_PERCENT:.0f}% or more"),
        (False, "No change shown"),
    ):
        if rows := [row for row in verdict.unchanged if row.excluded is excluded]:
            yield [f"{what} in (largest that may have gone unseen):", "", *map(_unchanged, rows)]
    for title, names in (("Undecided", verdict.undecided), ("Not tested", verdict.untested)):
        if names:
            yield _wrapped(f"{title}: {'; '.join(names)}.")
    yield [line for remark in verdict.remarks for line in _wrapped(f"Note: {remark}.")]
    if verdict.reach is not None:
        yield [line for text in reach_summary(verdict.reach) for line in _wrapped(text)]
    yield ["To reproduce:", "", _Command(verdict.command)]
    yield _wrapped(" ".join(_versions(verdict)))


def _unchanged(row: Unchanged) -> str:
    size = "any"
    if row.largest is not None:
        size = f"{figure(row.largest)} {unit_of_difference(row.unit)}"
    return f"  {row.measure:<24} {counted(row.cells, 'cell'):>9}   {size}"


def _versions(verdict: PatchVerdict) -> Iterator[str]:
    yield f"Kernel {verdict.release}; mode {verdict.mode};"
    yield f"{effort(verdict)},"
    yield f"{counted(verdict.hunt.machines, 'machine')} hunted."
    yield from verdict.versions


def _ascii(line: str) -> str:
    """Return a line in plain ASCII, with its columns."""
    return re.sub(r"\S+", lambda word: plain_ascii(word[0]), line).rstrip()


def _quoted(subject: str) -> list[str]:
    """Quote a subject on as many lines as it needs."""
    return wrap(
        _ascii(subject),
        WIDTH,
        initial_indent="> ",
        subsequent_indent=">   ",
        break_on_hyphens=False,
    )


def _wrapped(text: str) -> list[str]:
    """Wrap a text; further lines of an indented one are indented more."""
    indent = "    " if text.startswith("  ") else ""
    return wrap(_ascii(text), WIDTH, subsequent_indent=indent, break_on_hyphens=False)


def _said(text: str) -> list[str]:
    """Wrap what a guest may have written, which is no text of ours."""
    return wrap(_ascii(text), WIDTH, initial_indent="  | ", subsequent_indent="  | ")


def _table(changes: Sequence[MeasureChange]) -> list[str]:
    """Return a table as changelogs have it: a row for each measure and cell."""
    rows = [f"{'':{_LONGEST_NAME}} {'before':>9} {'after':>9}  {'change':>7}  where"]
    for change in changes:
        name = f"{change.measure}{'*' if change.simulated else ''} ({change.unit})"
        percent = "from 0" if change.percent is None else f"{change.percent:+.0f}%"
        percent = "" if change.unit == "%" else percent
        means = f"{figure(change.before):>9} {figure(change.after):>9}"
        if len(name) > _LONGEST_NAME:
            rows += _wrapped(name)
            name = ""
        row = f"{name:{_LONGEST_NAME}} {means}  {percent:>7}"
        where = f"{change.machine}, {change.load}"
        if len(row) + 2 + len(where) <= WIDTH:
            rows.append(f"{row}  {where}")
        else:
            rows += [row, *(f"{part:>{WIDTH}}" for part in _wrapped(where))]
        if change.interval is not None:
            low, high = (f"{'+' if end >= 0 else ''}{figure(end)}" for end in change.interval)
            points = " points" if change.unit == "%" else ""
            rows.append(f"{'':18}95% interval of the difference: {low} .. {high}{points}")
    return rows


def _table_note(changes: Sequence[MeasureChange]) -> str:
    fewest = min(change.runs for change in changes)
    star = " * times are simulated." if any(change.simulated for change in changes) else ""
    return (
        f"Means of {fewest} or more runs of each kernel with other seeds than those that suggested"
        f" the measure (rank sum test, corrected for all of them).{star}"
    )


def _case(case: FoundCase) -> _Block:
    size = f"{counted(case.nodes, 'node')}, {case.cpus} CPUs, {counted(case.tasks, 'task')}"
    before, after = (sum(side) / len(side) for side in (case.before, case.after))
    text = f"The smallest case that I found ({size}): {case.sentence}."
    means = f"{case.prop}: {figure(before)} before, {figure(after)} after (more is worse)."
    return [*_wrapped(text), *_wrapped(means), "", _Command(case.command)]
