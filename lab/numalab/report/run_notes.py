"""The notes of runs, in the few lines that a report of a study has for them."""

import re
from collections.abc import Iterable

from numalab.report.document import CellReport, Run
from numalab.report.formatting import printable
from numalab.units import counted, runs_of

MOST_LINES = 5
_MOST_VARIANTS = 3  # that a line names
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def run_notes(reports: Iterable[CellReport]) -> list[str]:
    """Return a line for each note of the runs, with the number of runs that have it.

    What most runs have comes first; after `MOST_LINES` lines the rest is counted. Notes that differ
    in numbers alone share a line, which has the first of them. They may be text of a guest.
    """
    runs = [run for report in reports for run in report.runs]
    by_text: dict[str, dict[int, list[str]]] = {}  # the notes of a run by its place in `runs`
    for place, run in enumerate(runs):
        for note in run.notes:
            by_text.setdefault(_NUMBER.sub("0", note), {}).setdefault(place, []).append(note)
    rows = sorted(by_text.values(), key=len, reverse=True)
    lines = [_line(row, runs) for row in rows[:MOST_LINES]]
    if (more := len(rows) - MOST_LINES) > 0:
        lines.append(f"and {counted(more, 'more note')} on runs: see report.json")
    return lines


def _line(row: dict[int, list[str]], runs: list[Run]) -> str:
    notes = [note for own in row.values() for note in own]
    variants = list(dict.fromkeys(runs[place].variant for place in row))
    named = ", ".join([*variants[:_MOST_VARIANTS], "..."][: len(variants)])
    whose = f" ({named})" if len(variants) < len({run.variant for run in runs}) else ""
    alike = " (others with other numbers)" if len({*notes}) > 1 else ""
    return f"{len(row)} of {runs_of(len(runs))}{whose}: {printable(notes[0])}{alike}"
