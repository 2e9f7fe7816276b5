"""`numalab run`."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from lab.cli.output import ModeName, progress_lines, run_progress, say
from lab.cli.report import show
from lab.errors import UserError
from lab.machine.hypervisor import EMBED, connect
from lab.store import Results, make_dir, project_dir
from lab.study.execute import Setting, execute
from lab.study.gather import gather
from lab.study.model import find_study
from lab.study.plan import Plan, plan_study
from lab.study.prepare import choose_mode, prepare
from lab.study.publish import publish


def command(
    study: Annotated[str, typer.Argument(help="A study: its name in studies/, or a file.")],
    mode: Annotated[ModeName | None, typer.Option(help="Instead of the study's own.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Where the results go, instead of reports/<study>/<time>.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest results of this study.")
    ] = False,
    connection: Annotated[str, typer.Option("--connect", help="The libvirt connection.")] = EMBED,
    allow_mismatch: Annotated[
        bool, typer.Option("--allow-mismatch", help="Record a guest that is not as predicted.")
    ] = False,
    fail_fast: Annotated[
        bool, typer.Option("--fail-fast", help="Stop at the first run that fails.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run a study: build its kernels, boot every run, measure, compare, report.

    The whole study is checked before anything is built. A run that fails keeps what it left, and
    the others go on. Ctrl-C keeps what is finished; --resume continues.

    Exits with 0 when every claim of the study held, with 1 when one did not, and otherwise with
    the code of the first failure (docs/errors.md).
    """
    plan = plan_study(find_study(study))
    results = Results(output or _folder(plan, resume=resume))
    make_dir(results.path)
    say(f"{plan.name}: {len(plan.runs)} runs, results in {results.path}")
    with _gone_if_empty(results.path), progress_lines("prepare") as tell:
        connect(connection)
        prepared = prepare(plan.kernels.values(), plan.recipe, tell)
        choice = choose_mode(mode or plan.study.mode, prepared, connection, tell)
    say(f"mode {choice.mode}: {choice.reason}")
    setting = Setting(choice, connection, allow_mismatch, fail_fast)
    with run_progress(len(plan.runs)) as tell_run:
        failures = execute(plan, prepared, results, setting, tell_run)
    if not results.finished():
        raise failures[0].error
    report = gather(results)
    publish(report, results)
    show(report, results, as_json=as_json)
    if failures:
        raise typer.Exit(failures[0].error.exit_code)
    if not all(claim.holds for claim in report.claims):
        raise typer.Exit(1)


def _folder(plan: Plan, *, resume: bool) -> Path:
    """Return the folder for new results, or that of the newest ones to go on with."""
    parent = project_dir() / "reports" / plan.name
    if not resume:
        return _new_folder(parent / f"{datetime.now():%Y%m%d-%H%M%S}")
    found = sorted(path.parent for path in parent.glob("*/plan.json"))
    if not found:
        raise UserError("there are no results to go on with", file=parent)
    return found[-1]


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
