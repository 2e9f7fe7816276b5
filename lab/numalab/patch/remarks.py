"""The remarks of a verdict: what was lost, and what was not compared."""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import get_args

from numalab.capture.counters import NOT_MEASURED
from numalab.patch.candidates import HEADLINES
from numalab.patch.experiment import ExperimentOutcome
from numalab.patch.hunting import HuntOutcome
from numalab.patch.screening import SCREEN, SLOWER, ran_equally_often
from numalab.patch.standard import BASELINE, PATCHED
from numalab.patch.verdict import LostRuns
from numalab.patch.warned import NAMES, one_sided, reports_of, uncompared
from numalab.reach.model import Side
from numalab.report.build.study import several_meanings
from numalab.results.plan import Cell
from numalab.results.reader import load_reaches
from numalab.units import counted, runs_of

_NAMED = 3  # measures of one kernel alone


def losses(outcome: ExperimentOutcome, lost: LostRuns | None, hunted: HuntOutcome) -> Iterator[str]:
    """Yield what was lost in the hunt, and in runs that are no part of `lost`."""
    for loss in hunted.losses:
        yield f"hunt, not with the baseline: {loss.finding.text}; {loss.outcome}"
    reported = lost.runs if lost is not None else ()
    for side in get_args(Side):
        if ends := [end for end in outcome.lost(side) if end.run not in reported]:
            reason = ends[0].error.partition("\n")[0]
            yield f"{runs_of(len(ends))} of {NAMES[side]} failed: {reason}"
    if hosts := [failure.ended for failure in outcome.failures if failure.ended.by_host]:
        reason = hosts[0].error.partition("\n")[0]
        yield f"{runs_of(len(hosts))} failed because of this host: {reason}"


def cell_remarks(outcome: ExperimentOutcome, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield what could not be measured, and which cells were not compared."""
    yield from _lacking(outcome)
    yield from _one_sided(outcome, cells)
    once = (report for report in one_sided(outcome) if report not in reports_of(outcome))
    yield from (f"{report}; more runs decide" for report in once)
    yield from uncompared(outcome)
    if ran_equally_often(load_reaches(outcome.counted)):
        yield (
            "changed code ran equally often in each run: perhaps only in the boot, which all runs"
            " of a machine share"
        )
    if outcome.unreached:
        skipped = counted(len(outcome.unreached), "cell")
        yield f"no changed line ran in {skipped}: nothing is compared there"
    if failed := len(outcome.failed(cells)):
        yield f"{failed} of {counted(len(cells), 'cell')} not compared, as runs failed"
    if short := len(outcome.short(cells)):
        minutes = max(1, ceil(SLOWER * outcome.needs / SCREEN / 60))
        more = f"the same command goes on from here: with --budget {minutes}m it compares them"
        yield f"the time was too short for {short} of {counted(len(cells), 'cell')}; {more}"


def _lacking(outcome: ExperimentOutcome) -> Iterator[str]:
    """Yield which measures, events and files of which kernel nothing is compared by, and why."""
    for name, change in several_meanings(outcome.runs).items():
        yield f"{name} is not compared: {change}"
    for variant in (PATCHED, BASELINE):
        runs = (run.manifest for run in outcome.runs if run.manifest.variant == variant)
        notes = dict.fromkeys(note for run in runs for note in run.notes)
        yield from (f"the {variant} kernel: {n}" for n in notes if n.endswith(NOT_MEASURED))


def _one_sided(outcome: ExperimentOutcome, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield which measures one kernel alone has: headlines, and others if so in each cell."""
    rows, compared = outcome.one_sided(cells), len(outcome.compared(cells))
    for side, name in NAMES.items():
        where: dict[str, set[Cell]] = {head: set() for head in HEADLINES}
        for row in rows:
            if row.side == side:
                where.setdefault(row.name, set()).add(row.cell)
        names = [m for m, at in where.items() if len(at) == compared or (at and m in HEADLINES)]
        if names and compared:
            most = counted(max(len(where[measure]) for measure in names), "cell")
            more = f" and {counted(len(names) - _NAMED, 'more measure')}"
            text = f"{', '.join(names[:_NAMED])}{more if len(names) > _NAMED else ''}"
            yield f"only {name} has values of {text}, in {most}"
