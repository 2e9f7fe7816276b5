"""Builds the report of each cell from stored results, without a guest."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from shlex import quote

from numalab.errors import UserError, shown
from numalab.files import read_bounded
from numalab.machine.model import DETERMINISTIC
from numalab.measure import MeasureInfo, differing
from numalab.places import project_dir
from numalab.report import document
from numalab.report.build.headline import headline
from numalab.report.build.modelled import measured_lines, model_lines
from numalab.report.build.runs import described, unfinished_by_cell
from numalab.report.build.variants import describe_settings, describe_variants
from numalab.report.build.verdicts import judge_cells
from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.comparisons import compare_variants
from numalab.report.differences import compared
from numalab.report.formatting import printable
from numalab.report.modes import RunMode
from numalab.report.timeline import Timeline, timeline_of
from numalab.results.layout import Results
from numalab.results.manifest import UNKNOWN, VARIED, RunStatus
from numalab.results.plan import Cell, StoredPlan, texts
from numalab.results.reader import (
    StoredRun,
    load_domains,
    load_findings,
    load_reach,
    load_study,
    load_timeline,
    of_variant,
)
from numalab.study.claims import Claim, claims_about
from numalab.study.model import Study
from numalab.study.stored import judged_anew, stored_study, stored_topology
from numalab.topology.predict.firmware import as_guest_numbers, describe_numbers

_MOST_OF_VERDICT = 64 << 10  # bytes
_EACH_ALONE = (
    "The tables below test each cell alone, with the runs of all seeds: some measures differ by"
    " chance."
)


def gather(results: Results, errors: Mapping[str, str] | None = None) -> document.StudyResults:
    """Build the report of each cell with a finished run from stored results.

    Cells without a finished run are listed with the causes. `errors` are reasons by run, for runs
    that stored none. Raises UserError for results that another numalab wrote, or that are damaged.
    """
    plan, stored = load_study(results)
    study = stored_study(plan, results)
    if not plan.runs:
        raise UserError("the plan has no runs", file=results.plan_file)
    _check(study, stored)
    unfinished = unfinished_by_cell(results, plan, stored, errors or {})
    finished: dict[Cell, list[StoredRun]] = {}
    for run in stored:
        if run.manifest.status is RunStatus.OK:
            finished.setdefault(run.cell, []).append(run)
    left_out = {cell: several_meanings(runs) for cell, runs in finished.items()}
    for cell, names in left_out.items():
        finished[cell] = [run.without(names) for run in finished[cell]]
    claims = {
        **_judged(plan, study, {cell: finished[cell] for cell in plan.cells if cell in finished}),
        # Apart, so that verdicts on cells with runs do not depend on those without.
        **_judged(plan, study, {cell: () for cell in plan.cells if cell not in finished}),
    }
    command = f"numalab verify {quote(str(results.path))} --output FOLDER"
    recreate = command if results.is_compact else ""
    remarks = (*texts(plan.remarks), *_judged_anew(plan, study))
    reports: list[document.CellReport] = []
    unreported: list[document.UnreportedCell] = []
    for cell in plan.cells:
        if runs := tuple(finished.get(cell, ())):
            report = _gather(
                plan,
                study,
                cell,
                runs,
                unfinished=unfinished.get(cell, ()),
                claims=claims[cell],
                every=[run for of_cell in finished.values() for run in of_cell],
            )
            changed = [
                shown(f"{name} is left out: {change}") for name, change in left_out[cell].items()
            ]
            said = (*report.remarks, *changed, *remarks)
            reports.append(replace(report, recreate=recreate, remarks=said))
        else:
            unreported.append(document.UnreportedCell(cell, unfinished[cell], claims[cell]))
    commands = dict.fromkeys(line for report in reports for line in report.commands)
    return document.StudyResults(
        study=plan.study,
        question=study.question,
        reference=study.source,
        commands=tuple(commands) or (_command(plan),),
        reports=tuple(reports),
        unreported=tuple(unreported),
        reach=load_reach(results, plan, stored),
        verdict=_patch_verdict(results),
        path=_in_project(plan.path),
    )


def _judged_anew(plan: StoredPlan, study: Study) -> Iterator[str]:
    """Say which keys that decide outcomes are not those from before the runs."""
    if keys := judged_anew(plan, study):
        yield f"as in the study's file today, not before the runs: {', '.join(keys)}"


def _judged(
    plan: StoredPlan, study: Study, cells: Mapping[Cell, Sequence[StoredRun]]
) -> dict[Cell, tuple[ClaimOutcome, ...]]:
    """Judge the claims about some cells by their finished runs, at one error rate."""
    with_claims = {
        cell: (claims_about(study.claims, cell, plan.runs_of(cell)), runs)
        for cell, runs in cells.items()
    }
    return judge_cells(with_claims, next(iter(study.variants)), study.primary_claims or 0)


def _in_project(path: str) -> str:
    """Return the stored path of a study; empty for a bare name that the project lacks."""
    return path if "/" in path or (project_dir() / path).is_file() else ""


def _patch_verdict(results: Results) -> str:
    """Return the stored verdict on a patch without control characters; empty for other studies."""
    if not results.verdict.exists():
        return ""
    data = read_bounded(results.verdict, _MOST_OF_VERDICT)
    lines = [printable(line) for line in data.decode("utf-8", "replace").splitlines()]
    return "\n".join([*lines, _EACH_ALONE])


def _check(study: Study, stored: Sequence[StoredRun]) -> None:
    """Raise UserError for a run of a variant that the study lacks, and for no repetition.

    The runs of all variants of a cell differ in nothing but what a variant varies.
    """
    first: dict[tuple[Cell, str], StoredRun] = {}
    of_cell: dict[Cell, StoredRun] = {}
    for run in stored:
        variant = run.manifest.variant
        if variant not in study.variants:
            raise UserError(f"{run.id} is no run of this study", file=run.file)
        if run.manifest.status is RunStatus.OK:
            like = first.setdefault((run.cell, variant), run)
            if what := run.manifest.differs_from(like.manifest):
                reason = f"{run.id} differs from {like.id} in {what}: no repetition"
                raise UserError(reason, file=run.file)
            like = of_cell.setdefault(run.cell, run)
            if what := run.manifest.differs_from(like.manifest, but=VARIED):
                reason = f"{run.id} differs from {like.id} in {what}: not comparable"
                raise UserError(reason, file=run.file)


def _gather(
    plan: StoredPlan,
    study: Study,
    cell: Cell,
    runs: tuple[StoredRun, ...],
    *,
    unfinished: tuple[document.Run, ...],
    claims: tuple[ClaimOutcome, ...],
    every: Sequence[StoredRun],
) -> document.CellReport:
    infos = _infos(runs)
    first = runs[0].manifest
    stored = stored_topology(study, first, runs[0].file)
    topology = as_guest_numbers(stored)
    keys = _key_measures(study, claims_about(study.claims, cell, plan.runs), infos)
    whole = [run for run in runs if not run.compact]
    variants = [name for name in study.variants if of_variant(runs, name)]
    lacking = _lacking_baseline(plan, study, cell, variants)
    variants = [*(lacking if len(variants) > 1 else ()), *variants]
    sides = {name: _samples(infos, of_variant(runs, name)) for name in variants}
    comparisons = compare_variants(infos, keys, sides)
    return document.CellReport(
        study=plan.study,
        question=study.question,
        verdict=headline(
            claims,
            () if lacking else compared(infos, keys, comparisons),
            len(runs),
            len(runs) + len(unfinished),
            *lacking,
        ),
        reference=study.source,
        axis="kernel",
        mode=RunMode(
            first.mode, first.mode_reason, (*model_lines(first), *measured_lines(runs, topology))
        ),
        workload=document.CellWorkload(
            first.workload.name,
            cell.label,
            " ".join(first.workload.argv),
            first.workload.parameters,
        ),
        created=first.started,
        commands=(_command(plan, first.mode),),
        topology=topology,
        remarks=(
            *(f"{cell}: {name}, the baseline, has no finished run" for name in lacking),
            *filter(None, (describe_numbers(stored), _emulators(runs), _hosts(runs))),
        ),
        variants=describe_variants(study, variants, (*runs, *every)),
        settings=describe_settings(study, cell.label, runs),
        measures=infos,
        key_measures=keys,
        runs=(*unfinished, *(described(run.manifest, _figures(run, infos)) for run in runs)),
        comparisons=comparisons,
        sched_domains=tuple(_domains(name, whole) for name in variants if of_variant(whole, name)),
        timelines=tuple(_timelines(study.variants, whole)),
        claims=claims,
        findings=tuple(_findings(whole)),
        cell=str(cell),
    )


def _lacking_baseline(
    plan: StoredPlan, study: Study, cell: Cell, variants: Sequence[str]
) -> list[str]:
    """Return the baseline of a cell if it has no finished run."""
    planned = {run.variant for run in plan.runs if run.cell == cell}
    first = next(name for name in study.variants if name in planned)
    return [] if first in variants else [first]


def _emulators(runs: Sequence[StoredRun]) -> str:
    """Say that runs of a cell had several versions of QEMU; empty for one."""
    versions = sorted({run.manifest.versions.qemu for run in runs} - {UNKNOWN})
    return f"the runs had QEMU {' and '.join(versions)}" if len(versions) > 1 else ""


def _hosts(runs: Sequence[StoredRun]) -> str:
    """Say that runs whose time is that of the host had several kinds of it; empty for one."""
    hosts = [run.manifest.host for run in runs if run.manifest.mode not in DETERMINISTIC]
    kinds = {f"{host.processor}, {host.cpus} CPUs, {host.kernel}" for host in hosts if host}
    return f"the runs had hosts of several kinds: {'; '.join(sorted(kinds))}" * (len(kinds) > 1)


def _command(plan: StoredPlan, mode: str = "") -> str:
    words = f" --mode {mode}" if mode else ""
    preset = f" --preset {quote(plan.preset)}" if plan.preset else ""
    return f"numalab run {quote(plan.path)}{words}{preset}"


def _key_measures(
    study: Study, about: Sequence[Claim], infos: Sequence[MeasureInfo]
) -> tuple[str, ...]:
    """Return the key measures of a cell: the study's, else those of its claims."""
    names = {info.name for info in infos}
    named = study.key_measures or tuple(dict.fromkeys(claim.measure for claim in about))
    return tuple(name for name in named if name in names)


def _infos(runs: Sequence[StoredRun]) -> tuple[MeasureInfo, ...]:
    """Return the definition of every measure of the runs, in the order of measurement."""
    infos: dict[str, MeasureInfo] = {}
    for run in runs:
        for name, measure in run.measures.items():
            infos.setdefault(name, measure.info)
    return tuple(infos.values())


def several_meanings(runs: Iterable[StoredRun]) -> dict[str, str]:
    """Return what changed between the runs of a cell, by the name of the measure."""
    meanings: dict[tuple[Cell, str], dict[MeasureInfo, None]] = {}
    for run in runs:
        for name, measure in run.measures.items():
            meanings.setdefault((run.cell, name), {})[measure.info] = None
    changes = {name: (differing(infos), infos) for (_, name), infos in meanings.items()}
    return {name: _change(what, infos) for name, (what, infos) in changes.items() if what}


def _change(what: Sequence[str], infos: Iterable[MeasureInfo]) -> str:
    """Say what of a measure changed, units by name."""
    units = dict.fromkeys(repr(info.unit) for info in infos)
    text = f"its {' and '.join(what)} changed"
    return f"{text} from {' to '.join(units)}" if "unit" in what else text


def _samples(
    infos: Sequence[MeasureInfo], runs: Sequence[StoredRun]
) -> dict[str, list[float | int | None]]:
    """Return the values of some runs by measure."""
    return {info.name: [run.value(info.name) for run in runs] for info in infos}


def _figures(run: StoredRun, infos: Sequence[MeasureInfo]) -> dict[str, float | int | None]:
    return {info.name: run.value(info.name) for info in infos}


def _domains(name: str, runs: Sequence[StoredRun]) -> document.SchedDomains:
    log = load_domains(of_variant(runs, name)[0].directory)
    return document.SchedDomains(name, log.cpus, log.errors)


def _timelines(variants: Iterable[str], runs: Sequence[StoredRun]) -> Iterator[Timeline]:
    """Return the timeline of the first run of each variant."""
    for name in variants:
        for run in of_variant(runs, name)[:1]:
            recorded = load_timeline(run.directory, run.manifest.workload.tasks)
            if recorded is not None:
                yield timeline_of(recorded, name, run.id)


def _findings(runs: Sequence[StoredRun]) -> Iterator[document.RunFindings]:
    """Yield the findings of each run."""
    for run in runs:
        yield document.RunFindings(run.manifest.variant, run.id, load_findings(run.directory))
