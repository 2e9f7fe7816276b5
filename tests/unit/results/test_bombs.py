"""Small files that take much memory: each is refused in one message, within 2 GiB of memory."""

import json
import random
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import polars as pl
import pytest

from numalab.parquet import read_parquet, table_size
from numalab.places import project_dir
from numalab.results.layout import Results
from support.example_results import copy_example
from support.memory_peak import MOST, asked
from support.parquet_bombs import TEXT, Column, File, Page, numbers, texts, varint, zstd

MANY = 40_000_000
Rows = list[Page]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return copy_example(tmp_path / "results")


# Values that replace one of a JSON document; the last are within the limits, and wrong.
JSON: dict[str, Callable[[], bytes]] = {
    "lists": lambda: b"[" + b"[]," * (MANY - 1) + b"[]]",
    "objects": lambda: b"[" + b"{}," * (MANY - 1) + b"{}]",
    "numbers": lambda: b"[" + b"0," * (MANY - 1) + b"0]",
    "keys": lambda: b"{" + b",".join(b'"%x":0' % at for at in range(8_000_000)) + b"}",
    "nested": lambda: b"[" * 10_000_000 + b"]" * 10_000_000,
    "digits": lambda: b"1" * 10_000_000,
    "text": lambda: '"\U0001f600'.encode() + b"a" * (300 << 20) + b'"',
    "some lists": lambda: b"[" + b"[]," * 1_900_000 + b"[]]",
    "some keys": lambda: b"{" + b",".join(b'"%x":0' % at for at in range(3_900_000)) + b"}",
    "some objects": lambda: b"[" + b"{}," * 90_000 + b"{}]",
    "more objects": lambda: b"[" + b"{}," * 1_900_000 + b"{}]",
    "some text": lambda: '"\U0001f600'.encode() + b"a" * (120 << 20) + b'"',
}
PLACES = {
    "plan.json": ("runs", "file", "remarks", "new"),
    "manifest.json": ("proof", "kernel", "notes", "new"),
    "analysis.json": ("series", "decisions", "new"),
    "domains.json": ("cpus", "errors"),
}


def put(path: Path, key: str, value: bytes) -> None:
    """Put a value into a document."""
    table = json.loads(path.read_bytes())
    table[key] = "HERE"
    path.write_bytes(json.dumps(table).encode().replace(b'"HERE"', value, 1))


def a_file(results: Path, name: str) -> Path:
    path = results / name if name == "plan.json" else min(results.glob("runs/*")) / name
    if not path.exists():
        path.write_text('{"cpus": [], "errors": []}')
    return path


@lru_cache(maxsize=1)
def json_bomb(name: str) -> bytes:
    """Return the bytes; several tests in a row use those of one name."""
    return JSON[name]()


@pytest.mark.parametrize("name", [*PLACES, "measures.json"])
@pytest.mark.parametrize("bomb", JSON)
def test_a_json_bomb(results: Path, bomb: str, name: str) -> None:
    rng = random.Random(f"{bomb}, {name}")
    path = a_file(results, name)
    key = "-"
    if name == "measures.json":
        path.write_bytes(json_bomb(bomb))
    else:
        key = rng.choice(PLACES[name])
        put(path, key, json_bomb(bomb))
    answers = asked(results, "status", "read")
    assert answers.pop("peak") < MOST, key
    if key not in {"new", "file"}:  # what no model names may hold anything
        assert name in answers["read"], (key, answers)
        assert len(answers["read"]) < 1000


def test_the_cpulists_of_a_few_kilobytes(results: Path) -> None:
    cpu = {"level": 0, "name": "MC", "span": "0-8191", "groups": []}
    domains = [{**cpu, "span": f"{at}-8191"} for at in range(8000)]
    a_file(results, "domains.json").write_text(
        json.dumps({"cpus": [{"cpu": 0, "domains": domains * 3}], "errors": []})
    )
    answers = asked(results)
    assert answers["peak"] < MOST
    assert "lists of CPUs are too long" in answers["read"]


def wide(_: random.Random) -> File:
    return File([Column(f"c{at}", numbers(10)) for at in range(10_000)], 10)


def long(rng: random.Random) -> File:
    rows = rng.randrange(50_000_000, 70_000_000)
    return File([Column(name, numbers(rows, 5)) for name in ("time_ns", "cpu", "pid")], rows)


def many_groups(rng: random.Random) -> File:
    rows = rng.randrange(100_000, 300_000)
    return File([Column(name, numbers(rows, 5)) for name in ("time_ns", "cpu")], rows, groups=300)


def long_texts(rng: random.Random) -> File:
    """Some 8 GiB of texts in some hundred kilobytes."""
    size = rng.randrange(40 << 20, 60 << 20)
    pages = texts(1, b"a" * size)
    columns = [Column(f"t{at}", pages, type=TEXT) for at in range(150)]
    return File(columns, 1)


def repeated_texts(_: random.Random) -> File:
    pages = texts(20_000_000, b"a" * (1 << 20))
    return File([Column(name, pages, type=TEXT) for name in ("event", "comm", "buf")], 20_000_000)


def claimed_page(_: random.Random) -> File:
    return File([Column("time_ns", [Page(zstd(b"\0" * 8), (1 << 31) - 1, 1)])], 1)


def claimed_dictionary(_: random.Random) -> File:
    page = Page(zstd(b"\1\0\0\0a"), 5, (1 << 31) - 1, dictionary=True)
    return File([Column("event", [page, *texts(9, b"a")[1:]], type=TEXT)], 9)


def more_than_claimed(_: random.Random) -> File:
    """The footer has few rows, the page very many."""
    return File([Column("time_ns", numbers(100_000_000))], 10)


def longer_run(_: random.Random) -> File:
    """The header has few values, the runs within the page very many."""
    first, _second = numbers(10)
    runs = b"\0" + varint(1_000_000_000 << 1)
    page = Page(zstd(runs), len(runs), 10, encoding=8)
    return File([Column("time_ns", [first, page])], 10)


def unpacks_to_more(_: random.Random) -> File:
    """The page unpacks to a gigabyte, where its header has eight bytes."""
    return File([Column("time_ns", [Page(zstd(b"\0" * (1 << 30)), 8, 1)])], 1)


def keys(rng: random.Random) -> File:
    text = b"\0" * rng.randrange(100 << 20, 200 << 20)
    return File([Column("time_ns", numbers(9))], 9, keys={b"marks": text})


def marks(_: random.Random) -> File:
    text = b"[" + b"{}," * 2_000_000 + b"{}]"
    return File([Column("cpu", numbers(9))], 9, keys={b"marks": text, b"length_ns": b"9"})


PARQUET = [
    wide, long, many_groups, long_texts, repeated_texts, claimed_page, claimed_dictionary,
    more_than_claimed, longer_run, unpacks_to_more, keys, marks,
]  # fmt: skip


@pytest.mark.parametrize("bomb", PARQUET)
@pytest.mark.parametrize("name", ["events.parquet", "timeline.parquet"])
def test_a_parquet_bomb(results: Path, bomb: Callable[[random.Random], File], name: str) -> None:
    rng = random.Random(f"{bomb.__name__}, {name}")
    data = bomb(rng).write()
    for run in results.glob("runs/*"):
        (run / name).write_bytes(data)
    answers = asked(results)
    assert answers.pop("peak") < MOST
    answer = answers["timelines" if name == "timeline.parquet" else "events"]
    if name == "timeline.parquet" or bomb not in (longer_run, marks):  # a column of ten numbers
        assert name in answer, answers
    assert len(answer) < 1000


def test_a_catalogue_that_is_a_bomb_is_made_anew(results: Path) -> None:
    catalogue = Results(results).runs_table
    catalogue.parent.mkdir(exist_ok=True)
    catalogue.write_bytes(long(random.Random(1)).write())
    answers = asked(results)
    assert answers["peak"] < MOST
    assert answers["query runs"] == ""


def test_every_committed_table_is_read() -> None:
    tables = sorted(project_dir().glob("reports/examples/*/runs/*/*.parquet"))
    assert tables
    for path in tables:
        size = table_size(path)
        assert size.rows == pl.scan_parquet(path).select(pl.len()).collect().item()
        assert sum(size.columns.values()) * 2 >= pl.read_parquet(path).estimated_size()


def test_what_polars_writes_is_read(tmp_path: Path) -> None:
    rows = 300_000
    table = pl.DataFrame(
        {
            "number": pl.Series(range(rows), dtype=pl.Int64),
            "short": pl.Series([at % 9 for at in range(rows)], dtype=pl.UInt16),
            "real": [at / 7 for at in range(rows)],
            "text": [f"t{at}" for at in range(rows)],
            "same": ["x" if at % 2 else None for at in range(rows)],
            "truth": [at % 3 == 0 for at in range(rows)],
            "nothing": pl.Series([None] * rows, dtype=pl.String),
        }
    )
    for codec in ("lz4", "zstd"):
        table.write_parquet(tmp_path / "a.parquet", compression=codec)
        assert read_parquet(tmp_path / "a.parquet").equals(table)
    table.head(0).write_parquet(tmp_path / "a.parquet")
    assert read_parquet(tmp_path / "a.parquet").equals(table.head(0))
    table.select(each=pl.struct("number")).write_parquet(tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="columns in each other"):
        read_parquet(tmp_path / "a.parquet")


@pytest.mark.parametrize("seed", range(300))
def test_a_spoiled_table_is_refused_or_read(
    tmp_path: Path, seed: int, capfd: pytest.CaptureFixture[str]
) -> None:
    rng = random.Random(seed)
    path = tmp_path / "a.parquet"
    pl.DataFrame({"a": range(1000), "b": [f"t{at % 7}" for at in range(1000)]}).write_parquet(path)
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 3, 50])):
        data[rng.randrange(len(data) // 2, len(data))] = rng.randrange(256)
    path.write_bytes(data)
    try:
        read_parquet(path)
    except (ValueError, OSError, pl.exceptions.PolarsError):
        assert "panicked" not in capfd.readouterr().err
