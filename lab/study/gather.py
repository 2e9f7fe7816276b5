"""From what the runs left to one report. Nothing here needs a guest, so it can be done again."""

import json
from collections.abc import Sequence

from lab.analysis import compare
from lab.cpulist import format_cpulist
from lab.errors import UserError
from lab.report import model
from lab.store import Results
from lab.study.model import Claim, Study
from lab.study.stored import Json, StoredRun, damage_explained, load_runs
from lab.study.timeline import run_timeline
from lab.topology.drawing import render_svg
from lab.topology.load import load_topology, topology_to_dict
from lab.topology.model import Topology
from lab.topology.sched_log import parse_sched_verbose


def gather(results: Results) -> model.StudyReport:
    """Read all finished runs of `results` and put together what a report shows.

    Raises UserError when there are none, when another numalab wrote them, or when they are damaged.
    """
    with damage_explained(results.path):
        return _gather(results)


def _gather(results: Results) -> model.StudyReport:
    plan, runs = load_runs(results)
    study = Study.model_validate_json(json.dumps(plan["file"]))
    infos = _infos(runs)
    first = runs[0].manifest
    topology = _topology(study, first)
    return model.StudyReport(
        study=plan["study"],
        question=study.question,
        verdict=_verdict(study, runs, len(plan["runs"])),
        reference=study.source,
        axis="kernel",
        mode=first["mode"],
        mode_reason=first["mode_reason"],
        workload=" ".join(first["workload"]["argv"]),
        created=first["started"],
        again=(f"numalab run {plan['path']} --mode {first['mode']}",),
        topology=topology,
        topology_svg=render_svg(topology),
        variants=tuple(_variant(name, runs) for name in study.variants if _of(runs, name)),
        measures=infos,
        key_measures=study.key_measures or tuple(dict.fromkeys(c.measure for c in study.claims)),
        runs=tuple(_run(run, infos) for run in runs),
        comparisons=tuple(_comparison(info, study, runs) for info in infos),
        domains=tuple(_domains(name, runs) for name in study.variants if _of(runs, name)),
        timelines=tuple(_timeline(name, runs) for name in study.variants if _of(runs, name)),
        claims=tuple(_claim(claim, runs) for claim in study.claims),
    )


def _topology(study: Study, manifest: Json) -> Topology:
    """Load the machine of the runs; UserError when its file has changed since then."""
    topology = load_topology(study.topologies[0])
    if topology_to_dict(topology) != manifest["machine"]:
        raise UserError("this topology has changed since the runs", file=study.topologies[0])
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


def _comparison(
    info: model.MeasureInfo, study: Study, runs: Sequence[StoredRun]
) -> model.Comparison:
    """Compare every variant with the first; the last one's verdict is the row's."""
    values = [
        [run.value(info.name) for run in of] for name in study.variants if (of := _of(runs, name))
    ]
    compared = [compare.compare(values[0], each, info.direction) for each in values[1:]]
    last = compared[-1] if compared else None
    return model.Comparison(
        measure=info.name,
        summaries=tuple(compare.summarise(each) for each in values),
        changes=(None, *(each.change for each in compared)),
        outcome=last.outcome if last else "not comparable",
        verdict=last.verdict if last else "only one variant has run",
    )


def _variant(name: str, runs: Sequence[StoredRun]) -> model.Variant:
    kernel = _of(runs, name)[0].manifest["kernel"]
    return model.Variant(
        name=name,
        kernel=kernel["name"],
        release=kernel["release"],
        config_hash=kernel["config_hash"],
        source_version=kernel["source_version"],
        series=tuple(f"{s['name']} ({len(s['patches'])} patches)" for s in kernel["series"]),
        compiler=kernel["compiler"],
    )


def _run(run: StoredRun, infos: Sequence[model.MeasureInfo]) -> model.Run:
    about = run.manifest
    trace, proof = about["trace"], about["proof"]
    return model.Run(
        id=about["run"],
        variant=about["variant"],
        seed=about["seed"],
        status=about["status"],
        readings=tuple(model.Reading(info.name, run.value(info.name)) for info in infos),
        provenance=model.Provenance(
            qemu=about["versions"].get("qemu", "unknown"),
            libvirt=about["versions"].get("libvirt", "unknown"),
            host="{processor}, {cpus} CPUs, {memory_mib} MiB, Linux {kernel}".format(
                **about["host"]
            ),
            image=about["image"]["name"],
            image_digest=about["image"]["digest"],
            placement=proof["note"] or "one host CPU for each vCPU",
            events=trace["events"],
            lost_events=trace["lost"],
            proof=(*map(_thread, proof["threads"]), *map(_memory, proof["memory"])),
        ),
        seconds=about["seconds"],
    )


def _thread(thread: Json) -> model.Proof:
    asked, found = (f"host CPU {format_cpulist(thread[key])}" for key in ("planned", "allowed"))
    return model.Proof(thread["role"], asked, found)


def _memory(memory: Json) -> model.Proof:
    size = memory["page_kib"]
    pages = (
        f"{count} pages of {size} KiB on host node {node}"
        for node, count in memory["pages"].items()
    )
    found = ", ".join(pages) or "no page touched"
    return model.Proof(f"memory of node {memory['node']}", "any host node", found)


def _domains(name: str, runs: Sequence[StoredRun]) -> model.SchedDomains:
    directory = _of(runs, name)[0].directory
    text = directory.dmesg.read_text(encoding="utf-8", errors="replace")
    log = parse_sched_verbose(text)
    return model.SchedDomains(name, log.cpus, log.errors)


def _timeline(name: str, runs: Sequence[StoredRun]) -> model.Timeline:
    """Draw the first run of a variant; the table says how the others compare."""
    run = _of(runs, name)[0]
    workload = run.manifest["workload"]
    return run_timeline(run.directory, name, run.manifest["run"], workload["tasks"])


def _claim(claim: Claim, runs: Sequence[StoredRun]) -> model.Claim:
    found = [run.measures.get(claim.measure, {}) for run in _of(runs, claim.variant)]
    values = [each.get("value") for each in found]
    known = [value for value in values if value is not None]
    unit = next((each["unit"] for each in found if each), "")
    measured = f"{min(known):.4g} to {max(known):.4g} {unit}" if known else "not measured"
    return model.Claim(
        text=claim.text,
        expected=" and ".join(f"{sign} {bound:g} {unit}" for sign, bound in claim.bounds),
        measured=f"{measured} ({_runs_of(len(values))})",
        holds=bool(values) and all(claim.holds(value) for value in values),
    )


def _verdict(study: Study, runs: Sequence[StoredRun], planned: int) -> str:
    """Say in one sentence whether what the study expects was seen."""
    checked = [_claim(claim, runs) for claim in study.claims]
    broken = [claim.text for claim in checked if not claim.holds]
    lacking = planned - len(runs)
    missing = f"; {_runs_of(lacking)} gave no result" if lacking > 0 else ""
    if not checked:
        return f"{len(runs)} of {_runs_of(planned)} finished{missing}."
    if broken:
        return f"Not seen in every run: {'; '.join(broken)}{missing}."
    return (
        f"Seen in all {_runs_of(len(runs))}: {'; '.join(claim.text for claim in checked)}{missing}."
    )


def _runs_of(number: int) -> str:
    return "1 run" if number == 1 else f"{number} runs"
