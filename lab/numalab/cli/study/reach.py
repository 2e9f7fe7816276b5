"""`numalab reach`: the reach map of the lab, and the loads for a patch."""

import math
import time
from typing import Annotated

import typer
from rich.table import Table

from numalab.campaign.reach_map import MACHINES, lines_of, load_map, measure_map
from numalab.cli import options
from numalab.cli.live import live_runs
from numalab.cli.output import continued_by, emit, progress_lines, say
from numalab.errors import UserError
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.patched_kernel import find_kernel, patched_kernel
from numalab.reach.prepare import plan_reach
from numalab.reach.reach_map import choice_lines, coverage, select_cells
from numalab.units import parse_seconds

app = typer.Typer(no_args_is_help=True)


@app.command("map")
def map_lines(
    kernel: options.Kernel = "debian-6.12",
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Guests at once.")] = None,
    budget: Annotated[str | None, typer.Option(help="Wall time such as 20m.")] = None,
    as_json: options.Json = False,
) -> None:
    """Measure which lines of the scheduler the workloads reach. An interrupted map continues."""
    spec = find_kernel(kernel)
    seconds = math.inf if budget is None else options.parsed(parse_seconds, budget, "--budget")
    with progress_lines("prepare") as tell:
        ensure_kernel(spec, on_progress=tell)
    with live_runs() as on_schedule, continued_by("the same command"):
        failures = measure_map(
            spec, on_schedule, jobs=jobs, deadline=time.monotonic() + seconds, machines=MACHINES
        )
    for failure in failures:
        say(f"{failure.ended.run}: {failure.ended.error.splitlines()[0]}")
    built = ensure_kernel(spec)
    cells = load_map(built)
    counts = coverage(cells, lines_of(spec, built))
    table = Table("file", "reached", "lines", "", box=None)
    for file, (reached, lines) in sorted(counts.items()):
        table.add_row(file, f"{reached:,}", f"{lines:,}", f"{reached / lines:.0%}")
    value = {
        "kernel": spec.name,
        "cells": [cell.label for cell in cells],
        "files": {file: {"reached": count[0], "lines": count[1]} for file, count in counts.items()},
    }
    emit(value, as_json, table)
    if failures:
        raise typer.Exit(failures[0].ended.exit_code)


@app.command()
def select(
    patch: Annotated[str, typer.Argument(help="A patch, mailbox, folder or range of commits.")],
    base: Annotated[str | None, typer.Option(help="Kernel below the patch.")] = None,
    as_json: options.Json = False,
) -> None:
    """Choose the cells of the map that execute the lines of a patch."""
    with progress_lines("reach") as tell:
        kernel = patched_kernel([patch], base, tell)
        built = ensure_kernel(kernel.base, on_progress=tell)
        cells = load_map(built)
        if not cells:
            name = kernel.base.name
            raise UserError(f"{name} has no reach map; run: numalab reach map --kernel {name}")
        table = plan_reach((kernel.patched,), patch, tell).tables[built.digest]
    choice = select_cells(cells, table)
    emit(choice, as_json, "\n".join(choice_lines(choice)))
