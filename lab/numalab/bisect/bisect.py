"""Find the step of a history that changed a measure, with as many runs as needed.

A function passed by the caller builds and runs the steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from numalab.bisect.history import History, Step
from numalab.bisect.search import places, start_search
from numalab.campaign.stopping import StoppingRule
from numalab.measure import Direction
from numalab.statistics.comparison import compare_samples
from numalab.statistics.summary import Values, summarise
from numalab.units import runs_of

Side = Literal["good", "bad", "skipped"]


@dataclass(frozen=True)
class StepValues:
    """The values of the runs of a step; or why there are none, with the exit code.

    The first line of `skipped` is the reason, and the others the evidence, such as a compiler's
    error. `untimed` is the reason why the times are not valid; empty if they are, and for a measure
    that is not a time.
    """

    values: Values = ()
    skipped: str = ""
    exit_code: int = 0
    untimed: str = ""


@dataclass(frozen=True)
class TriedStep:
    """A tested step: its values, its side, and the reason."""

    step: str
    title: str
    kernel: str
    values: Values
    side: Side
    reason: str


@dataclass(frozen=True)
class Bisection:
    """The result of a bisection, with the steps in the order of the tests.

    `first` is the step that changed the measure; several if some could not be tested; none if the
    ends do not differ, and `ended` is then the reason. `exit_code` is 0 if `first` is not empty.
    """

    measure: str
    rows: tuple[TriedStep, ...]
    first: tuple[Step, ...] = ()
    ended: str = ""
    exit_code: int = 0


# Returns the values of each step in a number of runs, and does the missing runs.
Take = Callable[[Sequence[Step], int], Sequence[StepValues]]
OnTried = Callable[[TriedStep], None]


class _EndFailedError(Exception):
    """One end gave no result, or the two ends do not differ."""

    def __init__(self, reason: str, exit_code: int) -> None:
        self.reason, self.exit_code = reason, exit_code
        super().__init__(reason)


def bisect(
    history: History, rule: StoppingRule, fewest: int, take: Take, on_tried: OnTried
) -> Bisection:
    """Return the first step that is like the last; both ends are measured first.

    `fewest` is the first number of runs; `rule` has the measure and the largest number of runs.
    Errors of `take` are passed on.
    """
    good, bad = history.good, history.steps[-1]
    rows: list[TriedStep] = []

    def tell(step: Step, values: Values, side: Side, reason: str) -> None:
        rows.append(TriedStep(step.name, step.title, step.spec.name, tuple(values), side, reason))
        on_tried(rows[-1])

    try:
        count, ends = _ends(good, bad, rule, fewest, take)
        tell(good, ends[0].values, "good", "an end")
        tell(bad, ends[1].values, "bad", "an end")
        search = start_search([step.parents for step in history.steps])
        while (place := search.next()) is not None:
            step = history.steps[place]
            values, side, reason = _try((good, bad), step, rule, count, take)
            tell(step, values, side, reason)
            if side == "skipped":
                search = search.skip(place)
            else:
                search = search.is_good(place) if side == "good" else search.is_bad(place)
    except _EndFailedError as error:
        return Bisection(rule.measure, tuple(rows), (), error.reason, error.exit_code)
    first = tuple(history.steps[place] for place in places(search.suspects))
    return Bisection(rule.measure, tuple(rows), first)


def _ends(
    good: Step, bad: Step, rule: StoppingRule, fewest: int, take: Take
) -> tuple[int, Sequence[StepValues]]:
    """Measure both ends until they differ; return the number of runs of each, and the values."""
    verdict = ""
    for count in range(min(fewest, rule.most), rule.most + 1):
        ends = take([good, bad], count)
        for step, taken in zip((good, bad), ends, strict=True):
            if taken.skipped:
                reason = f"{step.name}, one of the two ends, gave no result: {taken.skipped}"
                raise _EndFailedError(reason, taken.exit_code)
            if taken.untimed:
                reason = f"{rule.measure} cannot be seen in this mode because {taken.untimed}"
                raise _EndFailedError(reason, 1)
        comparison = compare_samples(
            ends[0].values,
            ends[1].values,
            direction=Direction.NONE,
            family=rule.looks,
            names=("good", "bad"),
        )
        if comparison.shown:
            return count, ends
        verdict = comparison.verdict
        if comparison.outcome == "not comparable":
            break
    means = " and ".join(_mean(taken.values) for taken in ends)
    reason = f"the two ends do not differ in {rule.measure}: {means}; {verdict}"
    raise _EndFailedError(reason, 1)


def _try(
    ends: tuple[Step, Step], step: Step, rule: StoppingRule, fewest: int, take: Take
) -> tuple[Values, Side, str]:
    """Add runs of a step and of both ends until it is like one of them."""
    side: Side = "skipped"
    reason = "the ends gave no result with more seeds"
    for count in range(fewest, rule.most + 1):
        good, bad, taken = take([*ends, step], count)
        if taken.skipped:
            return taken.values, "skipped", taken.skipped.partition("\n")[0]
        if all(value is None for value in taken.values):
            return taken.values, "skipped", f"no run could measure {rule.measure}"
        if good.skipped or bad.skipped:
            continue  # an end gave no result with one more seed
        if why := taken.untimed or good.untimed or bad.untimed:
            whose = "its times" if taken.untimed else "the times of an end with more seeds"
            return taken.values, "skipped", f"{whose} are not valid because {why}"
        side, reason = like(good.values, bad.values, taken.values, rule.looks)
        if side != "skipped":
            break
    return taken.values, side, reason


def like(good: Values, bad: Values, values: Values, looks: int) -> tuple[Side, str]:
    """Return the end that the runs of a step are like, and the reason.

    A step that differs from one end only is like the other end. A step that differs from both is
    like the end with the nearer mean.
    """
    differs = [
        compare_samples(end, values, direction=Direction.NONE, family=looks).shown
        for end in (good, bad)
    ]
    if not any(differs):
        return "skipped", f"{runs_of(len(values))} show no difference from either end"
    if not all(differs):
        return ("bad", "differs from good") if differs[0] else ("good", "differs from bad")
    means = [summary.mean for side in (good, bad, values) if (summary := summarise(side))]
    nearer: Side = "good" if abs(means[2] - means[0]) < abs(means[2] - means[1]) else "bad"
    return nearer, f"differs from both ends, but its mean is nearer to {nearer}"


def _mean(values: Values) -> str:
    summary = summarise(values)
    return "not measured" if summary is None else f"{summary.mean:.4g} ({runs_of(summary.n)})"
