"""`numalab run`."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from numalab.campaign.carry_out import Failure
from numalab.campaign.cost_model import Costs
from numalab.campaign.local import Ready, cost_of, default_jobs, run_here
from numalab.campaign.prepare import choose_mode, prepare
from numalab.campaign.stopping import StoppingRule
from numalab.campaign.task import Setting, make_tasks
from numalab.campaign.time_budget import within_budget
from numalab.cli import options
from numalab.cli.live import live_runs
from numalab.cli.output import emit, goes_on, progress_lines, say, say_waiting
from numalab.cli.results.report import show
from numalab.errors import UserError, shown
from numalab.files import make_dir, write_text
from numalab.machine.model import PageKind
from numalab.places import project_dir
from numalab.qemu.hypervisor import EMBED, connect
from numalab.report.build.artifacts import announce, write_artifacts
from numalab.report.build.publish import publish, publish_overview
from numalab.report.build.study import gather
from numalab.report.document import StudyResults
from numalab.report.formats.json import report_document
from numalab.report.formats.junit import render_junit_suites
from numalab.report.formats.terminal import render_claim_table
from numalab.report.unfinished import finished_text, unfinished_lines
from numalab.results.layout import Results
from numalab.results.reader import load_plan
from numalab.run_dir import check_guest_path
from numalab.study.model import find_study
from numalab.study.plan import Plan, plan_study, require_measure
from numalab.units import parse_seconds, runs_of

if TYPE_CHECKING:
    from numalab.campaign.executors.cluster import Cluster, Refused


def command(
    studies: options.Studies,
    preset: options.Preset = None,
    mode: options.StudyMode = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Where the results go, instead of reports/<study>/<time>; of several studies,"
            " each in a folder of its name below it."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest results of this study.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="Guests at once; by default one on each CPU, in kvm mode with CPUs of its own.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Wall time such as 20m: run what tells most in it, cells before seeds."),
    ] = None,
    until_significant: Annotated[
        str | None,
        typer.Option(metavar="MEASURE", help="Add repetitions until this measure is decided."),
    ] = None,
    max_runs: Annotated[
        int, typer.Option(min=3, help="Runs of a variant at most, with --until-significant.")
    ] = 10,
    pages: Annotated[
        PageKind | None, typer.Option(help="What guest memory is made of, instead of the study's.")
    ] = None,
    emulator: options.Emulator = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A dask scheduler whose workers run the guests."),
    ] = None,
    connection: options.Connect = EMBED,
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Record a guest that is not as predicted.")
    ] = False,
    fail_fast: Annotated[
        bool,
        typer.Option("--fail-fast/--keep-going", help="Stop at the first run that fails, or not."),
    ] = False,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", help="Write claims and failed runs as test cases.")
    ] = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="A folder for a CI system to keep.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Run studies: build their kernels, boot every run, measure, compare, report.

    All studies are checked whole before anything is built. A run that fails keeps what it left,
    and the others go on. Ctrl-C keeps what is finished; --resume continues.

    Exits with 0 when everything was as the studies expect, with 1 when a claim did not hold, and
    otherwise with the code of the first failure (docs/reference/exit-codes.md).
    """
    began = time.monotonic()
    plans = _plans(studies, preset, pages, emulator)
    limit = None if budget is None else options.parsed(parse_seconds, budget, "--budget")
    rule = _rule(plans, until_significant, max_runs)
    ready = []
    for plan in plans:
        results = Results(_output(plan, output, several=len(plans) > 1, resume=resume))
        check_guest_path(results.path)
        make_dir(results.path)
        say(f"{plan.name}: {runs_of(len(plan.runs))}, results in {shown(results.path)}")
        with _gone_if_empty(results.path):
            ready.append(_ready(plan, results, mode, connection, allow_mismatch=allow_mismatch))
    executor = None if cluster is None else _cluster(cluster)
    places = jobs if executor is None else max(1, executor.places)
    deadline = math.inf if limit is None else began + limit
    if limit is not None:
        ready = _within(ready, deadline - time.monotonic(), places)
    with live_runs() as watch, goes_on("the same command with --resume"):
        failures = run_here(
            ready,
            places,
            watch,
            rule=rule,
            fail_fast=fail_fast,
            executor=executor,
            on_wait=say_waiting,
            deadline=deadline,
        )
    outcomes = [_report(study, failures) for study in ready]
    _show(outcomes, ready, output, as_json=as_json)
    _tell_ci(outcomes, ready, junit_file, artifacts)
    for outcome in outcomes:
        _say_finished(outcome)
    if failures:
        raise typer.Exit(failures[0].ended.exit_code)
    if not all(outcome.reports and outcome.holds for outcome in outcomes):
        raise typer.Exit(1)


def _ready(
    plan: Plan, results: Results, mode: str | None, connection: str, *, allow_mismatch: bool
) -> Ready:
    """Build what a study needs, and choose the mode of its runs."""
    with progress_lines("prepare") as tell:
        connect(connection)
        prepared = prepare(plan.kernels.values(), plan.recipe, plan.workloads.values(), tell)
        table = plan.study.machine
        choice = choose_mode(
            mode or plan.study.mode,
            prepared,
            connection,
            tell,
            words=table.cmdline,
            emulator=table.emulator,
        )
    say(f"mode {choice.mode}: {choice.reason}")
    return Ready(plan, prepared, results, Setting(choice, connection, allow_mismatch))


def _cluster(address: str) -> "Cluster":
    from numalab.campaign.executors.cluster import Cluster  # noqa: PLC0415 - an extra

    def refused(worker: "Refused") -> None:
        say(f"worker {worker.address}: refused, {worker.reason}")

    executor = Cluster(address, on_refused=refused)
    say(f"cluster {address}: {runs_of(executor.places)} at once")
    return executor


def _rule(plans: Sequence[Plan], measure: str | None, most: int) -> StoppingRule | None:
    if measure is None:
        return None
    for plan in plans:
        require_measure(plan, measure, "--until-significant")
    return StoppingRule(measure, most)


def _within(studies: Sequence[Ready], seconds: float, jobs: int | None) -> list[Ready]:
    """Leave of each study what fits into its share of a time, as its runs' costs tell."""
    found = []
    for study in studies:
        tasks = make_tasks(study.plan, study.prepared, study.results, study.setting)
        costs = Costs()
        cost = {task.run: cost_of(task, costs).seconds for task in tasks}
        share = seconds / len(studies)
        plan = within_budget(study.plan, share, cost.__getitem__, jobs or default_jobs(tasks))
        say(f"{plan.name}: {len(plan.runs)} of {runs_of(len(tasks))} fit into the budget")
        found.append(replace(study, plan=plan))
    return found


def _report(study: Ready, failures: Sequence[Failure]) -> StudyResults:
    """Write the report of a study's results, also where no run finished."""
    errors = {
        failure.ended.run: failure.ended.error
        for failure in failures
        if failure.results == study.results
    }
    outcome = gather(study.results, errors)
    publish(outcome, study.results)
    return outcome


def _say_finished(study: StudyResults) -> None:
    """Say how many runs finished and why the rest did not, where no table can push it away."""
    lines = unfinished_lines(study) or [finished_text(study)]
    say("\n".join([f"{study.study}: {lines[0]}", *lines[1:]]))


def _tell_ci(
    studies: Sequence[StudyResults],
    ready: Sequence[Ready],
    junit_file: Path | None,
    folder: Path | None,
) -> None:
    """Write what a CI system reads, where it was asked for or prepared is there."""
    if junit_file is not None:
        write_text(junit_file, render_junit_suites(studies))
    if folder is not None:
        pairs = zip(ready, studies, strict=True)
        named = {prepared.plan.name: (prepared.results, study) for prepared, study in pairs}
        write_artifacts(folder, named)
    if told := announce(studies):
        say(told.rstrip("\n"))


def _show(
    studies: Sequence[StudyResults],
    ready: Sequence[Ready],
    output: Path | None,
    *,
    as_json: bool,
) -> None:
    """Print what came out: of one study its tables, of several the claims and a page over all."""
    if len(ready) == 1:
        show(studies[0], ready[0].results, as_json=as_json)
    elif as_json:
        emit([report_document(study) for study in studies], True, "")
    else:
        pairs = [(study, prepared.results) for study, prepared in zip(studies, ready, strict=True)]
        page = (output or project_dir() / "reports") / "index.html"
        publish_overview(pairs, page)
        say(f"page: {shown(page.absolute())}")
    reports = [report for study in studies for report in study.reports]
    if not as_json and len(reports) > 1 and (table := render_claim_table(reports)) is not None:
        emit(None, False, table)


def _plans(
    studies: Sequence[str], preset: str | None, pages: PageKind | None, emulator: str | None
) -> list[Plan]:
    """Plan all studies; UserError when two of them have one name."""
    plans = [
        plan_study(find_study(study), preset, pages=pages, emulator=emulator) for study in studies
    ]
    names = [plan.name for plan in plans]
    for plan in plans:
        if names.count(plan.name) > 1:
            raise UserError("two studies have this name", file=plan.path)
    return plans


def _output(plan: Plan, output: Path | None, *, several: bool, resume: bool) -> Path:
    if output is None:
        return _folder(plan, resume=resume)
    return output / plan.name if several else output


def _folder(plan: Plan, *, resume: bool) -> Path:
    """Return the folder for new results, or that of the newest ones to go on with."""
    parent = project_dir() / "reports" / plan.name
    if not resume:
        return _new_folder(parent / f"{datetime.now():%Y%m%d-%H%M%S}")
    found = sorted(path.parent for path in parent.glob("*/plan.json"))
    mine = [path for path in found if _is_of(plan, Results(path))]
    if not mine:
        what = "results of another version or preset" if found else "no results to go on with"
        raise UserError(f"there are {what}", file=parent)
    return mine[-1]


def _is_of(plan: Plan, results: Results) -> bool:
    """Say whether results are of this plan; those of another numalab, or damaged ones, are not."""
    with suppress(UserError):
        return load_plan(results).digest == plan.digest
    return False


@contextmanager
def _gone_if_empty(path: Path) -> Iterator[None]:
    """Remove the results' folder again when the block fails before anything is in it."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.rmdir()
        raise


def _new_folder(path: Path) -> Path:
    """Make a folder that was not there; two that start in one second get two."""
    make_dir(path.parent)
    for number in count(1):
        candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with suppress(FileExistsError):
            candidate.mkdir(mode=0o700)
            return candidate
    raise AssertionError("unreachable")
