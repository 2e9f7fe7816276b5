"""The verdicts on a study's claims in the runs of its cells."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from numalab.analysis.measures.family import family_of
from numalab.measure import ClaimVerdict, MeasureKind
from numalab.report.build.placement_rows import against
from numalab.report.claim_outcome import ClaimOutcome, ClaimTestFigures
from numalab.results.manifest import Manifest
from numalab.results.plan import Cell
from numalab.results.reader import StoredRun, of_variant
from numalab.statistics.shift import MOST_RUNS, fewest_runs
from numalab.statistics.summary import change_percent, numbers, summarise
from numalab.statistics.verdict import (
    ClaimTest,
    Family,
    SizeJudgement,
    claim_test,
    family_level,
    judged,
)
from numalab.study.claims import Claim
from numalab.units import runs_of, unit_of_difference

_TOWARDS = {"higher": "higher", "lower": "lower", "same": "no change"}
_ROUNDING = 1e-6  # of a change in percent
_LEAST_P = 0.0001  # of less only this is said


@dataclass(frozen=True)
class _Comparison:
    """A claim about a change, in the runs of one cell; `test` or the `reason` why there is none.

    `by_mode` is whether the mode of the runs may be the reason.
    """

    claim: Claim
    runs: Sequence[StoredRun]
    test: ClaimTest | None
    reason: str
    by_mode: bool = True

    @property
    def family(self) -> Family:
        return "primary" if self.claim.primary else "secondary"


def judge_cells(
    cells: Mapping[Cell, tuple[Sequence[Claim], Sequence[StoredRun]]],
    baseline: str,
    primary_claims: int = 0,
) -> dict[Cell, tuple[ClaimOutcome, ...]]:
    """Judge the claims of each cell by its runs, all cells at one error rate.

    `baseline` is the variant in which the mechanisms of claims have to act. `primary_claims` is the
    number of primary claims of the post, where other studies have some.
    """
    compared = {
        cell: [_comparison(claim, runs, baseline) for claim in claims if claim.direction]
        for cell, (claims, runs) in cells.items()
    }
    every = [item for items in compared.values() for item in items]
    sizes: dict[Family, int] = {
        "primary": max(primary_claims, sum(item.family == "primary" for item in every)),
        "secondary": sum(item.family == "secondary" and item.test is not None for item in every),
    }
    levels: dict[Family, float] = {
        family: family_level(
            family, [item.test.p_value for item in every if item.test and item.family == family], n
        )
        for family, n in sizes.items()
    }
    outcomes: dict[Cell, tuple[ClaimOutcome, ...]] = {}
    for cell, (claims, runs) in cells.items():
        of_cell = iter(compared[cell])
        outcomes[cell] = tuple(
            _outcome(item := next(of_cell), sizes[item.family], levels[item.family])
            if claim.direction
            else _bounds(claim, runs)
            for claim in claims
        )
    return outcomes


def _bounds(claim: Claim, runs: Sequence[StoredRun]) -> ClaimOutcome:
    if claim.variant is not None:
        return _bounded(claim, of_variant(runs, claim.variant))
    return _changed(claim, runs)


def _unit_and_kind(claim: Claim, runs: Sequence[StoredRun]) -> tuple[str, str]:
    """Return the unit and kind of the claim's measure, empty where no run has it.

    A time of mode timed is simulated and is judged as modelled.
    """
    measures = (run.measures[claim.measure] for run in runs if claim.measure in run.measures)
    unit, kind = next(((measure.info.unit, measure.info.kind) for measure in measures), ("", ""))
    if kind == MeasureKind.TIMING and {run.manifest.mode for run in runs} == {"timed"}:
        return unit, MeasureKind.MODELLED
    return unit, kind


def _bounded(claim: Claim, runs: Sequence[StoredRun]) -> ClaimOutcome:
    values = [run.value(claim.measure) for run in runs]
    numbers = [value for value in values if value is not None]
    unit, kind = _unit_and_kind(claim, runs)
    measured, of = "nothing", runs_of(len(values))
    if numbers:
        low, high = _figure(min(numbers)), _figure(max(numbers))
        measured = f"{low} {unit}" if low == high else f"between {low} and {high} {unit}"
    if len(numbers) < len(values):
        of = f"{of}, {len(values) - len(numbers)} without a value"
    return ClaimOutcome(
        text=claim.text,
        expected=" and ".join(f"{sign} {bound:g} {unit}".rstrip() for sign, bound in claim.bounds),
        measured=f"{measured} ({of})",
        holds=bool(values) and all(claim.holds(value) for value in values),
        measure=claim.measure,
        kind=kind,
        published=claim.published,
        each_run=True,
        unjudged="" if numbers else _no_value(claim.variant),
    )


def _no_value(variant: str | None) -> str:
    return f"no run of {variant} has a value"


_ICOUNT = (
    "icount counts instructions, those of all CPUs on one clock: "
    "neither an idle CPU nor an access to far memory costs time"
)
_TCG = "tcg emulates the CPUs, and the speed of emulation is not that of hardware"


def _sides(claim: Claim, runs: Sequence[StoredRun]) -> tuple[list[float], list[float]]:
    """Return the values before and after."""
    before, after = (
        numbers([run.value(claim.measure) for run in of_variant(runs, variant)])
        for variant in (claim.from_variant, claim.to)
    )
    return before, after


def _of_claim(claim: Claim, runs: Sequence[StoredRun]) -> list[StoredRun]:
    return [run for run in runs if run.manifest.variant in claim.variants]


def _comparison(claim: Claim, runs: Sequence[StoredRun], baseline: str) -> _Comparison:
    """Test a claim, or return why it cannot be seen."""
    unit, kind = _unit_and_kind(claim, _of_claim(claim, runs))
    if kind == MeasureKind.TIMING and (why := untimed(_of_claim(claim, runs))):
        return _Comparison(claim, runs, None, why)
    before, after = _sides(claim, runs)
    if not (before and after):
        side = claim.to if before else claim.from_variant
        return _Comparison(claim, runs, None, f"no run of {side} could measure it")
    scale = claim.scale_of(unit, [*before, *after])
    change = claim.change_on(scale)
    fires = _fires(claim, of_variant(runs, baseline), before)
    try:
        return _Comparison(claim, runs, claim_test(change, before, after, fires=fires), "")
    except ValueError as error:
        reason = f"{error}; its claim needs another scale"
        return _Comparison(claim, runs, None, reason, by_mode=False)


def _fires(claim: Claim, baseline: Sequence[StoredRun], before: Sequence[float]) -> bool | None:
    """Return whether the mechanism of a claim acts in most runs of the baseline that measured it.

    None where no run did. What a claim says to become less has to be there before.
    """
    if claim.direction == "lower" and not _mostly_above_0(before):
        return False
    if claim.mechanism is None:
        return True
    family = family_of(claim.mechanism)
    never = 0 if family is not None and family.may_be_never else None
    values = (run.value(claim.mechanism) for run in baseline)
    measured = numbers([never if value is None else value for value in values])
    return _mostly_above_0(measured) if measured else None


def _mostly_above_0(values: Sequence[float]) -> bool:
    return 2 * sum(value > 0 for value in values) > len(values)


def _outcome(item: _Comparison, size: int, level: float) -> ClaimOutcome:
    claim = item.claim
    unit, kind = _unit_and_kind(claim, _of_claim(claim, item.runs))
    judgement = None if item.test is None else judged(item.test, item.family, size, level)
    verdict: ClaimVerdict = "cannot be seen" if judgement is None else judgement.verdict
    return ClaimOutcome(
        text=claim.text,
        expected=_expected(claim),
        measured=_measured(claim, item.runs, unit, item.test, judgement),
        holds=(not claim.expect or verdict in claim.expect)
        and (not claim.bounds or claim.holds(_change(claim, item.runs))),
        measure=claim.measure,
        kind=kind,
        published=claim.published,
        verdict=verdict,
        reason=item.reason,
        by_mode=item.by_mode,
        detail=_detail(item.test, judgement, len(_of_claim(claim, item.runs))),
        figures=_figures(item.test, judgement),
        required=bool(claim.expect or claim.bounds),
    )


def _changed(claim: Claim, runs: Sequence[StoredRun]) -> ClaimOutcome:
    """Judge bounds on a change, which need no test."""
    sides = zip((claim.from_variant, claim.to), _sides(claim, runs), strict=True)
    unit, kind = _unit_and_kind(claim, _of_claim(claim, runs))
    return ClaimOutcome(
        text=claim.text,
        expected=_expected(claim),
        measured=_measured(claim, runs, unit),
        holds=claim.holds(_change(claim, runs)),
        measure=claim.measure,
        kind=kind,
        published=claim.published,
        unjudged=next((_no_value(name) for name, values in sides if not values), ""),
    )


def _detail(test: ClaimTest | None, judgement: SizeJudgement | None, runs: int) -> str:
    if test is None or judgement is None or judgement.verdict != "inconclusive":
        return judgement.detail if judgement else ""
    if min(len(test.before), len(test.after)) < 2:
        return "one run has no spread"
    if fewest_runs(judgement.level) is None:
        return f"no number of seeds decides one of {judgement.size:,} {judgement.family} claims"
    if judgement.runs is None:
        return f"more than {MOST_RUNS:,} seeds would decide"
    some = len(test.before) + len(test.after) < runs
    return f"{judgement.runs} seeds {'with a value ' if some else ''}would decide"


def _figures(test: ClaimTest | None, judgement: SizeJudgement | None) -> ClaimTestFigures | None:
    if test is None or judgement is None:
        return None
    return ClaimTestFigures(
        p_value=judgement.p_value,
        family=judgement.family,
        size=judgement.size,
        level=judgement.level,
        scale=test.claim.scale,
        change=judgement.change,
        interval=judgement.interval,
        seeds=judgement.runs,
    )


def _expected(claim: Claim) -> str:
    parts = [_TOWARDS[claim.direction]] if claim.direction else []
    parts += [f"{sign} {bound:+g}%" for sign, bound in claim.bounds]
    return f"from {claim.from_variant} to {claim.to}: {', '.join(parts)}"


def _measured(
    claim: Claim,
    runs: Sequence[StoredRun],
    unit: str,
    test: ClaimTest | None = None,
    judgement: SizeJudgement | None = None,
) -> str:
    """Write the means, and the change with its interval, p value and family.

    Bounds are on the change of the means, which is written for them and without a test.
    """
    before, after = _sides(claim, runs)
    if not (before and after):
        return "nothing"
    old, new = summarise(before), summarise(after)
    assert old is not None
    assert new is not None
    parts = [f"{_figure(old.mean)} to {_figure(new.mean)} {unit}"]
    tested = test is not None and judgement is not None
    change = change_percent(old.mean, new.mean)
    if change is not None and (claim.bounds or not tested):
        parts = [f"{parts[0]} ({change:+.1f}%)"]
    if test is not None and judgement is not None:
        parts += [*_tested(test, judgement, unit)]
    return f"{', '.join(parts)}, {old.n} and {runs_of(new.n)}"


def _tested(test: ClaimTest, judgement: SizeJudgement, unit: str) -> Iterator[str]:
    """Yield the change with its interval, the p value and the family."""
    linear = test.claim.scale == "linear"
    of_change = unit_of_difference(unit) if linear else "%"
    low, high = (_figure(end, sign="+") for end in judgement.interval)
    level = f"{100 * (1 - judgement.level):.4g} %"
    change = _figure(judgement.change, sign="+")
    what = "" if linear else " of geometric means"  # of counts + 0.5
    yield f"change{what} {change} {of_change}, {low} to {high} ({level} interval)"
    p_value = judgement.p_value
    p_text = f"p < {_LEAST_P}" if p_value < _LEAST_P else f"p = {p_value:.2g}"
    p_text += " against a change beyond the margin" * (test.claim.towards == "same")
    one_of = f", one of {judgement.size} {judgement.family} claims" if judgement.size > 1 else ""
    yield f"{p_text}{one_of}"


def _figure(value: float, sign: str = "") -> str:
    """Write three or four digits; large numbers whole, as 181,500 is easier to read than 1.8e5."""
    value = 0.0 if abs(value) < _ROUNDING else value
    whole = abs(value) >= (999.5 if sign else 1000)  # +999.5 would be +1e+03
    digits = ",.0f" if whole else ".3g" if sign else ".4g"
    return format(value, sign + digits)


def _change(claim: Claim, runs: Sequence[StoredRun]) -> float | None:
    """Return the change in percent; of two equal means it is 0, also where they are 0."""
    before, after = map(summarise, _sides(claim, runs))
    if before is None or after is None:
        return None
    return 0.0 if before.mean == after.mean else change_percent(before.mean, after.mean)


def untimed(runs: Sequence[StoredRun]) -> str:
    """Return why figures of time of these runs are not valid for hardware; empty if they are."""
    modes = {run.manifest.mode for run in runs}
    if "icount" in modes:
        return _ICOUNT
    if "tcg" in modes:
        return _TCG
    for run in runs:
        if words := _against(run.manifest):
            return f"of how a guest was placed: {words}"
    hosts = [run.manifest.host for run in runs if run.manifest.mode == "kvm"]
    if len({(host.processor, host.cpus, host.kernel) for host in hosts if host}) > 1:
        return "the hosts of the runs differ in processor, CPUs or kernel"
    if len({run.manifest.planned_cpus for run in runs}) > 1:
        return "the runs were not on the same host CPUs"
    return ""


def _against(run: Manifest) -> str:
    """Return why the times of a run are not valid, from its plan and its proof of placement."""
    if run.timing is None or run.timing.means:
        return "" if run.timing else "it was not judged"
    return next(iter(against(run.timing, run.proof)), "it was not judged")
