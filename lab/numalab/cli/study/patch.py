"""`numalab patch`."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from numalab.cli import completion, options
from numalab.cli.live import live_runs
from numalab.cli.output import ModeName, continued_by, emit, progress_lines, say, say_waiting
from numalab.errors import HostError, LabError, UserError, shown
from numalab.files import write_text
from numalab.kernel.patched_kernel import patched_kernel
from numalab.patch.ci import patch_problems, render_patch_junit
from numalab.patch.judge import PatchListener, Request, judge, prepare
from numalab.patch.reply import render_reply
from numalab.patch.standard import LOADS, MACHINES, SCREENED, Experiment
from numalab.patch.text import render_verdict
from numalab.patch.verdict import PatchVerdict
from numalab.plugins import require_plugins
from numalab.qemu.hypervisor import EMBED, connect
from numalab.report.formats.annotations import render_code_quality, render_github
from numalab.units import parse_seconds

Annotations = Literal["github", "gitlab"]
_CODE_QUALITY = Path("gl-code-quality-report.json")
_BUDGET = "12m"
_MODE: ModeName = "icount"


def command(
    series: Annotated[
        list[str],
        typer.Argument(
            help="Patches, mailboxes, folders, ranges FROM..TO or series, applied in order."
        ),
    ],
    base: Annotated[
        str | None,
        typer.Option(
            help="Baseline kernel; default: the newest that the patch applies to.",
            autocompletion=completion.kernels,
        ),
    ] = None,
    budget: Annotated[
        str, typer.Option(help="Wall time of experiment and hunt, such as 20m.")
    ] = _BUDGET,
    seeds: Annotated[
        int, typer.Option(min=3, max=1000, help="First runs of each kernel in each cell.")
    ] = SCREENED,
    topologies: Annotated[
        str | None,
        typer.Option(help=f"Topologies, with commas; default: {','.join(MACHINES)}."),
    ] = None,
    workloads: Annotated[
        str | None, typer.Option(help=f"Workloads, with commas; default: {','.join(LOADS)}.")
    ] = None,
    mode: Annotated[
        ModeName, typer.Option(help="Emulation mode; auto selects kvm if it works, else icount.")
    ] = _MODE,
    jobs: options.Guests = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the results (default: reports/patch-SERIES/DIGEST)."),
    ] = None,
    reply: Annotated[
        Path | None, typer.Option(help="Write a plain-text mail for the list to this file.")
    ] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML to this file.")] = None,
    annotations: Annotated[
        Annotations | None,
        typer.Option(
            help="Show regressions, and nothing else, beside the changed lines: github prints"
            f" workflow commands, gitlab writes {_CODE_QUALITY}."
        ),
    ] = None,
    connection: options.Connect = EMBED,
    as_json: options.Json = False,
) -> None:
    """Judge a patch: what improves, what regresses, what does not change.

    Applies the patch, builds both kernels, runs standard loads on both, adds runs where a decision
    is close, and hunts for a regression. After Ctrl-C, the same command continues.

    Exits with 1 for a regression, with 0 for any other verdict.
    """
    require_plugins()
    options.file_to_write(reply, "--reply")
    options.file_to_write(junit, "--junit")
    options.file_to_write(_CODE_QUALITY if annotations == "gitlab" else None, "--annotations")
    options.folder_to_write(output, "--output")
    seconds = options.parsed(parse_seconds, budget, "--budget")
    machines, loads = _names(topologies, "--topologies"), _names(workloads, "--workloads")
    with progress_lines("apply") as tell:
        kernel = patched_kernel(series, base, tell)
    if kernel.note:
        say(f"{kernel.patched.name}: {kernel.note}")
    experiment = Experiment(
        kernel.series.name,
        kernel.base,
        kernel.patched,
        machines or MACHINES,
        loads or LOADS,
        seeds,
    )
    request = Request(
        kernel,
        experiment,
        mode,
        seconds,
        command=_command(series, base, budget, seeds, topologies, workloads, mode),
        jobs=jobs,
        connection=connection,
        output=output,
    )
    connect(connection)
    with (
        continued_by("the same command"),
        progress_lines("prepare") as tell,
        live_runs() as watch,
    ):
        listener = PatchListener(say, tell, watch, say_waiting)
        study = prepare(request, listener)
        say(f"{kernel.patched.name}: results in {shown(study.results.path)}")
        judged = judge(request, study, listener)
    if judged.results.html.exists():
        say(f"page: {shown(judged.results.html.absolute())}")
    emit(judged.verdict, as_json, render_verdict(judged.verdict).rstrip("\n"))
    failed = _write(judged.verdict, reply, junit, annotations)
    if judged.verdict.exit_code:
        for error in failed:
            say(str(error))
        raise typer.Exit(judged.verdict.exit_code)
    if failed:
        raise HostError("; ".join(map(str, failed)))


def _command(
    series: Sequence[str],
    base: str | None,
    budget: str,
    seeds: int,
    topologies: str | None,
    workloads: str | None,
    mode: str,
) -> str:
    """Return the command that repeats the experiment, without options that have their default."""
    options = {
        "--base": base,
        "--budget": None if budget == _BUDGET else budget,
        "--seeds": None if seeds == SCREENED else str(seeds),
        "--topologies": topologies,
        "--workloads": workloads,
        "--mode": None if mode == _MODE else mode,
    }
    words = [word for name, value in options.items() if value for word in (name, value)]
    return shlex.join(["numalab", "patch", *series, *words])


def _write(
    verdict: PatchVerdict,
    reply: Path | None,
    junit: Path | None,
    annotations: Annotations | None,
) -> list[LabError]:
    """Write what can be written, and return what could not."""
    problems = patch_problems(verdict)
    if annotations == "github" and problems:
        say(render_github(problems).rstrip("\n"))
    failed = list[LabError]()
    for path, text in (
        (reply, render_reply(verdict)),
        (junit, render_patch_junit(verdict)),
        (_CODE_QUALITY if annotations == "gitlab" else None, render_code_quality(problems)),
    ):
        try:
            if path is not None:
                write_text(path, text)
        except LabError as error:
            failed.append(error)
    return failed


def _names(text: str | None, option: str) -> tuple[str, ...]:
    """Return the names between commas. Raises UserError for an option without a name."""
    names = tuple(filter(None, map(str.strip, (text or "").split(","))))
    if text is not None and not names:
        raise UserError("is empty", key=option)
    return names
