"""Compares two results of the same study, measure by measure.

Only the kernel may differ: the runs of a variant in one result are compared with the runs of the
same variant in the other. Any other difference is named, and makes the runs not comparable.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numalab.machine.model import DETERMINISTIC
from numalab.measure import Direction, MeasureKind, SourceKind, differing
from numalab.results.layout import Results
from numalab.results.manifest import EXECUTION, NONE, UNKNOWN, Manifest, RunStatus, brief
from numalab.results.reader import StoredRun, load_runs
from numalab.results.status import RunState, State, read_progress
from numalab.statistics.comparison import (
    FEWEST,
    TOO_FEW,
    Comparison,
    Outcome,
    compare_table,
    not_comparable,
)
from numalab.statistics.summary import Values

# Inputs that must be the same in all runs, by their name in messages.
_INPUTS: Mapping[str, Callable[[Manifest], Any]] = {
    "study": lambda run: run.study,
    "mode": lambda run: run.mode,
    "machine": lambda run: run.machine,
    "tunables": lambda run: run.tunables,
    "command": lambda run: run.workload.argv,
    "parameters": lambda run: run.workload.parameters,
    "programs": lambda run: run.workload.files,
    "tasks": lambda run: run.workload.tasks,
    "allowed CPUs": lambda run: run.workload.allowed_cpus,
    "scheduler": lambda run: run.scheduler.model_dump() if run.scheduler else NONE,
    "image": lambda run: run.image.digest[:12],
    "pages": lambda run: run.pages,
    "QEMU": lambda run: None if run.versions.qemu == UNKNOWN else run.versions.qemu,
    **{
        name: partial(Manifest.execution, key=key)
        for key, name in EXECUTION.items()
        if key != "metrics"
    },
}
# Inputs that must also be the same for measures from the workload's output.
_OUTPUT: Mapping[str, Callable[[Manifest], Any]] = {EXECUTION["metrics"]: lambda run: run.metrics}
# Inputs that must also be the same for measures of time, unless time is virtual.
_HOST: Mapping[str, Callable[[Manifest], Any]] = {
    "host processor": lambda run: run.host and run.host.processor,
    "host CPUs": lambda run: run.host and run.host.cpus,
    "host kernel": lambda run: run.host and run.host.kernel,
    "placement": lambda run: run.planned_cpus,
}

_SIDES = ("the first result", "the second result")


@dataclass(frozen=True)
class MeasureVersus:
    """One measure of one cell in both results."""

    measure: str
    unit: str
    direction: Direction
    kind: str
    comparison: Comparison

    @property
    def undecided(self) -> bool:
        """Whether a measure with a better direction has no value after, or must not be compared."""
        comparison = self.comparison
        return (
            self.direction != "none"
            and comparison.before is not None
            and (comparison.after is None or comparison.outcome == "not comparable")
        )


@dataclass(frozen=True)
class RunsOfCell:
    """The seeds of the runs of a cell in one result: those that finished, and all planned."""

    finished: tuple[int, ...] = ()
    planned: tuple[int, ...] = ()


@dataclass(frozen=True)
class CellVersus:
    """A cell of the matrix (topology, workload, variant) in both results.

    `differs` names the inputs other than the kernel in which its runs differ; then nothing is
    compared. `kernels` are the releases before and after, `runs` the planned and finished runs.
    """

    cell: str
    kernels: tuple[str, str]
    same_kernel: bool
    differs: tuple[str, ...]
    measures: tuple[MeasureVersus, ...]
    runs: tuple["RunsOfCell", "RunsOfCell"]

    def count(self, outcome: Outcome) -> int:
        """Count the measures with this outcome."""
        return sum(measure.comparison.outcome == outcome for measure in self.measures)


@dataclass(frozen=True)
class Versus:
    """All planned cells of two results, in the order of the first one's plan.

    `unfinished` are the planned runs without a result, before and after.
    """

    before: str
    after: str
    cells: tuple[CellVersus, ...]
    unfinished: tuple[tuple[RunState, ...], tuple[RunState, ...]]

    @property
    def worse(self) -> bool:
        """Whether some measure is worse."""
        return any(cell.count("worse") for cell in self.cells)

    @property
    def whole(self) -> bool:
        """Whether every planned run finished, and every cell and measure could be compared."""
        return not any(self.unfinished) and not any(
            cell.differs or any(measure.undecided for measure in cell.measures)
            for cell in self.cells
        )


@dataclass(frozen=True)
class _Row:
    """A measure of a cell before the comparison; `reason` is why it is not comparable."""

    about: MeasureVersus
    before: Values
    after: Values
    reason: str | None


@dataclass(frozen=True)
class _Cell:
    """A cell before its measures are compared."""

    versus: CellVersus
    rows: tuple[_Row, ...]


@dataclass(frozen=True)
class _Side:
    """One result: its finished runs and the planned seeds by cell, and the unfinished runs.

    `words` are the further kernel parameters.
    """

    capture: Any
    words: Sequence[str]
    cells: Mapping[str, Sequence[StoredRun]]
    planned: Mapping[str, Sequence[int]]
    unfinished: tuple[RunState, ...]

    def runs(self, cell: str) -> RunsOfCell:
        seeds = tuple(sorted(run.manifest.seed for run in self.cells.get(cell, ())))
        return RunsOfCell(seeds, tuple(sorted({*seeds, *self.planned.get(cell, ())})))


def compare_results(before: Results, after: Results) -> Versus:
    """Compare two results. Raises UserError for no, empty or damaged results.

    All measures with a better direction share one correction over all cells, because one worse
    measure decides the outcome. The measures without a direction share another.
    """
    old, new = _side(before), _side(after)
    always = [
        *_difference("capture", [old.capture], [new.capture]),
        *_difference("kernel parameters", [old.words], [new.words]),
    ]
    names = dict.fromkeys([*old.cells, *new.cells])
    cells = [_cell(name, old, new, always) for name in names]
    unfinished = (old.unfinished, new.unfinished)
    return Versus(str(before.path), str(after.path), _judged(cells), unfinished)


def _side(results: Results) -> _Side:
    """Read one result: its finished runs by cell, and the states of its unfinished runs.

    Runs that a budget left out count as not planned.
    """
    plan, runs = load_runs(results)
    states = [run for run in read_progress(results).runs if run.state is not State.LEFT_OUT]
    names = {run.run for run in states}
    planned: dict[str, list[int]] = {}
    for run in (run for run in plan.runs if run.id in names):
        planned.setdefault(f"{run.cell.name}_{run.variant}", []).append(run.seed)
    finished: dict[str, list[StoredRun]] = {name: [] for name in planned}
    for stored in runs:
        if stored.manifest.status is RunStatus.OK:
            name = f"{stored.cell.name}_{stored.manifest.variant}"
            finished.setdefault(name, []).append(stored)
    unfinished = tuple(state for state in states if state.state is not State.DONE)
    return _Side(plan.capture, plan.cmdline, finished, planned, unfinished)


def _judged(cells: Sequence["_Cell"]) -> tuple[CellVersus, ...]:
    """Compare the comparable measures of all cells."""
    comparisons: dict[tuple[str, str], Comparison] = {}
    for directed in (True, False):
        rows = [
            (cell.versus.cell, row)
            for cell in cells
            for row in cell.rows
            if row.reason is None and (row.about.direction != "none") == directed
        ]
        compared = compare_table(
            [(row.before, row.after, row.about.direction) for _, row in rows], [_SIDES] * len(rows)
        )
        comparisons.update(
            ((name, row.about.measure), comparison)
            for (name, row), comparison in zip(rows, compared, strict=True)
        )
    return tuple(
        replace(
            cell.versus,
            measures=tuple(
                replace(
                    row.about,
                    comparison=comparisons.get((cell.versus.cell, row.about.measure))
                    or row.about.comparison,
                )
                for row in cell.rows
            ),
        )
        for cell in cells
    )


def _cell(name: str, before: _Side, after: _Side, always: Sequence[str]) -> _Cell:
    old, new = before.cells.get(name, ()), after.cells.get(name, ())
    kernels = (_release(old), _release(new))
    seeds = (before.runs(name), after.runs(name))
    if not (old and new):
        reason = (
            "only the first result has runs of it"
            if old
            else ("only the second result has runs of it" if new else "no run of it finished")
        )
        return _Cell(CellVersus(name, kernels, False, (reason,), (), seeds), ())
    mixed = [*_two_kernels("first", old), *_two_kernels("second", new)]
    differs = [*always, *mixed, *_differences(_INPUTS, old, new)]
    host = [] if old[0].manifest.mode in DETERMINISTIC else _differences(_HOST, old, new)
    names = dict.fromkeys(
        name
        for run in [*old, *new]
        for name, measure in run.measures.items()
        if not measure.info.is_identifier
    )
    rows = tuple(_measure(measure, old, new, differs, host) for measure in names)
    images = {run.manifest.kernel.bzimage_sha256 for run in [*old, *new]}
    versus = CellVersus(name, kernels, len(images) == 1, tuple(differs), (), seeds)
    return _Cell(versus, rows)


def _two_kernels(which: str, runs: Sequence[StoredRun]) -> list[str]:
    """Say that the runs of one side are of several kernels, and so no repetitions; else empty."""
    kernels = dict.fromkeys(run.manifest.kernel.bzimage_sha256 for run in runs)
    if len(kernels) == 1:
        return []
    texts = " and ".join(text[:12] for text in kernels)
    return [f"kernel: the {which} result has runs of {texts} (bzImage)"]


def _release(runs: Sequence[StoredRun]) -> str:
    """Return the kernels of some runs: release and patch series."""
    return ", ".join(dict.fromkeys(run.manifest.kernel.title for run in runs)) or "none"


def _differences(
    inputs: Mapping[str, Callable[[Manifest], Any]],
    old: Sequence[StoredRun],
    new: Sequence[StoredRun],
) -> list[str]:
    return [
        text
        for name, get in inputs.items()
        for text in _difference(
            name, [get(run.manifest) for run in old], [get(run.manifest) for run in new]
        )
    ]


def _difference(name: str, old: Sequence[Any], new: Sequence[Any]) -> list[str]:
    """Return the values of an input if two sides differ, or one side has several values.

    None is a value that a run could not read or did not store; it differs from nothing."""
    sides = [
        sorted({json.dumps(value, sort_keys=True) for value in side if value is not None})
        for side in (old, new)
    ]
    if len({*sides[0], *sides[1]}) <= 1 or not (sides[0] and sides[1]):
        return []
    texts = brief(json.loads(value) for side in sides for value in side)
    first, second = texts[: len(sides[0])], texts[len(sides[0]) :]
    return [f"{name}: {' or '.join(first)}, then {' or '.join(second)}"]


def _measure(
    name: str,
    old: Sequence[StoredRun],
    new: Sequence[StoredRun],
    differs: Sequence[str],
    host: Sequence[str],
) -> _Row:
    about = next(run.measures[name] for run in [*new, *old] if name in run.measures)
    before, after = ([run.value(name) for run in side] for side in (old, new))
    reasons = [*differs, *(host if about.info.kind == MeasureKind.TIMING else ())]
    if about.info.comes_from(SourceKind.WORKLOAD):
        reasons += _differences(_OUTPUT, old, new)
    infos = [run.measures[name].info for run in [*old, *new] if name in run.measures]
    reasons += [f"{what}: not the same in all runs" for what in differing(infos)]
    reason = f"the runs differ in {'; '.join(reasons)}" if reasons else None
    measured = all(any(value is not None for value in side) for side in (before, after))
    if reason is None and measured and min(len(old), len(new)) < FEWEST:
        reason = TOO_FEW  # a test that cannot show anything would only widen the correction
    unknown = not_comparable(before, after, reason or "")
    info = about.info
    versus = MeasureVersus(name, info.unit, info.direction, info.kind, unknown)
    return _Row(versus, before, after, reason)
