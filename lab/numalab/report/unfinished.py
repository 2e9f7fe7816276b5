"""Planned runs without a result: the number of finished runs, and the causes of the rest.

A reason comes from a guest and may be any text, so it is cut. Runs that failed for the same reason
share one line, so that a summary stays short.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from numalab.report.document import NOT_RUN, CellReport, StudyResults, UnfinishedRun
from numalab.report.formatting import plain_ascii, printable
from numalab.report.tables import WIDTH
from numalab.units import runs_of

MOST_CAUSES = 5
LONGEST_CAUSE, LONGEST_LIST = 130, 75  # characters
# Addresses, padded times and numbers of tasks differ between runs with the same cause; the status
# of a program is a cause.
_VARYING = re.compile(r"(\bstatus \d+)|\s*(?:\b(?:0x)?[0-9a-f]{8,}\b|\d+)")


def first_line(run: UnfinishedRun) -> str:
    """Return the first line of the reason, printable and short."""
    line = next(iter(run.reason.strip().splitlines()), "")
    return _cut(printable(line[: 2 * LONGEST_CAUSE]), LONGEST_CAUSE)


@dataclass(frozen=True)
class Cause:
    """The runs that ended in one way for one reason; `text` is the reason of the first."""

    status: str
    text: str
    runs: tuple[UnfinishedRun, ...]

    @property
    def cells(self) -> tuple[str, ...]:
        """The cells of the runs."""
        return tuple(dict.fromkeys(run.cell for run in self.runs))

    @property
    def title(self) -> str:
        """How many runs ended so: `run NAME lost`, `38 runs of 19 cells failed`."""
        if len(self.runs) == 1:
            return f"run {printable(self.runs[0].id)} {self.status}"
        of = f" of {len(self.cells)} cells" if len(self.cells) > 1 else ""
        return f"{runs_of(len(self.runs))}{of} {self.status}"

    @property
    def line(self) -> str:
        """The title and the reason."""
        return f"{self.title}: {self.text}" if self.text else self.title

    @property
    def places(self) -> str:
        """The cells, or the runs of one cell, cut to `LONGEST_LIST`."""
        names = self.cells if len(self.cells) > 1 else tuple(run.id for run in self.runs)
        return shortened([printable(name) for name in names])


def causes(runs: Iterable[UnfinishedRun]) -> tuple[Cause, ...]:
    """Group runs by status and reason, most frequent first; runs never started come last."""
    groups: dict[tuple[str, str], list[UnfinishedRun]] = {}
    for run in runs:
        kind = _VARYING.sub(lambda m: m[1] or "0", first_line(run).replace(run.id, ""))
        groups.setdefault((run.status, kind), []).append(run)
    ordered = sorted(groups.values(), key=lambda group: (group[0].status == NOT_RUN, -len(group)))
    return tuple(Cause(group[0].status, first_line(group[0]), tuple(group)) for group in ordered)


def causes_of(study: StudyResults) -> tuple[Cause, ...]:
    """Group the runs of a study without a result."""
    return causes(study.unfinished)


def finished_text(study: StudyResults) -> str:
    """Return how many runs finished: `12 of 50 runs finished, in 6 of 25 cells`."""
    finished = study.planned - len(study.unfinished)
    cells = f", in {len(study.reports)} of {study.cells} cells" if study.cells > 1 else ""
    return f"{finished} of {runs_of(study.planned)} finished{cells}"


def finished_of_cell(report: CellReport) -> str:
    """Return how many runs of a cell finished: `5 of 6 runs finished`."""
    planned = len(report.runs)
    return f"{planned - len(report.unfinished)} of {runs_of(planned)} finished"


def unfinished_lines(study: StudyResults, most: int = MOST_CAUSES) -> list[str]:
    """Return the number of finished runs, the causes of the rest, and which claims wait for them;
    nothing if all finished."""
    groups = causes_of(study)
    claims = [f"  {line}" for line in not_judged_lines(study)]
    return [finished_text(study), *cause_lines(groups, most), *claims] if groups else []


def not_judged_lines(study: StudyResults) -> list[str]:
    """Return a line on the required claims without a finished run; [] if there are none."""
    texts = [printable(claim.text) for claim in study.not_judged]
    if not texts:
        return []
    first = "required claims are not judged, as no run of their cells finished"
    if len(texts) == 1:
        first = "required claim is not judged, as no run of its cell finished"
    return [f"{len(texts)} {first}: {shortened(list(dict.fromkeys(texts)))}"]


def plain_block(study: StudyResults) -> list[str]:
    """Return `unfinished_lines` as a block of plain ASCII for a mail; [] if all finished."""
    return wrapped_block(unfinished_lines(study))


def wrapped_block(lines: Sequence[str]) -> list[str]:
    """Return lines as a block of plain ASCII for a mail, each wrapped; [] for no lines."""
    wrapped = [
        part
        for line in lines
        for part in wrap(
            plain_ascii(line.lstrip()), WIDTH, initial_indent=_indent(line),
            subsequent_indent="      ", break_long_words=False, break_on_hyphens=False,
        )
    ]  # fmt: skip
    return ["".join(f"{line}\n" for line in wrapped)] if wrapped else []


def _indent(text: str) -> str:
    return " " * (len(text) - len(text.lstrip()))


def cause_lines(
    groups: Sequence[Cause], most: int = MOST_CAUSES, *, places: bool = True
) -> list[str]:
    """Return lines for the most frequent causes and their `places`, and count the rest."""
    lines = []
    for cause in groups[:most]:
        lines.append(f"  {cause.line}")
        if places and len(cause.runs) > 1:
            lines.append(f"      {cause.places}")
    if rest := groups[most:]:
        runs = sum(len(cause.runs) for cause in rest)
        lines.append(f"  {runs} more runs without a result (other reasons: {len(rest)})")
    return lines


def shortened(names: Sequence[str], longest: int = LONGEST_LIST) -> str:
    """Join names while they fit, and count the rest."""
    kept: list[str] = []
    for name in names:
        if kept and len("; ".join([*kept, name])) > longest:
            return f"{'; '.join(kept)}; and {len(names) - len(kept)} more"
        kept.append(_cut(name, longest))
    return "; ".join(kept)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
