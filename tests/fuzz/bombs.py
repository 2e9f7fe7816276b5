"""Small files that take much memory: JSON and Parquet bombs in results, archives and recordings."""

import io
import json
import random
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import zstandard

from fuzz.commands import Box, Word
from support.example_results import copy_example

CASES, FEW = 300, 2
_PLACE = "the bomb goes here"
_ITEMS = ["[]", "{}", "0", '""', "[[]]", '{"a":{}}', "null", "-1e9", '"\\u0041"', "[0,0]"]
# Writes a table with the columns of another and many rows, in a process of its own.
_WRITER = """
import sys, polars as pl
source, target, rows, kind, codec = sys.argv[1:]
rows, table = int(rows), pl.read_parquet(source)
def column(name, dtype):
    if kind == "nulls":
        return pl.repeat(None, rows, dtype=dtype, eager=True).alias(name)
    if kind == "narrow" and not dtype.is_integer():
        return pl.repeat(None, rows, dtype=pl.Boolean, eager=True).alias(name)
    if kind == "narrow":
        return pl.repeat(0, rows, dtype=pl.Int8, eager=True).alias(name)
    if kind == "texts":
        return pl.repeat("x" * 2000, rows, eager=True).alias(name)
    return pl.repeat(table[name][0], rows, dtype=dtype, eager=True).alias(name)
if kind == "columns":
    made = pl.DataFrame({f"c{n}": [0] for n in range(rows // 100)})
else:
    made = pl.DataFrame([column(*item) for item in table.schema.items()])
made.write_parquet(target, compression=codec)
"""


def case(seed: int, scratch: Path) -> str:
    """Put a bomb somewhere, and have it read."""
    rng = random.Random(seed)
    box = Box(scratch)
    folder = copy_example(box.work / "theirs")
    kind = "Parquet" if rng.random() < 0.4 else "JSON"
    for _ in range(rng.choice([1, 1, 2])):
        _table(rng, folder) if kind == "Parquet" else _document(rng, folder)
    if rng.random() < 0.4:
        archive = _pack(folder, box.work / "theirs.tar.zst")
        if box.check(box.run("import", archive, "--output", box.work / "imported")) != 0:
            return f"{kind}: import refused"
        folder = box.work / "imported"
    lines: list[list[Word]] = [
        ["report", folder], ["status", folder], ["query", folder], ["compare", folder, folder],
        ["query", folder, "SELECT * FROM events"],
        ["query", folder, "SELECT count(*) FROM events"], ["export", folder, box.work / "a.zst"],
        ["query", folder, "SELECT * FROM events"], ["report", folder, "--format", "perfetto"],
        ["verify", folder, "--run", "no-such-run"], ["report", folder, "--json"],
        ["topology", "check", folder / "plan.json"],
        ["place", "ring-4", "--host", folder / "plan.json"],
    ]  # fmt: skip
    codes = {box.check(box.run(*line)) for line in rng.sample(lines, 3)}
    return f"{kind}: exit codes {' '.join(map(str, sorted(codes)))}"


def _document(rng: random.Random, folder: Path) -> None:
    """Put a JSON bomb in the place of a document, or of a value in one."""
    documents = [path for path in sorted(folder.rglob("*.json")) if path.stat().st_size < 1 << 20]
    if not documents:
        return
    path = rng.choice([*documents, *[path for path in documents if path.name == "plan.json"]])
    if rng.random() < 0.2:
        path.write_text(_bomb(rng))
        return
    place: Any = json.loads(path.read_text())
    document = place
    while isinstance(place, dict | list) and place:
        key: Any = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if not isinstance(place[key], dict | list) or rng.random() < 0.4:
            place[key] = _PLACE
            break
        place = place[key]
    path.write_text(json.dumps(document).replace(f'"{_PLACE}"', _bomb(rng), 1))


def _bomb(rng: random.Random) -> str:
    """Return JSON that is small when it is packed: many values, keys, digits, or deep nesting."""
    size = rng.choice([10_000, 1_000_000, 10_000_000, 40_000_000])
    match rng.randrange(7):
        case 0:
            opening, closing = rng.choice([("[", "]"), ('{"a":', "}"), ('[{"a":[', "]}]")])
            return opening * min(size // 8, 1_000_000) + "0" + closing * min(size // 8, 1_000_000)
        case 1 | 2 | 3:
            items = ",".join(rng.choices(_ITEMS, k=rng.choice([1, 1, 4])))
            repeated = min(size, 120_000_000 // len(items))
            return "[" + ",".join([items] * repeated) + "]"
        case 4:
            return "{" + ",".join(f'"{n}":0' for n in range(min(size, 5_000_000))) + "}"
        case 5:
            return rng.choice(["9", "1.", "-1e"]) + "9" * size
        case _:
            return '"' + rng.choice(["x", "\\u0000", "é", "\\\\"]) * size + '"'


def _table(rng: random.Random, folder: Path) -> None:
    """Put a table with very many rows or columns in the place of one."""
    path = rng.choice(sorted(folder.rglob("*.parquet")))
    kind = rng.choice(["rows", "rows", "nulls", "narrow", "texts", "columns"])
    most = {"rows": 8, "nulls": 8, "narrow": 60, "texts": 4, "columns": 3}[kind]
    rows = rng.choice([100_000, 1_000_000, most * 1_000_000])
    target = path.with_name("bomb")
    codec = rng.choice(["zstd", "zstd", "snappy", "uncompressed", "gzip"])
    words = [sys.executable, "-c", _WRITER, str(path), str(target), str(rows), kind, codec]
    subprocess.run(words, check=True, capture_output=True)
    target.replace(path)


def _pack(folder: Path, target: Path) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.add(path, str(path.relative_to(folder)), recursive=False)
    target.write_bytes(zstandard.compress(raw.getbuffer(), 3))
    return target
