"""The table of events as polars and numalab's own check read it."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.capture.columns import Cells
from numalab.capture.event_table import EventTable
from numalab.capture.texts import Texts
from numalab.parquet import read_parquet

_RANGES: dict[pl.DataType, tuple[int, int]] = {
    pl.Int8(): (-128, 127),
    pl.Int16(): (-(1 << 15), (1 << 15) - 1),
    pl.Int32(): (-(1 << 31), (1 << 31) - 1),
    pl.Int64(): (-(1 << 63), (1 << 63) - 1),
    pl.UInt8(): (0, 255),
    pl.UInt16(): (0, (1 << 16) - 1),
    pl.UInt32(): (0, (1 << 32) - 1),
    pl.UInt64(): (0, (1 << 64) - 1),
}


def _values(kind: pl.DataType) -> st.SearchStrategy[Any]:
    if kind == pl.String():
        return st.one_of(st.sampled_from(["", "a", "migration/0"]), st.text(max_size=20))
    if kind == pl.Boolean():
        return st.booleans()
    least, most = _RANGES[kind]
    return st.one_of(st.integers(least, most), st.integers(max(least, -3), 5))


def _cells(values: list[Any], kind: pl.DataType) -> Cells | None:
    """Return the cells of a column, None for one without values."""
    rows = [row for row, value in enumerate(values) if value is not None]
    some = [values[row] for row in rows]
    if not some:
        return None
    where = None if len(some) == len(values) else np.array(rows, np.int64)
    if kind == pl.String():
        different = [*sorted(set(some)), "never"]
        which = np.array([different.index(text) for text in some], np.int64)
        return Cells(where, Texts(pl.Series(different), which))
    return Cells(where, pl.Series(some, dtype=kind).to_numpy())


def _write(path: Path, schema: dict[str, pl.DataType], groups: list[dict[str, list[Any]]]) -> None:
    with path.open("wb") as file:
        table = EventTable(file, schema)
        for group in groups:
            cells = {name: _cells(values, schema[name]) for name, values in group.items()}
            rows = len(next(iter(group.values())))
            table.write({name: some for name, some in cells.items() if some is not None}, rows)
        table.close()


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_table_is_read_as_it_was_written(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kinds = data.draw(
        st.lists(st.sampled_from([*_RANGES, pl.Boolean(), pl.String()]), min_size=1, max_size=18)
    )
    schema = {f"column{number}": kind for number, kind in enumerate(kinds)}
    groups = []
    for rows in data.draw(st.lists(st.sampled_from([1, 2, 7, 8, 9, 200]), max_size=3)):
        pattern = data.draw(st.sampled_from(["all", "none", "some"]))
        group = {}
        for name, kind in schema.items():
            value = st.none() if pattern == "none" else _values(kind)
            few = data.draw(st.lists(value, min_size=1, max_size=6))
            if pattern == "some":
                few.append(None)
            group[name] = [few[row * 7 % len(few)] for row in range(rows)]
        groups.append(group)
    path = tmp_path_factory.mktemp("table") / "events.parquet"
    _write(path, schema, groups)
    written = [pl.DataFrame(group, schema=schema) for group in groups]
    wanted = pl.concat([pl.DataFrame(schema=schema), *written])
    assert pl.read_parquet(path).equals(wanted)
    assert read_parquet(path).equals(wanted)


@pytest.mark.parametrize("different", [1, 2, 256, 257, 70_000])
def test_numbers_and_texts_of_any_variety(tmp_path: Path, different: int) -> None:
    numbers = np.arange(100_000) % different
    texts = [f"task {number}" for number in range(different)]
    schema = {"close": pl.Int32(), "far": pl.Int64(), "text": pl.String()}
    with (tmp_path / "events.parquet").open("wb") as file:
        table = EventTable(file, schema)
        columns = {
            "close": Cells(None, numbers.astype(np.int32)),
            "far": Cells(None, numbers << 40),
            "text": Cells(None, Texts(pl.Series(texts), numbers)),
        }
        table.write(columns, len(numbers))
        table.close()
    read = read_parquet(tmp_path / "events.parquet")
    assert read["close"].to_numpy().tolist() == numbers.tolist()
    assert (read["far"].to_numpy() == numbers << 40).all()
    assert read["text"].to_list() == [texts[number] for number in numbers.tolist()]


def test_a_thousand_columns_without_values_take_little_space(tmp_path: Path) -> None:
    schema: dict[str, pl.DataType] = {f"column{number}": pl.Int64() for number in range(1000)}
    _write(tmp_path / "events.parquet", schema, [{"column0": [1] * 10_000}])
    assert read_parquet(tmp_path / "events.parquet").shape == (10_000, 1000)
    assert (tmp_path / "events.parquet").stat().st_size < 150_000
