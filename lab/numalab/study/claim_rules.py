"""What claims must be: about cells and measures of the study, and free of contradiction."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from numalab.analysis.measures.family import explain, family_of
from numalab.errors import UserError
from numalab.measure import Direction, MeasureInfo, MeasureKind, MeasureSource, SourceKind
from numalab.results.plan import Cell, PlannedRun
from numalab.statistics.scale import margin_of
from numalab.study.axis import axis_labels
from numalab.study.claims import MOST_PRIMARY, Claim, claims_about
from numalab.study.model import Study
from numalab.study.published import VALID, PublishedChange
from numalab.topology.load import list_topologies
from numalab.topology.topology import Topology
from numalab.workload.workload import BoundWorkload
from numalab.workload.workload_files import TABLE
from numalab.workload.workload_table import MetricTable


def check_claims(
    study: Study,
    topologies: Mapping[str, Topology],
    workloads: Mapping[Cell, BoundWorkload],
    path: Path,
) -> None:
    """Raise UserError for a claim without a cell, or with a measure that its cell lacks."""
    for place, claim in enumerate(study.claims):
        if claim.direction == "same" and claim.mechanism is None:
            reason = "a claim of no change needs a measure that is above 0 where the code acts"
            raise UserError(reason, file=path, key=f"claims[{place}].mechanism")
        named = claim.topology
        if named not in (None, *topologies, *study.machines, *list_topologies()):
            key = f"claims[{place}].topology"
            raise UserError(
                f"no topology {claim.topology!r}", file=path, key=key, choices=topologies
            )
        for cell, workload in workloads.items():
            if claim.is_about(cell.topology, cell.label):
                topology = topologies[cell.topology]
                key = f"claims[{place}]"
                _check_measure(claim.measure, topology, workload, path, f"{key}.measure")
                if claim.mechanism is not None:
                    _check_measure(claim.mechanism, topology, workload, path, f"{key}.mechanism")


def check_metrics(workloads: Iterable[BoundWorkload]) -> None:
    """Raise UserError for a metric with the name of a measure: no run has two of one name."""
    for folder, metrics in {bound.folder: bound.metrics for bound in workloads}.items():
        for place, metric in enumerate(metrics):
            family = family_of(metric.name) if metric.name in metric.measures else None
            if family is not None:
                reason = f"{metric.name!r} is a name of the measure {family.name}; choose another"
                raise UserError(reason, file=folder / TABLE, key=f"metrics[{place}].name")


def check_primary(study: Study, runs: Mapping[Cell, Iterable[PlannedRun]], path: Path) -> None:
    """Raise UserError for more primary claims than a post may have: one counts in each cell."""
    count = sum(
        claim.primary
        for cell, of_cell in runs.items()
        for claim in claims_about(study.claims, cell, of_cell)
    )
    if count > (most := study.primary_claims or MOST_PRIMARY):
        reason = (
            f"{count} primary claims, counted in each cell, and at most {most} are possible;"
            " give a primary claim its topology and its workload"
        )
        raise UserError(reason, file=path, key="claims")


def claims_without_runs(file: Study, preset: str | None, runs: Iterable[PlannedRun]) -> list[int]:
    """Return the places of the claims in a study file of which no cell has all variants.

    `runs` are those of the preset.
    """
    chosen = file.presets.get(preset or "")
    axes = file.axes if chosen is None or chosen.axes is None else chosen.axes
    variants: dict[Cell, set[str]] = {}
    for run in runs:
        variants.setdefault(run.cell, set()).add(run.variant)

    def has_runs(claim: Claim) -> bool:
        labels = {claim.workload, *axis_labels(claim.workload or "", axes)}
        return any(
            own.issuperset(claim.variants)
            for cell, own in variants.items()
            if claim.topology in (None, cell.topology) and labels & {None, cell.label}
        )

    return [place for place, claim in enumerate(file.claims) if not has_runs(claim)]


def check_any_has(
    name: str,
    topologies: Mapping[str, Topology],
    workloads: Mapping[Cell, BoundWorkload],
    path: Path | None,
    key: str,
) -> None:
    """Raise UserError, named by `key`, if no cell has this measure."""
    errors = []
    for cell, workload in workloads.items():
        try:
            _check_measure(name, topologies[cell.topology], workload, path, key)
        except UserError as error:
            errors.append(error)
    if len(errors) == len(workloads):
        raise errors[0]


def _check_measure(
    name: str, topology: Topology, workload: BoundWorkload, path: Path | None, key: str
) -> None:
    """Raise UserError for an undefined measure, or a node or CPU that the topology lacks."""
    if _metric_of(name, workload) is not None:
        return
    try:
        explain(name)
    except UserError as error:
        own = (name for metric in workload.metrics for name in metric.measures)
        choices = (*own, *error.choices)
        raise UserError(error.message, file=path, key=key, choices=choices) from None
    counts = {"node": len(topology.nodes), "cpu": topology.cpu_count}
    for what, number in re.findall(r"_(node|cpu)(\d+)", name):
        if int(number) >= counts[what]:
            raise UserError(f"{topology.name} has no {what} {number}: {name}", file=path, key=key)


def check_texts(study: Study, workloads: Mapping[Cell, BoundWorkload], path: Path) -> None:
    """Raise UserError for a published change that cannot be read, for a contradiction, and for a
    comparison of identifiers.

    Claims that were stored with runs are not checked: they are judged as they were. Measures are
    not checked without `workloads`.
    """
    for place, claim in enumerate(study.claims):
        every = [
            info_of(claim.measure, workload)
            for cell, workload in workloads.items()
            if claim.is_about(cell.topology, cell.label)
        ]
        if claim.variant is None and any(info.is_identifier for info in every):
            reason = f"{claim.measure} is an identifier, and names are never compared"
            raise UserError(reason, file=path, key=f"claims[{place}].measure")
        _check_text(claim, sorted({info.unit for info in every}), path, f"claims[{place}]")


def _check_text(claim: Claim, units: Sequence[str], path: Path, place: str) -> None:
    for key, reason in _contradictions(claim):
        raise UserError(reason, file=path, key=f"{place}.{key}")
    for unit in units or (None,):
        for reason in PublishedChange(claim.published).problems(unit):
            raise UserError(f"{reason} (valid: {VALID})", file=path, key=f"{place}.published")
        if unit is not None and (reason := _percent_of_units(claim, unit)):
            raise UserError(reason, file=path, key=f"{place}.published")
    for scale in map(claim.scale_of, units):
        shifts = claim.published_shifts(scale, rounded=True)
        low, high = margin_of(claim.margin, scale)
        if claim.direction == "same" and shifts is not None and not _meet(shifts, (low, high)):
            reason = f"'same' within a margin of {claim.margin:g} contradicts {claim.published!r}"
            raise UserError(reason, file=path, key=f"{place}.direction")


def _percent_of_units(claim: Claim, unit: str) -> str:
    """Return why a published percentage is no change on the claim's scale; empty if it is one."""
    published = PublishedChange(claim.published)
    relative = bool(published.percentages) and not published.pairs
    if unit == "%" or not relative or claim.scale_of(unit) != "linear":
        return ""
    return (
        f"on the scale linear changes are in {unit or 'the unit of the measure'}, not in %:"
        f" write {claim.published!r} as a pair of values, or choose the scale count or ratio"
    )


def _meet(first: tuple[float, float], second: tuple[float, float]) -> bool:
    return first[0] <= second[1] and second[0] <= first[1]


def info_of(measure: str, workload: BoundWorkload) -> MeasureInfo:
    """Return what a measure of a cell means. Raises UserError for an undefined measure."""
    metric = _metric_of(measure, workload)
    if metric is None:
        return explain(measure)
    source = MeasureSource(SourceKind.WORKLOAD, workload.name)
    direction, kind = Direction(metric.direction), MeasureKind(metric.kind)
    return MeasureInfo(measure, metric.unit, direction, kind, "", (source,))


def _metric_of(measure: str, workload: BoundWorkload) -> MetricTable | None:
    """Return the metric whose measure may have this name: of several, that of the longest name."""
    metrics = (metric for metric in workload.metrics if metric.is_named(measure))
    return max(metrics, key=lambda metric: len(metric.name), default=None)


def _contradictions(claim: Claim) -> Iterator[tuple[str, str]]:
    """Yield the keys that contradict others of a claim, with the reason."""
    low, high = claim.interval
    if low > high or (low == high and (claim.above == low or claim.below == high)):
        key = "below" if claim.below == high else "at_most"
        yield key, f"no value is within the bounds, {claim.bounds_text}"
    if (claim.direction == "lower" and low >= 0) or (claim.direction == "higher" and high <= 0):
        yield "direction", f"{claim.direction!r} contradicts the bounds, {claim.bounds_text}"
    shifts = PublishedChange(claim.published).shifts("count")
    if shifts is not None and (
        (claim.direction == "lower" and max(shifts) > 0)
        or (claim.direction == "higher" and min(shifts) < 0)
    ):
        yield "direction", f"{claim.direction!r} contradicts published, {claim.published!r}"
