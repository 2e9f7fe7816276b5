"""`numalab doctor`."""

from typing import Annotated

import typer
from rich.table import Table

from lab.cli.output import emit
from lab.machine.doctor import Check, checks


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say what this host has and lacks; each miss comes with the command that mends it.

    `MISS` is what every run needs, and ends with exit code 3; `lacks` only some uses need.
    """
    found = checks()
    emit(found, as_json, _table(found))
    if any(check.needed and not check.ok for check in found):
        raise typer.Exit(3)


def _table(found: tuple[Check, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "what", "found"):
        table.add_column(heading, overflow="fold")
    for check in found:
        text = check.found if check.ok else f"{check.found}\n  mend: {check.mend}"
        table.add_row(_mark(check), check.name, text)
    return table


def _mark(check: Check) -> str:
    if check.ok:
        return "ok"
    return "MISS" if check.needed else "lacks"
