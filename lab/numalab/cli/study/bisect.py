"""`numalab bisect`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numalab.bisect.bisect import Bisection, TriedStep
from numalab.bisect.history import History, git_history, series_history
from numalab.bisect.measure_steps import Bench, bench_folder, run_bisection
from numalab.campaign.stopping import StoppingRule
from numalab.cli import options
from numalab.cli.hunt import bisect_case
from numalab.cli.live import live_runs
from numalab.cli.output import continued_by, emit, progress_lines, say, say_waiting
from numalab.errors import UserError, shown
from numalab.kernel.kernel_specs import KernelSpec
from numalab.places import project_dir
from numalab.qemu.hypervisor import EMBED, connect
from numalab.report.formatting import printable
from numalab.results.plan import Cell
from numalab.study.model import find_study
from numalab.study.plan import Plan, plan_study, require_measure

_STYLES = {"good": "blue", "bad": "dark_orange", "skipped": "dim"}


def command(
    context: typer.Context,
    study: Annotated[str | None, typer.Option(help="Name of a study, or a study file.")] = None,
    measure: Annotated[
        str | None, typer.Option(help="Measure that separates good from bad.")
    ] = None,
    case: Annotated[
        Path | None, typer.Option(help="Case of `numalab hunt`, instead of --study and --measure.")
    ] = None,
    kernel: Annotated[
        str | None,
        typer.Option(help="With --case: kernel to start from, instead of the kernel of the case."),
    ] = None,
    good: Annotated[
        str | None, typer.Option(metavar="REV", help="Revision before the change.")
    ] = None,
    bad: Annotated[
        str | None,
        typer.Option(
            metavar="REV", help="Revision after the change; git:PATH@REV selects the repository."
        ),
    ] = None,
    series: Annotated[
        str | None, typer.Option(help="Bisect the patches of this series instead of a git history.")
    ] = None,
    variant: Annotated[
        str | None, typer.Option(help="Variant whose kernel to start from; default: the first.")
    ] = None,
    cell: Annotated[
        str | None,
        typer.Option(
            metavar="TOPOLOGY_LABEL", help="Cell to measure; needed if the study has several."
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Preset of the study.")] = None,
    mode: options.StudyMode = None,
    max_runs: Annotated[int, typer.Option(min=3, help="Maximum runs of a kernel.")] = 10,
    jobs: options.Guests = None,
    output: Annotated[
        Path | None, typer.Option(help="Folder of the results (default: reports/STUDY/bisect-...).")
    ] = None,
    connection: options.Connect = EMBED,
    as_json: options.Json = False,
) -> None:
    """Find the commit, or the patch of a series, that changed a measure.

    The good and the bad kernel run first, then kernels between them, until each is classified. A
    kernel that does not build or boot is skipped. After Ctrl-C, the same command continues with the
    finished runs.

    Exits with 1 if good and bad do not differ.
    """
    if case is not None:
        if study is not None or measure is not None:
            raise UserError("give either --case, or --study and --measure")
        options.refuse_given(
            context, "with --case", "variant", "cell", "preset", "max_runs", "jobs"
        )
        bisect_case.run(
            case,
            good,
            bad,
            series,
            kernel=kernel,
            mode=mode,
            output=output,
            connection=connection,
            as_json=as_json,
        )
        return
    if study is None or measure is None:
        raise UserError("give --study and --measure, or --case")
    if kernel is not None:
        raise UserError("the study names its kernels; --kernel goes with --case", key="--kernel")
    plan = plan_study(find_study(study), preset)
    require_measure(plan, measure, "--measure")
    where, chosen = _cell(plan, cell), _variant(plan, variant)
    base = plan.kernels[plan.study.variants[chosen].kernel]
    history = _history(base, good, bad, series)
    wanted = mode or plan.study.mode
    name = bench_folder(plan, where, chosen, wanted, history)
    folder = output or project_dir() / "reports" / plan.name / name
    bench = Bench(plan, where, chosen, folder, wanted, jobs, connection)
    say(f"{history.summary}, results in {shown(folder)}")
    connect(connection)
    with continued_by("the same command"), progress_lines("prepare") as tell, live_runs() as watch:
        bisection = run_bisection(
            bench,
            history,
            StoppingRule(measure, max_runs),
            on_tried=lambda row: say(_line(row)),
            on_progress=tell,
            watch=watch,
            on_wait=say_waiting,
        )
    emit(bisection, as_json, _text(bisection))
    if bisection.exit_code:
        raise typer.Exit(bisection.exit_code)


def _cell(plan: Plan, wanted: str | None) -> Cell:
    names = {cell.name: cell for cell in plan.cells}
    if wanted is None and len(names) == 1:
        return plan.cells[0]
    if wanted not in names:
        reason = "the study has several cells" if wanted is None else f"no cell {wanted!r}"
        raise UserError(reason, file=plan.path, key="--cell", choices=names)
    return names[wanted]


def _variant(plan: Plan, wanted: str | None) -> str:
    variants = list(dict.fromkeys(run.variant for run in plan.runs))
    if wanted is not None and wanted not in variants:
        raise UserError(f"no variant {wanted!r}", file=plan.path, key="--variant", choices=variants)
    return wanted or variants[0]


def _history(base: KernelSpec, good: str | None, bad: str | None, series: str | None) -> History:
    if series is not None and good is None and bad is None:
        return series_history(base, series)
    if series is None and good is not None and bad is not None:
        return git_history(base, good, bad)
    raise UserError("give either --good and --bad, or --series")


def _line(row: TriedStep) -> str:
    return f"{row.step}: {row.side} ({printable(row.reason)}), {printable(row.title)}"


def _text(bisection: Bisection) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("step", "kernel", bisection.measure, "verdict"):
        table.add_column(title, overflow="fold")
    for row in bisection.rows:
        values = ", ".join("-" if value is None else f"{value:.4g}" for value in row.values)
        verdict = Text.assemble((row.side, _STYLES[row.side]), f": {printable(row.reason)}")
        table.add_row(Text(row.step), Text(printable(row.kernel)), Text(values), verdict)
    return Group(table, Text(), *_ending(bisection))


def _ending(bisection: Bisection) -> list[RenderableType]:
    if not bisection.first:
        why, *evidence = map(printable, bisection.ended.splitlines())
        return [Text(f"no first bad step: {why}", "bold"), *map(Text, evidence)]
    steps = [Text(f"  {step.name}  {printable(step.title)}") for step in bisection.first]
    if len(steps) == 1:
        return [Text("first bad step:", "bold"), *steps]
    intro = "the first bad step is in this list; all but the last were skipped:"
    return [Text(intro, "bold"), *steps]
