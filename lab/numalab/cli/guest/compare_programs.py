"""`numalab compare-programs`."""

from typing import Annotated

import typer

from numalab.analysis.measures.family import explain
from numalab.cli import completion, options
from numalab.cli.inputs.overlay import PackageOption
from numalab.cli.output import emit, picked, progress_lines
from numalab.programs.compare_programs import (
    MEASURES,
    ProgramComparison,
    compare_on_machines,
    parse_variant,
)
from numalab.programs.machines import machine


def command(
    topologies: Annotated[
        list[str],
        typer.Argument(
            metavar="MACHINE...",
            help="Names of topologies, or topology files.",
            autocompletion=completion.topologies,
        ),
    ],
    before: Annotated[
        str, typer.Option(metavar="COMMAND", help="Command before the change, quoted.")
    ],
    after: Annotated[
        list[str], typer.Option(metavar="COMMAND", help="Command after the change; repeatable.")
    ],
    seeds: Annotated[int, typer.Option(help="Number of runs of each command.")] = 5,
    measure: Annotated[
        list[str] | None,
        typer.Option(help="Measure to compare instead of the usual ones; repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            help="Name of the tasks to measure, with * and ?; default: all of the command."
        ),
    ] = None,
    mode: options.Mode = "timed",
    kernel: options.Kernel = "debian-6.12",
    image: options.Image = "base",
    package: PackageOption = None,
    add: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE[:TARGET]", help="File or folder to copy; repeatable."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare commands on machines: time, local memory and migrations.

    For example `numalab compare-programs ring-4 --before ./old --after ./new`. Before a command may
    stand variables of the environment, such as LD_PRELOAD=/usr/lib/libfoo.so, and files below
    /proc/sys or /sys with the value to write, such as /proc/sys/kernel/numa_balancing=0. Exit code
    1 means that a measure is worse after.
    """
    baseline = parse_variant(before)
    variants = [parse_variant(text) for text in dict.fromkeys(after)]  # once each
    for name in measure or ():
        explain(name)  # raises UserError, before any run
    with progress_lines("compare") as tell:
        machines = (
            machine(
                name, mode=mode, kernel=kernel, image=image, packages=package or (),
                on_progress=tell,
            )
            for name in dict.fromkeys(topologies)
        )  # fmt: skip
        results = compare_on_machines(
            machines, baseline, variants, seeds=seeds, measures=measure or MEASURES,
            tasks=task or (), add=add or (), on_progress=tell,
        )  # fmt: skip
    document = [
        {
            "machine": result.machine,
            "mode": result.mode,
            "seeds": result.seeds,
            "before": result.before,
            "after": result.after,
            "measures": [
                {**picked(row.info, "name", "unit", "direction", "kind"), **vars(row.comparison)}
                for row in result.rows
            ],
            "left_out": result.left_out,
        }
        for result in results
    ]
    texts = (_text(result, many=len(variants) > 1) for result in results)
    emit(document, as_json, "\n\n".join(texts))
    raise typer.Exit(1 if any(result.worse for result in results) else 0)


def _text(result: ProgramComparison, *, many: bool) -> str:
    """Return the text of a comparison, with the command where there are several."""
    return f"after: {result.after}\n{result}" if many else str(result)
