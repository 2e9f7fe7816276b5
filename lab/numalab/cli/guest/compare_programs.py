"""`numalab compare-programs`."""

import shlex
from typing import Annotated

import typer

from numalab.cli import completion, options
from numalab.cli.inputs.overlay import PackageOption
from numalab.cli.output import emit, progress_lines
from numalab.errors import UserError
from numalab.programs.compare_programs import MEASURES, ProgramComparison, compare_programs
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
    before: Annotated[str, typer.Option(metavar="COMMAND", help="Command before the change.")],
    after: Annotated[str, typer.Option(metavar="COMMAND", help="Command after the change.")],
    seeds: Annotated[int, typer.Option(help="Number of runs of each command.")] = 5,
    measure: Annotated[
        list[str] | None,
        typer.Option(help="Measure to compare instead of the usual ones; repeatable."),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(help="Name of the tasks to measure, with * and ?; default: the program."),
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
    """Compare two commands on machines: time, local memory and migrations.

    For example `numalab compare-programs ring-4 --before ./old --after ./new`. Exit code 1 means
    that a measure is worse after.
    """
    sides = [_words(before, "--before"), _words(after, "--after")]
    results: list[ProgramComparison] = []
    with progress_lines("compare") as tell:
        for name in topologies:
            built = machine(
                name, mode=mode, kernel=kernel, image=image, packages=package or (),
                on_progress=tell,
            )  # fmt: skip
            result = compare_programs(
                built, *sides, seeds=seeds, measures=measure or MEASURES, tasks=task or (),
                add=add or (), on_progress=tell,
            )  # fmt: skip
            results.append(result)
    document = [
        {
            "machine": result.machine,
            "mode": result.mode,
            "seeds": result.seeds,
            "measures": [{"name": row.info.name, **vars(row.comparison)} for row in result.rows],
        }
        for result in results
    ]
    emit(document, as_json, "\n\n".join(map(str, results)))
    raise typer.Exit(1 if any(result.worse for result in results) else 0)


def _words(text: str, option: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"{text!r}: {error}", key=option) from None
    if not words:
        raise UserError("no command", key=option)
    return words
