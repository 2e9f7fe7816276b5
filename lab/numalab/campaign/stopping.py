"""A sequential stopping rule: repetitions are added until a measure is decided."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import count

from numalab.measure import Direction, differing
from numalab.results.layout import Results
from numalab.results.plan import (
    Decided,
    PlannedRun,
    Remark,
    RepetitionsRemark,
    StopReason,
)
from numalab.results.reader import load_runs
from numalab.results.stored import LARGEST_SEED
from numalab.statistics.comparison import FEWEST, LEVEL, compare_samples
from numalab.statistics.summary import Values
from numalab.study.plan import Plan

PRECISION = 5.0  # percent of the mean before


@dataclass(frozen=True)
class StoppingRule:
    """Repetitions end when the measure is decided, or each variant has `most` runs.

    The test is repeated after each repetition from the third on. Repeated tests raise the
    false-positive rate, so each has an equal share of the level (Bonferroni's inequality).
    """

    measure: str
    most: int

    @property
    def looks(self) -> int:
        """The largest number of interim tests."""
        return max(1, self.most - FEWEST + 1)

    def remark(self, decided: tuple[Decided, ...]) -> RepetitionsRemark:
        """Return the rule and its decisions, to be stored in the plan."""
        return RepetitionsRemark(
            measure=self.measure,
            level=LEVEL,
            looks=self.looks,
            precision=PRECISION,
            most=self.most,
            decided=decided,
        )

    def made(self, remark: Remark) -> bool:
        """Return whether a remark is of this rule; its decisions may differ."""
        if not isinstance(remark, RepetitionsRemark):
            return False
        return self.remark(remark.decided) == remark

    def decided(
        self, before: Sequence[float | None], after: Sequence[float | None]
    ) -> StopReason | None:
        """Return why two variants need no more runs; None if they need more."""
        measured = [[value for value in side if value is not None] for side in (before, after)]
        if min(map(len, measured)) < FEWEST:
            # A measure without any value in so many runs will have none in more.
            pairs = zip((before, after), measured, strict=True)
            tried = any(len(side) >= FEWEST for side, values in pairs if not values)
            return StopReason.NOT_MEASURED if tried else None
        result = compare_samples(before, after, direction=Direction.NONE, family=self.looks)
        if result.shown:
            return StopReason.DIFFERENCE_SHOWN
        if result.interval is None:  # every run gave the same value
            return StopReason.ALL_THE_SAME
        low, high = (result.percent(end) for end in result.interval)
        if low is not None and high is not None and low >= -PRECISION and high <= PRECISION:
            return StopReason.INTERVAL_NARROW
        return None


@dataclass(frozen=True)
class Look:
    """The runs to add after an interim test, and why decided cells get none."""

    more: tuple[PlannedRun, ...]
    decided: tuple[Decided, ...]


def look(
    plan: Plan, results: Results, rule: StoppingRule, left_out: Set[str] = frozenset()
) -> Look:
    """Return one more repetition for each cell that is not decided and not `left_out` as a whole.

    Planned seeds whose runs are `left_out` (their names) come before new ones. Raises UserError
    when no run has finished, or for damaged results.
    """
    _, runs = load_runs(results)
    more: list[PlannedRun] = []
    decided: list[Decided] = []
    for cell in plan.cells:
        planned = [run for run in plan.runs_of(cell) if run.id not in left_out]
        if not planned:
            continue
        names = list(dict.fromkeys(run.variant for run in plan.runs_of(cell)))
        most = max(sum(run.variant == name for run in planned) for name in names)
        here = [run for run in runs if run.cell == cell]
        infos = [run.measures[rule.measure].info for run in here if rule.measure in run.measures]
        values = [
            [run.value(rule.measure) for run in here if run.manifest.variant == name]
            for name in names
        ]
        if why := (StopReason.REDEFINED,) if differing(infos) else _why(rule, values, most):
            decided.append(Decided(cell=str(cell), why=why, runs=most))
        else:
            waiting = [run.seed for run in plan.runs_of(cell) if run.id in left_out]
            seed = waiting[0] if waiting else _next_seed({run.seed for run in planned})
            more += plan.repetition(cell, seed)
    return Look(tuple(more), tuple(decided))


def _next_seed(planned: Set[int]) -> int:
    """Return a seed that is not yet planned: the next one, after the largest the smallest."""
    following = max(planned) + 1
    return following if following <= LARGEST_SEED else next(n for n in count() if n not in planned)


def _why(rule: StoppingRule, values: Sequence[Values], most: int) -> tuple[StopReason, ...]:
    """Return why a cell needs no more runs; `most` is its largest number for a variant."""
    if len(values) < 2:
        return (StopReason.ONE_VARIANT,)
    reasons = [rule.decided(values[0], side) for side in values[1:]]
    decided = tuple(dict.fromkeys(reason for reason in reasons if reason is not None))
    if None not in reasons:
        return decided
    return (StopReason.MOST_RUNS,) if most >= rule.most else ()
