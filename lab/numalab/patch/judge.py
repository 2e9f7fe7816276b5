"""Judges a patch: builds both kernels, runs the experiment, hunts, and gives the verdict."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from numalab.artifact.digest import digest_of
from numalab.campaign.build import BuiltStudy, Setting, build_plan, choose_plan_mode
from numalab.campaign.execute import OnEvent, Schedule
from numalab.campaign.resume import OnWait, held_results, missing_tasks
from numalab.files import make_dir, write_text
from numalab.hunt.boot_case import HuntBench, driver
from numalab.hunt.case import Case
from numalab.hunt.direction.direction import HuntDirection
from numalab.hunt.direction.plan import bias_on
from numalab.hunt.finding import BootResult
from numalab.hunt.workers import Store, host_jobs, workers
from numalab.kernel.patched_kernel import PatchedKernel, patch_changes
from numalab.patch.equal_code import word_of_equal_code
from numalab.patch.experiment import Conductor, ExperimentOutcome
from numalab.patch.hunting import HuntOutcome, PatchHunt
from numalab.patch.remarks import cell_remarks, losses
from numalab.patch.screening import SCREEN
from numalab.patch.standard import (
    Experiment,
    own_settings,
    plan_experiment,
)
from numalab.patch.text import render_verdict
from numalab.patch.verdict import (
    PatchVerdict,
    changes_of,
    headlines_of_one,
    headlines_redefined,
    lost_of,
    smallest_cell,
    standing_out,
    unchanged_of,
    undecided_of,
    untested_of,
    word_of,
)
from numalab.patch.warned import reports_of
from numalab.places import project_dir
from numalab.progress import Progress
from numalab.qemu.hypervisor import EMBED
from numalab.reach.merge import merged
from numalab.reach.model import CodeChange, PatchReach, Reached, RunReach
from numalab.reach.prepare import prepare_reach
from numalab.report.build.publish import publish
from numalab.report.build.study import gather
from numalab.results.layout import Results
from numalab.results.plan import texts
from numalab.results.reader import load_reaches
from numalab.source.changes import FileChange
from numalab.workload.workload_files import shaker

_DECIDE = 0.75  # of the budget, from its start; the hunt takes the rest


@dataclass(frozen=True)
class Request:
    """A patch to judge: its kernels, the experiment, and `seconds` for experiment and hunt.

    `command` is what the user typed.
    """

    kernel: PatchedKernel
    experiment: Experiment
    mode: str
    seconds: float
    command: str
    jobs: int | None = None
    emulator: str | None = None
    connection: str = EMBED
    output: Path | None = None


@dataclass(frozen=True)
class PatchListener:
    """Receives progress: lines, the progress of builds, and the events of runs."""

    tell: Callable[[str], None]
    progress: Progress
    watch: Callable[[Schedule], OnEvent]
    on_wait: OnWait


@dataclass(frozen=True)
class Judged:
    """A verdict and the folder of its results."""

    verdict: PatchVerdict
    results: Results


def prepare(request: Request, listener: PatchListener) -> BuiltStudy:
    """Build everything that the experiment needs, and choose the folder of the results.

    Equal inputs give the same folder, so the same command continues. Raises what `build` raises.
    """
    name = f"patch-{request.kernel.series.name}"
    plan = plan_experiment(request.experiment, Path(f"{name}.toml"))
    builds = build_plan(plan, listener.progress)
    choice = choose_plan_mode(plan, request.mode, builds, request.connection, listener.progress)
    reach = None
    if choice.mode != "kvm":
        kernel, built = request.kernel, builds.kernels
        reach = prepare_reach(
            kernel.series.name,
            patch_changes(kernel, listener.progress),
            (kernel.base, built[kernel.base.name]),
            (kernel.patched, built[kernel.patched.name]),
            listener.progress,
        )
    # A patch of topology.c may build other sched domains than predicted.
    setting = Setting(choice, request.connection, allow_mismatch=True, reach=reach)
    emulator = choice.emulator.digest if choice.emulator else ""
    digests = [builds.kernels[kernel].digest for kernel in request.experiment.kernels]
    parts = [plan.digest, *digests, builds.image.digest, choice.mode, emulator]
    folder = request.output or project_dir() / "reports" / name / digest_of(parts)[:8]
    make_dir(folder)
    return BuiltStudy(plan, builds, Results(folder), setting)


def judge(request: Request, study: BuiltStudy, listener: PatchListener) -> Judged:
    """Run experiment and hunt, and return the verdict. Raises what `execute` raises."""
    began = time.monotonic()
    planned = study.setting.reach
    if planned is not None and planned.code is CodeChange.NONE:
        changes = patch_changes(request.kernel)
        word, remarks = word_of_equal_code(planned, request.kernel.base, changes)
        verdict = replace(_verdict(request, study), word=word, remarks=remarks)
        with held_results([(study.plan, study.results)], listener.on_wait):
            missing_tasks(study)  # refuses runs of another kernel
            return _written(replace(verdict, seconds=time.monotonic() - began), study)
    conductor = Conductor(
        study,
        listener.watch,
        listener.tell,
        began + SCREEN * request.seconds,
        began + _DECIDE * request.seconds,
        began + request.seconds,
        request.jobs,
        listener.on_wait,
    )
    outcome = conductor.run()

    def conclude(hunted: HuntOutcome, counted: Sequence[RunReach]) -> Judged:
        reach = _reach(study, outcome, counted)
        verdict = _judged(_verdict(request, study, reach), study, outcome, hunted)
        return _written(replace(verdict, seconds=time.monotonic() - began), study)

    if lost_of(outcome) is not None:
        return conclude(HuntOutcome(), ())
    try:
        return conclude(*_hunt(request, study, listener, began + request.seconds))
    except Exception as error:
        conclude(HuntOutcome(failed=f"{type(error).__name__}: {error}"), ())
        raise


def _written(verdict: PatchVerdict, study: BuiltStudy) -> Judged:
    write_text(study.results.verdict, render_verdict(verdict))
    if study.results.finished():
        outcome = gather(study.results)
        publish(replace(outcome, commands=(verdict.command,)), study.results)
    return Judged(verdict, study.results)


def _hunt(
    request: Request, study: BuiltStudy, listener: PatchListener, deadline: float
) -> tuple[HuntOutcome, list[RunReach]]:
    """Hunt until the deadline; also return the reach of each boot."""
    folder = study.results.path / "hunt"
    make_dir(folder)
    counted: list[RunReach] = []

    def note(_: Case, result: BootResult) -> None:
        if result.reach is not None:
            counted.append(result.reach)

    names = (request.kernel.base.name, request.kernel.patched.name)
    baseline, patched = (_bench(study, name, driver()) for name in names)
    shaken = driver(shaker())
    before, after = (_bench(study, name, shaken) for name in names)
    direction = None
    if patched.reach is not None:
        changes = patch_changes(request.kernel, listener.progress)
        bias = bias_on(request.kernel.base, changes, listener.progress)
        direction = partial(HuntDirection, patched.reach, bias)
    with workers(Store(folder), request.jobs or host_jobs(), note) as crew:
        shaken_benches = (before, after)
        hunt = PatchHunt(patched, baseline, shaken_benches, crew, folder, listener.tell, direction)
        outcome = hunt.run(deadline)
    if counted:
        reach = merged(("hunt", boot) for boot in counted)
        write_text(study.results.hunt_reach, reach.model_dump_json(indent=1) + "\n")
    return outcome, counted


def _bench(study: BuiltStudy, kernel: str, files: dict[str, dict[str, bytes]]) -> HuntBench:
    setting, builds = study.setting, study.builds
    tables = setting.reach.tables if setting.reach is not None else {}
    return HuntBench(
        study.plan.kernels[kernel],
        replace(builds, files=files),
        setting.choice,
        setting.connection,
        reach=tables.get(builds.kernels[kernel].digest),
    )


def _verdict(request: Request, study: BuiltStudy, reach: PatchReach | None = None) -> PatchVerdict:
    """Return what is known of a patch by its reach alone."""
    kernel = request.kernel
    built, changes = study.builds.kernels[kernel.base.name], patch_changes(kernel)
    own = own_settings(changes, study.plan.workloads.values())
    return PatchVerdict(
        name=kernel.series.name,
        subjects=tuple(patch.subject for patch in kernel.series.patches),
        baseline=kernel.base.name,
        patched=kernel.patched.name,
        release=built.release,
        mode=study.setting.choice.mode,
        word="undecided",
        cells=len(study.plan.cells),
        remarks=(*own, *texts(study.plan.remarks)),
        command=request.command,
        versions=_versions(study),
        place=_place(changes, reach),
        reach=reach,
    )


def _versions(study: BuiltStudy) -> tuple[str, ...]:
    emulator = study.setting.choice.emulator
    qemu = f"QEMU: {emulator.name}." if emulator is not None else "QEMU: the host's."
    image = study.builds.image
    return (f"numalab {version('numalab')}.", qemu, f"Image: {image.name} {image.digest[:12]}.")


def _place(changes: Sequence[FileChange], reach: PatchReach | None) -> tuple[str, int]:
    """Return file and line of the first change that ran, else of the first of C code, or of any.

    A line in the patched file; for removed lines, the one that follows.
    """
    lines = reach.changed if reach is not None else ()
    ran = {(line.kind, line.file, line.number) for line in lines if line.executions}
    ordered = sorted(changes, key=lambda change: not (change.new or "").endswith((".c", ".h")))
    every = [(file, change) for file in ordered for change in file.changes]
    for file, change in every:
        for line in change.added:
            if file.new is not None and ("added", file.new, line.number) in ran:
                return file.new, line.number
        if any(("removed", file.old, line.number) in ran for line in change.removed):
            return file.new or file.old or "", change.new_start
    for file, change in every[:1]:
        return file.new or file.old or "", change.new_start
    return "", 1


def _judged(
    verdict: PatchVerdict,
    study: BuiltStudy,
    outcome: ExperimentOutcome,
    hunted: HuntOutcome,
) -> PatchVerdict:
    """Return the verdict on what ran."""
    changes, lost = changes_of(outcome, verdict.mode), lost_of(outcome)
    unchanged = unchanged_of(outcome, study.plan.cells, changes)
    ran = {run.cell for run in outcome.runs}
    reachable = len(study.plan.cells) - len(outcome.unreached)
    one_sided = headlines_of_one(outcome, study.plan.cells)
    redefined = headlines_redefined(outcome, study.plan.cells)
    left_out = {row.cell for row in one_sided} | {cell for cell, _ in redefined}
    compared = len(outcome.compared(study.plan.cells)) - len(left_out)
    failed = outcome.failed(study.plan.cells)
    undecided, reports = undecided_of(outcome), reports_of(outcome)
    why = () if lost is not None else cell_remarks(outcome, study.plan.cells)
    remarks = [*losses(outcome, lost, hunted), *why, *verdict.remarks]
    reach = verdict.reach
    uncounted = reach is not None and reach.verdict is Reached.NOT and lost is None
    nothing_ran = uncounted and hunted.case is None and not (reports or hunted.may_fail)
    if nothing_ran:
        changes = ()  # what did not run did not change anything
    elif uncounted:  # counts of optimized code have limits
        how = "the kernel logs differ" if reports else "the hunt lost guests of the patched kernel"
        how = "the hunt confirmed a regression" if hunted.case else how
        remarks.insert(0, f"no changed line was counted, but {how}")
    word = word_of(
        changes,
        lost,
        hunted,
        share=compared / max(1, reachable),
        reports=reports,
        undecided=undecided,
        stands_out=bool(standing_out(outcome, study.plan.cells)),
        runs_failed=bool(failed) and not outcome.short(study.plan.cells),
        only_hunted=bool(ran) and not failed and ran <= set(outcome.unreached),
        nothing_ran=nothing_ran,
        tried=bool(outcome.unreached),
    )
    if hunted.failed:
        remarks.insert(0, f"the hunt ended early: {hunted.failed}")
    machines = study.plan.topologies
    cpus = {name: machine.cpu_count for name, machine in machines.items()}
    arguments = dict(zip(machines, study.plan.study.topologies, strict=True))
    return replace(
        verdict,
        word=word,
        changes=changes,
        cell_case=smallest_cell(changes, cpus, arguments, verdict.command),
        unchanged=unchanged,
        lost=lost,
        reports=reports,
        hunt=hunted,
        cells_run=len(ran),
        compared=compared,
        runs=len(outcome.runs),
        time_over=outcome.time_over,
        undecided=undecided,
        untested=untested_of(outcome, study.plan.cells),
        one_sided=tuple(f"{row.name} in {row.cell}" for row in one_sided),
        redefined=tuple(f"{name} in {cell}" for cell, name in redefined),
        remarks=tuple(remarks),
    )


def _reach(
    study: BuiltStudy, outcome: ExperimentOutcome, hunted: Sequence[RunReach]
) -> PatchReach | None:
    """Return which changed lines ran; None if nothing counted."""
    if study.setting.reach is None:
        return None
    runs = [(str(cell), reach) for cell, reach in load_reaches(outcome.counted)]
    every = [*runs, *(("hunt", reach) for reach in hunted)]
    return merged(every) if every else None
