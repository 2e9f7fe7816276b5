"""The verdict on a patch: what improved, regressed or changed, and what would have been seen."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Literal

from numalab.measure import MeasureKind
from numalab.patch.candidates import (
    HEADLINES,
    OneSided,
    Went,
    compare,
    differing,
    is_notable,
    judged,
    sample,
    went,
)
from numalab.patch.experiment import (
    FEWEST_LOST,
    DecidedCandidate,
    ExperimentOutcome,
)
from numalab.patch.hunting import HuntOutcome
from numalab.patch.standard import BASELINE, PATCHED
from numalab.patch.unchanged import Unchanged, unchanged_rows
from numalab.patch.warned import KernelReport
from numalab.reach.model import PatchReach, Side
from numalab.report.build.study import several_meanings
from numalab.results.plan import Cell
from numalab.statistics.comparison import FEWEST, LEVEL, rank_p
from numalab.statistics.sequential import LOOKS
from numalab.statistics.summary import numbers

Word = Literal[
    "regressed",
    "improved",
    "changed",
    "no change found",
    "partly compared",
    "may differ",
    "may fail",
    "only hunted",
    "not reached",
    "no code",
    "not compiled",
    "same code",
    "runs failed",
    "undecided",
]

_WORST_FIRST: tuple[Went, ...] = ("regressed", "improved", "changed")
_OF_CELLS = re.compile(r" --(?:topologies|workloads)[ =]('[^']*'|\S)+")
_CLOSE = 0.05  # a p value below it, of a measure that more runs may decide


@dataclass(frozen=True)
class MeasureChange:
    """A shown difference of a measure in a cell, from fresh runs only.

    `difference` is the mean after - the mean before with its 95 % `interval`; `percent` is of the
    mean before, None where that is 0. `simulated` times are not those of hardware.
    """

    machine: str
    load: str
    measure: str
    unit: str
    went: Went
    before: float
    after: float
    difference: float
    interval: tuple[float, float] | None
    percent: float | None
    p_value: float
    runs: int
    simulated: bool = False


@dataclass(frozen=True)
class LostRuns:
    """Runs that one kernel (`side`) lost in cells in which the other one only finished runs."""

    side: Side
    runs: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class CellCase:
    """The cell with the fewest CPUs that shows a regression, and the command that repeats it."""

    machine: str
    load: str
    cpus: int
    command: str


def smallest_cell(
    changes: Iterable[MeasureChange],
    cpus: Mapping[str, int],
    arguments: Mapping[str, str],
    command: str,
) -> CellCase | None:
    """Return the regressed cell with the fewest CPUs, by machine; None without a regression.

    Its command has the options of `command`, but for those that choose cells. `arguments` of the
    command, by machine, may be files.
    """
    regressed = [change for change in changes if change.went == "regressed"]
    if not regressed:
        return None
    smallest = min(regressed, key=lambda change: cpus[change.machine])
    machine, load = smallest.machine, smallest.load
    words = f"--topologies {quote(arguments[machine])} --workloads {quote(load)}"
    return CellCase(machine, load, cpus[machine], f"{_OF_CELLS.sub('', command)} {words}")


@dataclass(frozen=True)
class PatchVerdict:
    """Everything that is known about a patch.

    `subjects` are those of its patches, `place` file and line of the first change that ran,
    `versions` those of the programs that took part. `cells_run` of the planned `cells` have a
    finished run, and `compared` have enough of both kernels, with the same headline measures;
    `one_sided` are those that one kernel alone has, `redefined` those that its runs define in
    several ways.
    """

    name: str
    subjects: tuple[str, ...]
    baseline: str
    patched: str
    release: str
    mode: str
    word: Word
    changes: tuple[MeasureChange, ...] = ()
    unchanged: tuple[Unchanged, ...] = ()
    lost: LostRuns | None = None
    cell_case: CellCase | None = None
    reports: tuple[KernelReport, ...] = ()
    hunt: HuntOutcome = field(default_factory=HuntOutcome)
    cells: int = 0
    cells_run: int = 0
    compared: int = 0
    runs: int = 0
    time_over: bool = False
    undecided: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()
    one_sided: tuple[str, ...] = ()
    redefined: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    seconds: float = 0.0
    command: str = ""
    versions: tuple[str, ...] = ()
    place: tuple[str, int] = ("", 1)
    reach: PatchReach | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 1 for a regression."""
        return 1 if self.word == "regressed" else 0

    def of(self, kind: Went) -> tuple[MeasureChange, ...]:
        """Return the changes of one kind, the largest first."""
        return tuple(change for change in self.changes if change.went == kind)


def changes_of(outcome: ExperimentOutcome, mode: str) -> tuple[MeasureChange, ...]:
    """Return the shown changes of an experiment that are large enough, by kind and size.

    All times are simulated, except in mode kvm.
    """
    shown = (_change(decided, simulated=mode != "kvm") for decided in outcome.decided)
    changes = [change for change in shown if change is not None]
    return tuple(
        sorted(changes, key=lambda change: (_WORST_FIRST.index(change.went), change.p_value))
    )


def _change(decided: DecidedCandidate, *, simulated: bool) -> MeasureChange | None:
    info, cell = decided.candidate.info, decided.candidate.cell
    comparison = compare(decided.sample)
    before, after, difference = comparison.before, comparison.after, comparison.difference
    if decided.decision is None or not decided.decision.shown:
        return None
    if before is None or after is None or difference is None:
        return None
    if not is_notable(comparison, info.unit):
        return None
    return MeasureChange(
        cell.topology,
        cell.label,
        info.name,
        info.unit,
        went(info, difference),
        before.mean,
        after.mean,
        difference,
        comparison.interval,
        comparison.change,
        decided.decision.p_value,
        min(before.n, after.n),
        simulated and info.kind is not MeasureKind.PLACEMENT,
    )


def unchanged_of(
    outcome: ExperimentOutcome, cells: Sequence[Cell], changes: Sequence[MeasureChange]
) -> tuple[Unchanged, ...]:
    """Return the headline measures without a shown change, and what would have been seen.

    Those that may differ are left out (`undecided_of`, `untested_of`).
    """
    differ = {(change.machine, change.load, change.measure) for change in changes}
    for cell, name in (*_undecided(outcome), *_untested(outcome, cells)):
        differ.add((cell.topology, cell.label, name))
    return tuple(unchanged_rows(outcome.first_runs(), cells, differ))


def headlines_of_one(outcome: ExperimentOutcome, cells: Sequence[Cell]) -> tuple[OneSided, ...]:
    """Return the headline measures that one kernel alone has: their cells are not compared."""
    return tuple(row for row in outcome.one_sided(cells) if row.name in HEADLINES)


def headlines_redefined(
    outcome: ExperimentOutcome, cells: Sequence[Cell]
) -> tuple[tuple[Cell, str], ...]:
    """Return the headline measures that runs define in several ways: their cells are not compared.

    Such are the runs of a folder that is continued with a newer numalab.
    """
    every = {cell: [run for run in outcome.runs if run.cell == cell] for cell in cells}
    mixed = {cell: several_meanings(every[cell]) for cell in outcome.compared(cells)}
    return tuple((cell, name) for cell in mixed for name in HEADLINES if name in mixed[cell])


def untested_of(outcome: ExperimentOutcome, cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return the headline measures that seem to differ, and others that do (`standing_out`).

    Fresh runs tested none of them.
    """
    seeming = _untested(outcome, cells)
    return tuple(dict.fromkeys(f"{name} in {cell}" for cell, name in seeming))


def _untested(outcome: ExperimentOutcome, cells: Sequence[Cell]) -> Iterator[tuple[Cell, str]]:
    tested = _tested(outcome)
    for cell in cells:
        for candidate in differing(outcome.runs, cell, outcome.screened):
            name = candidate.info.name
            if name in HEADLINES and (cell, name) not in tested:
                yield cell, name
    yield from standing_out(outcome, cells)


def standing_out(outcome: ExperimentOutcome, cells: Sequence[Cell]) -> tuple[tuple[Cell, str], ...]:
    """Return the measures that no fresh run tested, and that differ by the runs of all seeds.

    By the rank sum test, corrected for all of these measures with runs enough for it (Bonferroni).
    They are no shown change: the number of runs followed other measures.
    """
    infos, fresh = judged(outcome.runs), _tested(outcome)
    tests = {
        (cell, info): sides
        for cell in cells
        for info in infos
        if (cell, info.name) not in fresh
        and (sides := sample(outcome.runs, cell, info.name)).fewest >= FEWEST
        and len({*numbers(sides.before), *numbers(sides.after)}) > 1
    }
    share = LEVEL / max(1, len(tests))
    return tuple(
        (cell, info.name)
        for (cell, info), sides in tests.items()
        if rank_p(sides.before, sides.after) < share and is_notable(compare(sides), info.unit)
    )


def _tested(outcome: ExperimentOutcome) -> set[tuple[Cell, str]]:
    return {(row.candidate.cell, row.candidate.info.name) for row in outcome.decided}


def lost_of(outcome: ExperimentOutcome) -> LostRuns | None:
    """Return the lost runs of one kernel in cells in which the other one only finished runs.

    Those of the patched kernel go first. None for fewer than `FEWEST_LOST`, which may be chance.
    """
    for side in (PATCHED, BASELINE):
        ends = outcome.lost_alone(side)
        if len(ends) >= FEWEST_LOST:
            runs = tuple(end.run for end in ends)
            return LostRuns(side, runs, ends[0].error.partition("\n")[0])
    return None


def word_of(
    changes: Sequence[MeasureChange],
    lost: LostRuns | None,
    hunt: HuntOutcome,
    *,
    share: float,
    reports: Sequence[KernelReport] = (),
    undecided: Sequence[str] = (),
    stands_out: bool = False,
    runs_failed: bool = False,
    only_hunted: bool = False,
    nothing_ran: bool = False,
    tried: bool = True,
) -> Word:
    """Return the verdict in a word; a regression counts more than an improvement.

    `share` of the cells in which changed code may run were compared. `stands_out`: measures that
    were not tested differ (`standing_out`). `runs_failed`: so that more time would compare no cell.
    `only_hunted`: no load of the experiment executed a changed line; `nothing_ran`: the hunt did
    not, either. `tried`: a cell has runs of both kernels.
    """
    not_compared: Word = "runs failed" if runs_failed else "undecided"
    if nothing_ran:
        return "not reached" if tried or hunt.machines else not_compared
    kinds = {change.went for change in changes}
    sides = {report.side for report in reports} | ({lost.side} if lost is not None else set())
    kinds |= {"regressed" if side == PATCHED else "improved" for side in sides}
    kinds |= {"regressed"} if hunt.case is not None else set()
    words: Sequence[tuple[Word, bool]] = (
        *((kind, kind in kinds) for kind in _WORST_FIRST),
        ("may fail", hunt.may_fail),
        ("only hunted", only_hunted and hunt.machines > 0),
        ("undecided", bool(undecided)),
        (not_compared, not share),
        ("may differ", stands_out),
        ("partly compared", share < 1),
    )
    return next((word for word, holds in words if holds), "no change found")


def undecided_of(outcome: ExperimentOutcome) -> tuple[str, ...]:
    """Return the measures that may differ, and for which the time was over."""
    return tuple(f"{name} in {cell}" for cell, name in _undecided(outcome))


def _undecided(outcome: ExperimentOutcome) -> Iterator[tuple[Cell, str]]:
    for row in outcome.decided if outcome.time_over else ():
        decision = row.decision
        if (
            decision is None
            or (decision.open and row.sample.fewest < LOOKS[0])
            or (not decision.shown and decision.p_value < _CLOSE)
        ):
            yield row.candidate.cell, row.candidate.info.name
