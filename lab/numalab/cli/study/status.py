"""`numalab status`."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numalab.cli import options
from numalab.cli.output import emit
from numalab.results.layout import Results
from numalab.results.status import Progress, State, read_progress
from numalab.units import format_seconds

STYLES = {State.DONE: "blue", State.RUNNING: "bold", State.FAILED: "bold dark_orange"}


def command(
    results: options.Results,
    as_json: options.Json = False,
) -> None:
    """Say how far a study is: which runs are done, under way, failed, and what is left.

    Reads the folder only, so it works from another terminal, and after the end.
    """
    found = read_progress(Results(results))
    emit(found, as_json, _text(found))


def _text(found: Progress) -> RenderableType:
    counts = ", ".join(f"{found.count(state)} {state}" for state in State if found.count(state))
    under_way = "under way" if found.active else "not under way"
    left = (
        f", about {format_seconds(found.seconds_left)} left"
        if found.seconds_left is not None
        else ""
    )
    table = Table.grid(padding=(0, 2))
    for run in found.runs:
        seconds = "" if run.seconds is None else format_seconds(run.seconds)
        state = Text(run.state, STYLES.get(run.state, "dim"))
        table.add_row(Text(run.run), state, Text(seconds), Text(run.text))
    return Group(Text(f"{found.study}, {under_way}: {counts}{left}", "bold"), table)
