"""`numalab run`."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from numalab.campaign.build import BuiltStudy, build_study
from numalab.campaign.execute import Failure, execute
from numalab.campaign.executors.cluster import check_address
from numalab.campaign.executors.processes import EXECUTORS, ExecutorRequest
from numalab.campaign.resume import new_results, newest_results, path_in_project
from numalab.campaign.run_task import run_task
from numalab.campaign.schedule import within_seconds
from numalab.campaign.stopping import StoppingRule
from numalab.cli import options
from numalab.cli.live import live_runs
from numalab.cli.output import continued_by, emit, progress_lines, say, say_waiting
from numalab.cli.results.report import show
from numalab.errors import LabError, UserError, shown
from numalab.files import make_dir, write_text
from numalab.machine.model import PageKind
from numalab.places import project_dir
from numalab.qemu.hypervisor import EMBED, connect
from numalab.report.build.artifacts import (
    announce,
    check_artifacts,
    write_artifacts,
    write_failure,
)
from numalab.report.build.publish import publish, publish_overview
from numalab.report.build.study import gather
from numalab.report.document import StudyResults
from numalab.report.formats.json import report_document
from numalab.report.formats.junit import render_junit_suites
from numalab.report.formats.terminal import render_claim_table
from numalab.report.unfinished import finished_text, unfinished_lines
from numalab.results.layout import Results
from numalab.run_dir import check_guest_path
from numalab.study.model import find_study
from numalab.study.plan import Plan, plan_study, require_measure
from numalab.units import parse_seconds, runs_of


def command(
    studies: options.Studies,
    preset: options.Preset = None,
    mode: options.StudyMode = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results (default: reports/STUDY/TIME); with several studies,"
            " each has a folder below it."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the newest results of the study.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="Number of guests at once; default: one for each CPU, in mode kvm on own CPUs.",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(help="Wall time such as 20m; cells are covered before more seeds."),
    ] = None,
    until_significant: Annotated[
        str | None,
        typer.Option(metavar="MEASURE", help="Add seeds until this measure is significant."),
    ] = None,
    max_runs: Annotated[
        int, typer.Option(min=3, help="Maximum runs of a variant with --until-significant.")
    ] = 10,
    pages: Annotated[
        PageKind | None, typer.Option(help="Override the backing of guest memory.")
    ] = None,
    emulator: options.Emulator = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Same as --executor cluster=ADDRESS."),
    ] = None,
    executor_name: Annotated[
        str,
        typer.Option(
            "--executor",
            metavar="NAME[=TEXT]",
            help="Executor of runs: processes (this host), cluster=ADDRESS, or a plug-in's.",
        ),
    ] = "processes",
    connection: options.Connect = EMBED,
    allow_mismatch: Annotated[
        bool,
        typer.Option("--allow-mismatch", help="Record a guest that differs from its prediction."),
    ] = False,
    reach: options.Reach = None,
    cold: options.Cold = False,
    fail_fast: Annotated[
        bool,
        typer.Option("--fail-fast/--keep-going", help="Stop at the first run that fails."),
    ] = False,
    junit_file: Annotated[
        Path | None, typer.Option("--junit", help="Write runs and claims to a JUnit file.")
    ] = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="Write reports for a CI system to this folder.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Run studies: build their kernels, boot every run, measure, compare, report.

    All studies are checked before the first build. A run that fails keeps its files, and the
    other runs continue. Ctrl-C keeps the finished runs; --resume continues.

    Exits with 0 if all claims hold, with 1 if a claim fails or has no run, and with the code of
    the first run that fails.
    """
    began = time.monotonic()
    executor_name, address = _executor(cluster, executor_name)
    make_executor = EXECUTORS.find(executor_name)
    options.file_to_write(junit_file, "--junit")
    options.folder_to_write(artifacts, "--artifacts")
    plans = _plans(studies, preset, pages, emulator)
    limit = None if budget is None else options.parsed(parse_seconds, budget, "--budget")
    rule = _rule(plans, until_significant, max_runs)
    built, said = [], ""
    for plan in plans:
        with _told_to_ci([plan], junit_file, artifacts):
            results = _results(plan, output, several=len(plans) > 1, resume=resume)
        if artifacts is not None:
            with _gone_if_empty(results.path):
                check_artifacts(artifacts, [plan.name for plan in plans], results)
        say(f"{plan.name}: {runs_of(len(plan.runs))}, results in {shown(results.path)}")
        with (
            _told_to_ci([plan], junit_file, artifacts),
            _gone_if_empty(results.path),
            progress_lines("prepare") as on_progress,
        ):
            connect(connection)
            study = build_study(
                plan,
                results,
                mode or plan.study.mode,
                connection=connection,
                allow_mismatch=allow_mismatch,
                reach=reach,
                cold=cold,
                on_progress=on_progress,
            )
        if (
            mode_line := f"mode {study.setting.choice.mode}: {study.setting.choice.reason}"
        ) != said:
            say(mode_line)
            said = mode_line
        built.append(study)
    deadline = math.inf if limit is None else began + limit
    with ExitStack() as stack:
        stack.enter_context(_told_to_ci(plans, junit_file, artifacts))
        for study in built:
            stack.enter_context(_gone_if_empty(study.results.path))
        executor = make_executor(ExecutorRequest(address, say, run_task))
        places = jobs if executor is None else max(1, getattr(executor, "places", 1))
        if limit is not None:
            share = (deadline - time.monotonic()) / len(built)
            built = [_within(study, share, places) for study in built]
        on_schedule = stack.enter_context(live_runs())
        stack.enter_context(continued_by("the same command with --resume"))
        failures = execute(
            built,
            places,
            on_schedule,
            rule=rule,
            fail_fast=fail_fast,
            executor=executor,
            on_wait=say_waiting,
            deadline=deadline,
        )
    outcomes = [_report(study, failures) for study in built]
    _show(outcomes, built, output, as_json=as_json)
    _write_for_ci(outcomes, built, junit_file, artifacts)
    for outcome in outcomes:
        _say_finished(outcome)
    if failures:
        raise typer.Exit(failures[0].ended.exit_code)
    if not all(outcome.reports and outcome.holds for outcome in outcomes):
        raise typer.Exit(1)


def _executor(cluster: str | None, executor: str) -> tuple[str, str]:
    """Return the name and the text of --cluster or --executor. Raises UserError."""
    if cluster is not None:
        check_address(cluster, "--cluster")
        return "cluster", cluster
    name, _, text = executor.partition("=")
    if name == "cluster":
        check_address(text)
    return name, text


def _rule(plans: Sequence[Plan], measure: str | None, most: int) -> StoppingRule | None:
    if measure is None:
        return None
    for plan in plans:
        require_measure(plan, measure, "--until-significant")
    return StoppingRule(measure, most)


def _within(study: BuiltStudy, seconds: float, jobs: int | None) -> BuiltStudy:
    """Leave out the runs of a study that do not fit into a time."""
    fitting = within_seconds(study, seconds, jobs)
    planned = len(study.plan.runs)
    runs = planned - len(fitting.left_out)
    say(f"{study.plan.name}: {runs} of {runs_of(planned)} are done or fit into the budget")
    return fitting


def _report(study: BuiltStudy, failures: Sequence[Failure]) -> StudyResults:
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


def _write_for_ci(
    studies: Sequence[StudyResults],
    ready: Sequence[BuiltStudy],
    junit_file: Path | None,
    folder: Path | None,
) -> None:
    """Write what a CI system reads, where it was asked for or prepared is there."""
    if junit_file is not None:
        write_text(junit_file, render_junit_suites(studies))
    if folder is not None:
        pairs = zip(ready, studies, strict=True)
        named = {study.plan.name: (study.results, outcome) for study, outcome in pairs}
        write_artifacts(folder, named)
    if problems := announce(studies):
        say(problems.rstrip("\n"))


def _show(
    studies: Sequence[StudyResults],
    ready: Sequence[BuiltStudy],
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
        pairs = [(study, own.results) for study, own in zip(studies, ready, strict=True)]
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


def _results(plan: Plan, output: Path | None, *, several: bool, resume: bool) -> Results:
    """Return where the results of a plan go, with its folder made."""
    if output is not None:
        if resume and not output.is_dir():
            raise UserError("there are no results to go on with", file=output, key="--output")
        results = Results(output / plan.name if several else output)
    else:
        results = newest_results(plan) if resume else new_results(plan)
    check_guest_path(results.path)
    make_dir(results.path)
    return results


@contextmanager
def _told_to_ci(
    plans: Sequence[Plan], junit_file: Path | None, artifacts: Path | None
) -> Iterator[None]:
    """Write what a CI system reads when an error ends the studies."""
    try:
        yield
    except LabError as error:
        names = ", ".join(plan.name for plan in plans)
        path = path_in_project(plans[0].path) if len(plans) == 1 else ""
        write_failure(names, path, error, junit_file, artifacts)
        raise


@contextmanager
def _gone_if_empty(path: Path) -> Iterator[None]:
    """Remove the results' folder again when the block fails before anything is in it."""
    try:
        yield
    except BaseException:
        with suppress(OSError):
            path.rmdir()
        raise
