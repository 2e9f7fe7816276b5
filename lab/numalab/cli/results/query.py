"""`numalab query`."""

import json
from datetime import timedelta
from decimal import Decimal
from math import isfinite
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
from numalab.report.formats.csv_rows import csv_text
from numalab.report.formatting import printable
from numalab.results.query import Catalogue, catalogue, find_results, query

SHOWN = 200  # rows, for people
_ODD = selectors.nested() | selectors.binary()  # columns that only the text form takes as they are
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
    table = query(_catalogues(results), sql, say)
    if as_csv:
        print(_csv(table), end="")
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
    decimals = selectors.decimal().cast(pl.Float64)
    plain = _in_seconds(table).with_columns(decimals, selectors.temporal().cast(str))
    numbers = selectors.float()
    rows = plain.with_columns(pl.when(numbers.is_finite()).then(numbers)).to_dicts()
    for name in table.select(_ODD).columns:
        for row in rows:
            row[name] = _plain(row[name])
    return rows


def _csv(table: pl.DataFrame) -> str:
    """Return a table as CSV; its names, too, may be from another person's file of events."""
    texts = selectors.string().map_elements(csv_text, return_dtype=pl.String)
    names = pl.DataFrame([[csv_text(name)] for name in table.columns])
    return "".join(
        part.write_csv(include_header=False) for part in (names, _cells(table).with_columns(texts))
    )


def _cells(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table as CSV can hold it: lists are JSON texts."""
    table = _in_seconds(table)
    texts = [
        pl.Series(column.name, map(_cell_text, column.to_list()), pl.String)
        for column in table.select(_ODD)
    ]
    return table.with_columns(texts)


def _in_seconds(table: pl.DataFrame) -> pl.DataFrame:
    """Replace durations by seconds."""
    return table.with_columns(selectors.duration().dt.total_nanoseconds() / 1e9)


def _cell_text(value: object) -> str | None:
    plain = _plain(value)
    return plain if plain is None or isinstance(plain, str) else json.dumps(plain)


def _plain(value: object) -> Any:
    """Return a value of a list or of bytes as JSON can hold it."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, float | Decimal):
        return float(value) if isfinite(value) else None
    return value if value is None or isinstance(value, int | str) else str(value)


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
