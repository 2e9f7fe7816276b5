"""From what the runs left to a report of each cell.

Nothing here needs a guest, so it can be done again.
"""

from collections.abc import Iterable, Iterator, Sequence
from shlex import quote

from numalab.errors import UserError
from numalab.measure import MeasureInfo
from numalab.report import model
from numalab.reporting.comparisons import compare_variants
from numalab.reporting.modelled import measured_lines, model_lines
from numalab.reporting.placement_rows import placement_line, proof_rows
from numalab.reporting.timelines import timeline
from numalab.reporting.verdicts import family_size, judge
from numalab.results.cell import Cell
from numalab.results.layout import Results
from numalab.results.manifest import UNKNOWN, Manifest, RunStatus
from numalab.results.plan import StoredPlan, texts
from numalab.results.reader import (
    StoredRun,
    failed_runs,
    load_domains,
    load_findings,
    load_runs,
    load_timeline,
    of_variant,
)
from numalab.study.claims import Claim, claims_about
from numalab.study.model import Study
from numalab.study.stored import stored_study, stored_topology
from numalab.topology.view.drawing import render_svg
from numalab.units import runs_of


def gather(results: Results) -> tuple[model.StudyReport, ...]:
    """Read all finished runs of `results` and put together what a report shows of each cell.

    The cells are in the order of the plan; those without a finished run are left out. Raises
    UserError when there are none, when another numalab wrote them, or when they are damaged.
    """
    plan, runs = load_runs(results)
    study = stored_study(plan, results)
    for run in runs:
        if run.manifest.variant not in study.variants:
            raise UserError(f"{run.id} is no run of this study", file=run.directory.manifest)
    found = tuple(
        _gather(plan, study, cell, there, failed_runs(results, plan, cell))
        for cell in plan.cells
        if (there := tuple(run for run in runs if run.cell == cell))
    )
    if not found:
        raise UserError("no run of the plan has finished", file=results.path)
    return found


def _gather(
    plan: StoredPlan,
    study: Study,
    cell: Cell,
    runs: tuple[StoredRun, ...],
    failed: tuple[Manifest, ...],
) -> model.StudyReport:
    infos = _infos(runs)
    first = runs[0].manifest
    topology = stored_topology(study, first, runs[0].directory.manifest)
    about = claims_about(study.claims, cell, plan.runs)
    family = family_size(about, runs)
    claims = tuple(judge(claim, runs, family=family) for claim in about)
    keys = _key_measures(study, about, infos)
    sides = [_samples(infos, of) for name in study.variants if (of := of_variant(runs, name))]
    return model.StudyReport(
        study=plan.study,
        question=study.question,
        verdict=_verdict(claims, len(runs), len(plan.runs_of(cell))),
        reference=study.source,
        axis="kernel",
        mode=first.mode,
        mode_reason=first.mode_reason,
        workload=" ".join(first.workload.argv),
        created=first.started,
        commands=(_command(plan, first.mode),),
        topology=topology,
        topology_svg=render_svg(topology),
        variants=tuple(_variant(name, runs) for name in study.variants if of_variant(runs, name)),
        measures=infos,
        key_measures=keys,
        runs=(*(_run(run.manifest, _readings(run, infos)) for run in runs), *map(_run, failed)),
        comparisons=compare_variants(infos, keys, sides),
        domains=tuple(_domains(name, runs) for name in study.variants if of_variant(runs, name)),
        timelines=tuple(_timelines(study.variants, runs)),
        claims=claims,
        findings=tuple(_findings(runs)),
        cell=str(cell),
        workload_name=first.workload.name,
        workload_label=cell.label,
        parameters=first.workload.parameters,
        remarks=texts(plan.remarks),
        model=(*model_lines(first), *measured_lines(runs, topology)),
    )


def _command(plan: StoredPlan, mode: str) -> str:
    preset = f" --preset {quote(plan.preset)}" if plan.preset else ""
    return f"numalab run {quote(plan.path)} --mode {mode}{preset}"


def _key_measures(
    study: Study, about: Sequence[Claim], infos: Sequence[MeasureInfo]
) -> tuple[str, ...]:
    """Return the measures to show first, those that the cell has: the study's or its claims'."""
    there = {info.name for info in infos}
    named = study.key_measures or tuple(dict.fromkeys(claim.measure for claim in about))
    return tuple(name for name in named if name in there)


def _infos(runs: Sequence[StoredRun]) -> tuple[MeasureInfo, ...]:
    """Describe every measure that some run has, in the order in which they were taken."""
    found: dict[str, MeasureInfo] = {}
    for run in runs:
        for name, each in run.measures.items():
            found.setdefault(name, each.info)
    return tuple(found.values())


def _samples(
    infos: Sequence[MeasureInfo], runs: Sequence[StoredRun]
) -> dict[str, list[float | int | None]]:
    """Return the values of some runs by measure."""
    return {info.name: [run.value(info.name) for run in runs] for info in infos}


def _variant(name: str, runs: Sequence[StoredRun]) -> model.VariantInfo:
    kernel = of_variant(runs, name)[0].manifest.kernel
    return model.VariantInfo(
        name=name,
        kernel=kernel.name,
        release=kernel.release,
        config_hash=kernel.config_hash,
        source_version=kernel.source_version,
        series=tuple(f"{s.name} ({_patches(s.patches)})" for s in kernel.series),
        compiler=kernel.compiler,
    )


def _patches(patches: Sequence[str]) -> str:
    return "1 patch" if len(patches) == 1 else f"{len(patches)} patches"


def _readings(run: StoredRun, infos: Sequence[MeasureInfo]) -> tuple[model.Reading, ...]:
    return tuple(model.Reading(info.name, run.value(info.name)) for info in infos)


def _run(about: Manifest, readings: tuple[model.Reading, ...] = ()) -> model.Run:
    """Describe a run by its manifest; of one that failed, not all need be known."""
    trace = about.trace
    return model.Run(
        id=about.run,
        variant=about.variant,
        seed=about.seed,
        status=about.status or RunStatus.FAILED,
        readings=readings,
        provenance=model.Provenance(
            qemu=about.versions.qemu,
            libvirt=about.versions.libvirt,
            host=UNKNOWN if about.host is None else str(about.host),
            image=about.image.name,
            image_digest=about.image.digest,
            placement=placement_line(about.proof, about.timing),
            events=0 if trace is None else trace.events,
            lost_events=0 if trace is None else trace.lost,
            proof=proof_rows(about.proof, about.timing),
        ),
        seconds=about.seconds,
        reason=about.reason,
    )


def _domains(name: str, runs: Sequence[StoredRun]) -> model.SchedDomains:
    log = load_domains(of_variant(runs, name)[0].directory)
    return model.SchedDomains(name, log.cpus, log.errors)


def _timelines(variants: Iterable[str], runs: Sequence[StoredRun]) -> Iterator[model.Timeline]:
    """Draw the first run of each variant; the table says how the others compare."""
    for name in variants:
        for run in of_variant(runs, name)[:1]:
            found = load_timeline(run.directory, run.manifest.workload.tasks)
            if found is not None:
                yield timeline(found, name, run.id)


def _findings(runs: Sequence[StoredRun]) -> Iterator[model.RunFindings]:
    """Give what the analysis of each run found; results of an older numalab have none."""
    for run in runs:
        found = load_findings(run.directory)
        if found is not None:
            yield model.RunFindings(run.manifest.variant, run.id, found)


def _verdict(claims: Sequence[model.ClaimOutcome], finished: int, planned: int) -> str:
    """Say whether what the study expects was seen, and else which claims had which verdict."""
    required = [claim for claim in claims if claim.required]
    broken = [claim.text for claim in required if not claim.holds]
    lacking = planned - finished
    missing = f"; {runs_of(lacking)} gave no result" if lacking > 0 else ""
    if broken:
        return f"Not seen in every run: {'; '.join(broken)}{missing}."
    if required:
        texts = "; ".join(claim.text for claim in required)
        return f"Seen in all {runs_of(finished)}: {texts}{missing}."
    if claims:
        told: dict[str, list[str]] = {}
        for claim in claims:
            told.setdefault(claim.verdict_text, []).append(claim.text)
        parts = [f"{said[:1].upper()}{said[1:]}: {'; '.join(of)}" for said, of in told.items()]
        return f"{'. '.join(parts)}{missing}."
    return f"{finished} of {runs_of(planned)} finished{missing}."
