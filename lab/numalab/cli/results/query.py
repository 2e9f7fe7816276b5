"""`numalab query`."""

from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from polars import selectors
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numalab.cli import options
from numalab.cli.output import emit, say
from numalab.errors import UserError
from numalab.report.formatting import printable
from numalab.results.query import Catalogue, catalogue, find_results, query

SHOWN = 200  # rows, for people
_PIPE = 10_000  # columns where there is no terminal: no name is broken
LIST = """
SELECT run, mode, kernel, status, seconds, events, started FROM runs ORDER BY started, run
"""


def command(
    results: Annotated[
        Path, typer.Argument(help="Folder of results, or a folder above several, such as reports.")
    ],
    sql: Annotated[
        str, typer.Argument(help="SELECT statement over runs, measures and events.")
    ] = LIST,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: options.Json = False,
) -> None:
    """Query runs, measures and events with SQL.

    Each folder of results keeps a catalogue (Parquet); only new runs are read again.
    """
    table = query(_catalogues(results), sql)
    if as_csv:
        texts = selectors.string().map_elements(printable, return_dtype=pl.String)
        print(table.with_columns(texts).write_csv(), end="")
        return
    emit(_rows(table) if as_json else None, as_json, _text(table), width=_PIPE)


def _catalogues(path: Path) -> list[Catalogue]:
    """Return the catalogues of results; of several, say which cannot be read.

    Raises UserError where none can.
    """
    catalogues, unread = [], []
    for entry in find_results(path):
        try:
            catalogues.append(catalogue(entry))
        except UserError as error:
            unread.append(error)
    if not catalogues:
        raise unread[0]
    for why in unread:
        say(f"left out: {why}")
    return catalogues


def _rows(table: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as JSON can hold them: no number that is none, times as text."""
    plain = table.with_columns(selectors.decimal().cast(pl.Float64), selectors.temporal().cast(str))
    numbers = selectors.float()
    return plain.with_columns(pl.when(numbers.is_finite()).then(numbers)).to_dicts()


def _text(rows: pl.DataFrame) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False, pad_edge=False)
    for name, kind in rows.schema.items():
        table.add_column(printable(name), justify="right" if kind.is_numeric() else "left",
                         overflow="fold")  # fmt: skip
    for row in rows.head(SHOWN).iter_rows():
        table.add_row(*(Text(_cell(value)) for value in row))
    more = rows.height - SHOWN
    count = f"{rows.height} rows" + (f", {more} of them not shown (--csv)" if more > 0 else "")
    return Group(table, Text(count, "dim"))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        exact = value.is_integer() and abs(value) < 2**53
        return f"{value:.0f}" if exact else f"{value:.6g}"
    return printable(str(value))
