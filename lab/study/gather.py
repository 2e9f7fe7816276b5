"""From what the runs left to a report of each cell.

Nothing here needs a guest, so it can be done again.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from lab.errors import UserError
from lab.report import model
from lab.store import Results
from lab.study.claim import Claim
from lab.study.failed import failed_run, host_line
from lab.study.judge import compare_variants
from lab.study.measure import load_findings
from lab.study.model import Study
from lab.study.plan import Cell
from lab.study.proof import placement_line, proof_rows
from lab.study.stored import Json, StoredRun, damage_explained, failed_runs, load_runs
from lab.study.timeline import run_timeline
from lab.study.verdict import judge
from lab.topology.drawing import render_svg
from lab.topology.load import load_topology, topology_to_dict
from lab.topology.model import Topology
from lab.topology.sched_log import parse_sched_verbose
from lab.units import runs_of


def gather(results: Results) -> tuple[model.StudyReport, ...]:
    """Read all finished runs of `results` and put together what a report shows of each cell.

    The cells are in the order of the plan; those without a finished run are left out. Raises
    UserError when there are none, when another numalab wrote them, or when they are damaged.
    """
    with damage_explained(results.path):
        plan, runs = load_runs(results)
        study = Study.model_validate_json(json.dumps(plan["file"]))
        cells = dict.fromkeys(Cell(run["topology"], run["workload"]) for run in plan["runs"])
        return tuple(
            _gather(plan, study, cell, there, failed_runs(results, plan, cell))
            for cell in cells
            if (there := tuple(run for run in runs if run.cell == cell))
        )


def _gather(
    plan: Json,
    study: Study,
    cell: Cell,
    runs: tuple[StoredRun, ...],
    failed: tuple[Json, ...],
) -> model.StudyReport:
    infos = _infos(runs)
    first = runs[0].manifest
    topology = _topology(study, first)
    about = [claim for claim in study.claims if claim.is_about(cell.topology, cell.label)]
    compared = sum(claim.variant is None for claim in about)
    claims = tuple(judge(claim, runs, family=compared) for claim in about)
    keys = _key_measures(study, about, infos)
    sides = [_samples(infos, of) for name in study.variants if (of := _of(runs, name))]
    planned = sum(Cell(run["topology"], run["workload"]) == cell for run in plan["runs"])
    return model.StudyReport(
        study=plan["study"],
        question=study.question,
        verdict=_verdict(claims, len(runs), planned),
        reference=study.source,
        axis="kernel",
        mode=first["mode"],
        mode_reason=first["mode_reason"],
        workload=" ".join(first["workload"]["argv"]),
        created=first["started"],
        again=(_again(plan, first["mode"]),),
        topology=topology,
        topology_svg=render_svg(topology),
        variants=tuple(_variant(name, runs) for name in study.variants if _of(runs, name)),
        measures=infos,
        key_measures=keys,
        runs=(*(_run(run, infos) for run in runs), *map(failed_run, failed)),
        comparisons=compare_variants(infos, _key_measures(study, about, infos), sides),
        domains=tuple(_domains(name, runs) for name in study.variants if _of(runs, name)),
        timelines=tuple(_timelines(study.variants, runs)),
        claims=claims,
        findings=tuple(_findings(runs)),
        cell=str(cell),
        workload_name=first["workload"]["name"],
        workload_label=cell.label,
        parameters=first["workload"]["parameters"],
        remarks=tuple(plan["remarks"]),
    )


def _again(plan: Json, mode: str) -> str:
    preset = f" --preset {plan['preset']}" if plan["preset"] else ""
    return f"numalab run {plan['path']} --mode {mode}{preset}"


def _key_measures(
    study: Study, about: Sequence[Claim], infos: Sequence[model.MeasureInfo]
) -> tuple[str, ...]:
    """Return the measures to show first, those that the cell has: the study's or its claims'."""
    there = {info.name for info in infos}
    named = study.key_measures or tuple(dict.fromkeys(claim.measure for claim in about))
    return tuple(name for name in named if name in there)


def _topology(study: Study, manifest: Json) -> Topology:
    """Load the machine of the runs; UserError when its file has changed since then."""
    found = (load_topology(text) for text in study.topologies)
    topology = next((each for each in found if each.name == manifest["topology"]), None)
    if topology is None or topology_to_dict(topology) != manifest["machine"]:
        name = manifest["topology"]
        raise UserError("this topology has changed since the runs", file=name)
    return topology


def _of(runs: Sequence[StoredRun], variant: str) -> list[StoredRun]:
    return [run for run in runs if run.manifest["variant"] == variant]


def _infos(runs: Sequence[StoredRun]) -> tuple[model.MeasureInfo, ...]:
    """Describe every measure that some run has, in the order in which they were taken."""
    found: dict[str, model.MeasureInfo] = {}
    for run in runs:
        for name, each in run.measures.items():
            about = {key: value for key, value in each.items() if key != "value"}
            found.setdefault(name, model.MeasureInfo(**about))
    return tuple(found.values())


def _samples(
    infos: Sequence[model.MeasureInfo], runs: Sequence[StoredRun]
) -> dict[str, list[float | int | None]]:
    """Return the values of some runs by measure."""
    return {info.name: [run.value(info.name) for run in runs] for info in infos}


def _variant(name: str, runs: Sequence[StoredRun]) -> model.Variant:
    kernel = _of(runs, name)[0].manifest["kernel"]
    return model.Variant(
        name=name,
        kernel=kernel["name"],
        release=kernel["release"],
        config_hash=kernel["config_hash"],
        source_version=kernel["source_version"],
        series=tuple(f"{s['name']} ({_patches(s['patches'])})" for s in kernel["series"]),
        compiler=kernel["compiler"],
    )


def _patches(patches: Sequence[Json]) -> str:
    return "1 patch" if len(patches) == 1 else f"{len(patches)} patches"


def _run(run: StoredRun, infos: Sequence[model.MeasureInfo]) -> model.Run:
    about = run.manifest
    trace = about["trace"]
    return model.Run(
        id=about["run"],
        variant=about["variant"],
        seed=about["seed"],
        status=about["status"],
        readings=tuple(model.Reading(info.name, run.value(info.name)) for info in infos),
        provenance=model.Provenance(
            qemu=about["versions"].get("qemu", "unknown"),
            libvirt=about["versions"].get("libvirt", "unknown"),
            host=host_line(about),
            image=about["image"]["name"],
            image_digest=about["image"]["digest"],
            placement=placement_line(about),
            events=trace["events"],
            lost_events=trace["lost"],
            proof=proof_rows(about),
        ),
        seconds=about["seconds"],
    )


def _domains(name: str, runs: Sequence[StoredRun]) -> model.SchedDomains:
    directory = _of(runs, name)[0].directory
    text = directory.dmesg.read_text(encoding="utf-8", errors="replace")
    log = parse_sched_verbose(text)
    return model.SchedDomains(name, log.cpus, log.errors)


def _timelines(variants: Iterable[str], runs: Sequence[StoredRun]) -> Iterator[model.Timeline]:
    """Draw the first run of each variant; the table says how the others compare."""
    for name in variants:
        for run in _of(runs, name)[:1]:
            tasks = run.manifest["workload"]["tasks"]
            drawn = run_timeline(run.directory, name, run.manifest["run"], tasks)
            if drawn is not None:
                yield drawn


def _findings(runs: Sequence[StoredRun]) -> Iterator[model.RunFindings]:
    """Give what the analysis of each run found; results of an older numalab have none."""
    for run in runs:
        found = load_findings(run.directory)
        if found is not None:
            yield model.RunFindings(run.manifest["variant"], run.manifest["run"], found)


def _verdict(claims: Sequence[model.Claim], finished: int, planned: int) -> str:
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
            told.setdefault(claim.verdict, []).append(claim.text)
        parts = [f"{said[:1].upper()}{said[1:]}: {'; '.join(of)}" for said, of in told.items()]
        return f"{'. '.join(parts)}{missing}."
    return f"{finished} of {runs_of(planned)} finished{missing}."
