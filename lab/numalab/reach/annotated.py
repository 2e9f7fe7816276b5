"""The rows of an annotated patch: the lines of both kernels in the order of a patch. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from numalab.reach.model import LineReach, LineState, PatchReach
from numalab.reach.text import branch_text, per_run
from numalab.units import counted

Tone = Literal["reached", "missed", "silent"]
_MOST_BRANCHES = 3
_MOST_LOADS = 4
_TAB = 8


@dataclass(frozen=True)
class PatchRow:
    """A line of a patch: its sign, its numbers, its executions a run in words, the details."""

    sign: Literal["+", "-", " "]
    number: int
    count: str
    details: str
    text: str
    tone: Tone
    begins: bool  # whether lines are left out before it


@dataclass(frozen=True)
class PatchFile:
    """The rows of one file."""

    name: str
    rows: tuple[PatchRow, ...]


def annotated_files(reach: PatchReach) -> tuple[PatchFile, ...]:
    """Return the lines of a patch by file, removed lines before the lines that replace them."""
    old = reach.baseline.lines if reach.baseline else ()
    new = reach.patched.lines if reach.patched else ()
    if new:  # the context of a patch is that of the patched file
        old = tuple(line for line in old if line.kind == "removed")
    else:
        old, new = (), old
    names = dict.fromkeys(line.file for line in (*new, *old))
    return tuple(
        PatchFile(
            name,
            tuple(
                _rows(
                    [line for line in old if line.file == name],
                    [line for line in new if line.file == name],
                    reach,
                )
            ),
        )
        for name in names
    )


def _rows(
    old: Sequence[LineReach], new: Sequence[LineReach], reach: PatchReach
) -> Iterator[PatchRow]:
    """Merge removed lines with those of the patched file by their places in it."""
    removed, shift, last = list(old), 0, 0
    for line in new:
        while removed and removed[0].number + shift <= line.number:
            row, shift, last = removed.pop(0), shift - 1, line.number
            yield _row(row, reach.runs_of(row), begins=False)
        yield _row(line, reach.runs_of(line), begins=bool(last) and line.number > last + 1)
        shift += line.kind == "added"
        last = line.number
    for line in removed:
        yield _row(line, reach.runs_of(line), begins=False)


def _row(line: LineReach, runs: int, *, begins: bool) -> PatchRow:
    tones: dict[LineState, Tone] = {
        LineState.REACHED: "reached",
        LineState.NOT_REACHED: "missed",
    }
    is_silent = not line.is_changed and line.state is LineState.NO_CODE
    details = [line.reason] if line.reason and not is_silent else []
    if line.first_s is not None:
        details.append(f"first after {line.first_s:.2f} s")
    if line.cpus:
        details.append(f"{len(line.cpus)} CPU{'s' * (len(line.cpus) > 1)}")
    details += [branch_text(branch, runs) for branch in line.executed_branches[:_MOST_BRANCHES]]
    if line.loads:
        details.append(f"by {_load_names(line.loads)}")
    return PatchRow(
        sign=line.sign,
        number=line.number,
        count=per_run(line.executions, runs) if line.executions else _silence(line),
        details="; ".join(details),
        text=line.text.expandtabs(_TAB),
        tone=tones.get(line.state, "silent"),
        begins=begins,
    )


def _silence(line: LineReach) -> str:
    return "" if line.state is LineState.NO_CODE else str(line.state)


def _load_names(loads: Sequence[str]) -> str:
    """Name the first loads; a name may have a comma, so they are quoted."""
    names = ", ".join(f'"{load}"' for load in loads[:_MOST_LOADS])
    more = len(loads) - _MOST_LOADS
    return f"{names} and {counted(more, 'more load')}" if more > 0 else names
