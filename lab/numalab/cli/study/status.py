"""`numalab status`."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numalab.cli import options
from numalab.cli.output import emit
from numalab.report.document import UnfinishedRun
from numalab.report.formats.terminal import render_lines
from numalab.report.formatting import printable
from numalab.report.unfinished import cause_lines, causes
from numalab.results.layout import Results
from numalab.results.status import Progress, State, read_progress
from numalab.units import format_seconds, runs_of

MOST_ROWS = 1000  # runs that are shown
# What needs attention first.
ORDER = (State.FAILED, State.INTERRUPTED, State.RUNNING, State.WAITING, State.LEFT_OUT, State.DONE)
_IDLE = (State.WAITING, State.LEFT_OUT, State.DONE)
STYLES = {State.DONE: "blue", State.RUNNING: "bold", State.FAILED: "bold dark_orange"}


def command(
    results: options.Results,
    as_json: options.Json = False,
) -> None:
    """Show which runs of a study are done, running, failed and waiting.

    The command reads only the folder of results; use it from another terminal during a run.
    """
    progress = read_progress(Results(results))
    emit(progress, as_json, _text(progress))


def _text(progress: Progress) -> RenderableType:
    numbers = [(progress.count(state), state) for state in ORDER if state is not State.DONE]
    states = ", ".join(f"{number} {state}" for number, state in numbers if number)
    counts = f" ({states})" if states else ""
    under_way = "under way" if progress.active else "not under way"
    left = (
        f", about {format_seconds(progress.seconds_left)} left"
        if progress.seconds_left is not None
        else ""
    )
    finished = f"{progress.count(State.DONE)} of {runs_of(len(progress.runs))} finished"
    head = f"{progress.study}, {under_way}: {finished}{counts}{left}"
    missing = [run for run in progress.runs if run.state in (State.FAILED, State.INTERRUPTED)]
    first = causes(UnfinishedRun(run.cell, run.run, run.state, run.text) for run in missing)
    table = Table.grid(padding=(0, 2))
    rows = sorted(progress.runs, key=lambda run: ORDER.index(run.state))
    if len(rows) > MOST_ROWS:  # of very many, those that went wrong or are under way
        rows = [run for run in rows if run.state not in _IDLE][:MOST_ROWS]
    for run in rows:
        seconds = "" if run.seconds is None else format_seconds(run.seconds)
        state = Text(run.state, STYLES.get(run.state, "dim"))
        table.add_row(Text(run.run), state, Text(seconds), Text(run.text))
    rest = len(progress.runs) - table.row_count
    more = [Text(f"and {rest} more (--json lists all)")] if rest else []
    return Group(Text(printable(head), "bold"), *render_lines(cause_lines(first)), table, *more)
