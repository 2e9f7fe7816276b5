"""Judges a patch: builds both kernels, runs the experiment, hunts, and gives the verdict."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.artifact.digest import digest_of
from numalab.campaign.build import Builds, BuiltStudy, Setting, build, choose_plan_mode
from numalab.campaign.execute import OnEvent, Schedule
from numalab.campaign.resume import OnWait
from numalab.files import make_dir, write_text
from numalab.hunt.boot_case import HuntBench, driver
from numalab.hunt.workers import Store, host_jobs, workers
from numalab.kernel.patched_kernel import PatchedKernel
from numalab.patch.experiment import Conductor, ExperimentOutcome
from numalab.patch.hunting import HuntOutcome, PatchHunt
from numalab.patch.standard import Experiment, plan_experiment
from numalab.patch.text import render_verdict
from numalab.patch.verdict import PatchVerdict, changes_of, lost_of, unchanged_of, word_of
from numalab.places import project_dir
from numalab.progress import Progress
from numalab.qemu.hypervisor import EMBED
from numalab.results.layout import Results
from numalab.results.plan import texts
from numalab.study.plan import Plan

_SCREEN, _DECIDE = 0.45, 0.7  # of the budget, from its start; the hunt takes the rest
VERDICT_FILE = "verdict.txt"


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
    kernels = request.experiment.kernels.values()
    builds = build(kernels, plan.recipe, plan.workloads.values(), listener.progress)
    choice = choose_plan_mode(plan, request.mode, builds, request.connection, listener.progress)
    # A patch of topology.c may build other sched domains than predicted.
    setting = Setting(choice, request.connection, allow_mismatch=True)
    emulator = choice.emulator.digest if choice.emulator else ""
    digests = [built.digest for built in builds.kernels.values()]
    parts = [plan.digest, *digests, builds.image.digest, choice.mode, emulator]
    folder = request.output or project_dir() / "reports" / name / digest_of(parts)[:8]
    make_dir(folder)
    return BuiltStudy(plan, builds, Results(folder), setting)


def judge(request: Request, study: BuiltStudy, listener: PatchListener) -> Judged:
    """Run experiment and hunt, and return the verdict. Raises what `execute` raises."""
    began = time.monotonic()
    conductor = Conductor(
        study,
        listener.watch,
        listener.tell,
        began + _SCREEN * request.seconds,
        began + _DECIDE * request.seconds,
        request.jobs,
        listener.on_wait,
    )
    outcome = conductor.run()
    hunted = HuntOutcome()
    if lost_of(outcome) is None:
        hunted = _hunt(request, study, listener, began + request.seconds)
    verdict = _verdict(request, study, outcome, hunted)
    verdict = replace(verdict, seconds=time.monotonic() - began)
    write_text(study.results.path / VERDICT_FILE, render_verdict(verdict))
    return Judged(verdict, study.results)


def _hunt(
    request: Request, study: BuiltStudy, listener: PatchListener, deadline: float
) -> HuntOutcome:
    folder = study.results.path / "hunt"
    make_dir(folder)
    benches = [_bench(study, spec.name) for spec in request.experiment.kernels.values()]
    baseline, patched = benches
    with workers(Store(folder), request.jobs or host_jobs(), lambda *_: None) as crew:
        return PatchHunt(patched, baseline, crew, folder, listener.tell).run(deadline)


def _bench(study: BuiltStudy, kernel: str) -> HuntBench:
    builds: Builds = replace(study.builds, files=driver())
    setting, plan = study.setting, study.plan
    return HuntBench(plan.kernels[kernel], builds, setting.choice, setting.connection)


def _verdict(
    request: Request, study: BuiltStudy, outcome: ExperimentOutcome, hunted: HuntOutcome
) -> PatchVerdict:
    plan: Plan = study.plan
    changes, lost = changes_of(outcome), lost_of(outcome)
    unchanged = unchanged_of(outcome, plan.cells, changes)
    built = study.builds.kernels[request.experiment.baseline.name]
    return PatchVerdict(
        name=request.kernel.series.name,
        subjects=tuple(patch.subject for patch in request.kernel.series.patches),
        baseline=request.experiment.baseline.name,
        patched=request.experiment.patched.name,
        release=built.release,
        mode=study.setting.choice.mode,
        word=word_of(
            changes, lost, hunted, judged_cells=max((u.cells for u in unchanged), default=0)
        ),
        changes=changes,
        unchanged=unchanged,
        lost=lost,
        hunt=hunted,
        cells=len(plan.cells),
        runs=len(outcome.runs),
        time_over=outcome.time_over,
        remarks=texts(plan.remarks),
    )
