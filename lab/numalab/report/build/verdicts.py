"""The verdicts on a study's claims in the runs of one cell."""

from collections.abc import Iterable, Sequence

from numalab.campaign.stopping import PRECISION
from numalab.measure import ClaimVerdict, Direction, MeasureKind
from numalab.report.build.placement_rows import against
from numalab.report.claim_outcome import ClaimOutcome
from numalab.results.manifest import Manifest
from numalab.results.reader import StoredRun, of_variant
from numalab.statistics.comparison import FEWEST, Comparison, compare_samples
from numalab.study.claims import Claim
from numalab.units import runs_of

_WHERE = {"higher": "higher", "lower": "lower", "same": "no change"}


def judge(claim: Claim, runs: Sequence[StoredRun], *, family: int = 1) -> ClaimOutcome:
    """Judge a claim by the runs of its cell.

    `family` is the number of the cell's claims that compare variants (`family_size`).
    """
    if claim.variant is not None:
        return _bounded(claim, of_variant(runs, claim.variant))
    return _compared(claim, runs, family)


def family_size(claims: Sequence[Claim], runs: Sequence[StoredRun]) -> int:
    """Return how many of the claims compare variants by a measure that runs of both have.

    All other claims are no comparison and do not enlarge the family of tests.
    """
    return sum(
        claim.variant is None
        and all(
            any(run.value(claim.measure) is not None for run in of_variant(runs, variant))
            for variant in claim.variants
        )
        for claim in claims
    )


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
    measured = (
        f"{_figure(min(numbers))} to {_figure(max(numbers))} {unit}" if numbers else "not measured"
    )
    return ClaimOutcome(
        text=claim.text,
        expected=" and ".join(f"{sign} {bound:g} {unit}" for sign, bound in claim.bounds),
        measured=f"{measured} ({runs_of(len(values))})",
        holds=bool(values) and all(claim.holds(value) for value in values),
        measure=claim.measure,
        kind=kind,
        published=claim.published,
    )


_ICOUNT = (
    "icount counts instructions, those of all CPUs on one clock: "
    "neither an idle CPU nor an access to far memory costs time"
)
_TCG = "tcg emulates the CPUs, and the speed of emulation is not that of hardware"


def _compared(claim: Claim, runs: Sequence[StoredRun], family: int) -> ClaimOutcome:
    before, after = of_variant(runs, claim.from_variant), of_variant(runs, claim.to)
    sides: Iterable[Sequence[float | None]] = (
        [run.value(claim.measure) for run in side] for side in (before, after)
    )
    # Only the direction of the change matters here, not which direction is better.
    versus = compare_samples(*sides, direction=Direction.HIGHER, family=family)
    unit, kind = _unit_and_kind(claim, [*before, *after])
    verdict, reason = _judged(claim, versus, kind, [*before, *after])
    return ClaimOutcome(
        text=claim.text,
        expected=_expected(claim),
        measured=_measured(versus, unit),
        holds=(not claim.expect or verdict in claim.expect)
        and (not claim.bounds or claim.holds(_change(versus))),
        measure=claim.measure,
        kind=kind,
        published=claim.published,
        verdict=verdict if claim.direction else "",
        reason=reason if claim.direction else "",
        required=bool(claim.expect or claim.bounds),
    )


def _expected(claim: Claim) -> str:
    parts = [_WHERE[claim.direction]] if claim.direction else []
    parts += [f"{sign} {bound:+g}%" for sign, bound in claim.bounds]
    return f"from {claim.from_variant} to {claim.to}: {', '.join(parts)}"


def _measured(versus: Comparison, unit: str) -> str:
    if versus.before is None or versus.after is None:
        return versus.verdict
    change = f" ({versus.change:+.1f}%)" if versus.change is not None else ""
    interval = ""
    if versus.interval is not None:
        low, high = (_figure(end, sign="+") for end in versus.interval)
        interval = f", difference {low} to {high} (95 %)"
    means = f"{_figure(versus.before.mean)} to {_figure(versus.after.mean)} {unit}"
    return f"{means}{change}{interval}, {versus.before.n} and {runs_of(versus.after.n)}"


def _figure(value: float, sign: str = "") -> str:
    """Write three or four digits; large numbers whole, as 181,500 is easier to read than 1.8e5."""
    digits = ",.0f" if abs(value) >= 1000 else ".3g" if sign else ".4g"
    return format(value, sign + digits)


def _change(versus: Comparison) -> float | None:
    """Return the change in percent; of two equal means it is 0, also where they are 0."""
    if versus.before is not None and versus.after is not None:
        return 0.0 if versus.before.mean == versus.after.mean else versus.change
    return None


def _judged(
    claim: Claim, versus: Comparison, kind: str, runs: Sequence[StoredRun]
) -> tuple[ClaimVerdict, str]:
    """Return the verdict, and the reason where it cannot be given."""
    if versus.outcome == "not comparable":
        return "cannot be seen", versus.verdict
    if kind == MeasureKind.TIMING and (why := untimed(runs)):
        return "cannot be seen", why
    if versus.outcome == "no difference shown":
        same = claim.direction == "same" and _same(versus)
        return "reproduced" if same else "no difference shown", ""
    went: Direction = Direction.HIGHER if versus.outcome == "better" else Direction.LOWER
    return "reproduced" if claim.direction == went else "opposite", ""


def _same(versus: Comparison) -> bool:
    """Return whether the runs exclude a difference; showing none is not enough."""
    if (
        versus.before is None
        or versus.after is None
        or min(versus.before.n, versus.after.n) < FEWEST
    ):
        return False
    if versus.interval is None:  # every run gave the same value
        return True
    ends = [versus.percent(end) for end in versus.interval]
    return all(end is not None and abs(end) <= PRECISION for end in ends)


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
    if len({run.manifest.planned_cpus for run in runs}) > 1:
        return "the runs were not on the same host CPUs"
    return ""


def _against(run: Manifest) -> str:
    """Return why the times of a run are not valid, from its plan and its proof of placement."""
    if run.timing is None or run.timing.means:
        return "" if run.timing else "it was not judged"
    return next(iter(against(run.timing, run.proof)), "it was not judged")
