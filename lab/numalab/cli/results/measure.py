"""`numalab measure`."""

from typing import Annotated

import typer
from rich.table import Table

from numalab.campaign.added_measures import AddedMeasures, add_measures
from numalab.cli import options
from numalab.cli.output import emit, progress_lines, say
from numalab.errors import UserError
from numalab.measure import Measure
from numalab.report import formatting
from numalab.results.layout import Results

MOST_RUNS = 3  # that a message names


def command(
    results: options.Results,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="NAME",
            help="Only this measure; repeatable.",
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compute measures that were added after the runs: a plug-in's, or new built-in ones.

    Computed from the stored events, they go to added-measures.json of each run; measures.json never
    changes. `report`, `compare`, `query` and `export` include them; `verify` does not compare them.

    Prints the runs that lack an event of a measure; exits with 1 if --measure selects it, with 2 if
    a measure fails.
    """
    with progress_lines("measure") as on_progress:
        added = add_measures(Results(results), names or (), on_progress)
    by_name: dict[str, dict[str, Measure]] = {}
    for run, measures in added.measures.items():
        for measure in measures:
            by_name.setdefault(measure.name, {})[run] = measure
    document = {
        "results": results,
        "measures": [
            {
                "name": name,
                "unit": next(iter(runs.values())).info.unit,
                "values": {run: measure.value for run, measure in runs.items()},
            }
            for name, runs in by_name.items()
        ],
        "lacking": added.lacking,
        "failed": added.failed,
    }
    emit(document, as_json, _table(by_name) if by_name else "no measure was added")
    if added.lacking:
        say(_lacking(added))
    for message in added.failed:
        say(f"numalab: {message}")
    if added.failed:
        raise typer.Exit(UserError.exit_code)
    if names and added.lacking:
        raise typer.Exit(1)


def _table(by_name: dict[str, dict[str, Measure]]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for title in ("measure", "unit"):
        table.add_column(title, overflow="fold")
    for title in ("runs", "lowest", "highest"):
        table.add_column(title, justify="right")
    for name, runs in by_name.items():
        values = [measure.value for measure in runs.values() if measure.value is not None]
        places = formatting.decimals(values)
        bounds = (min(values), max(values)) if values else (None, None)
        unit = next(iter(runs.values())).info.unit
        texts = (formatting.number(value, places, grouped=True) for value in bounds)
        table.add_row(
            formatting.printable(name), formatting.printable(unit), str(len(runs)), *texts
        )
    return table


def _lacking(added: AddedMeasures) -> str:
    lines = ["not computed, because the runs lack data:"]
    for lacking in added.lacking:
        runs = ", ".join(lacking.runs[:MOST_RUNS])
        if (more := len(lacking.runs) - MOST_RUNS) > 0:
            runs += f" and {more} more"
        measure = lacking.measure or "every measure"
        lines.append(f"  {measure}: without {', '.join(lacking.needs)} ({runs})")
    return "\n".join(lines)
