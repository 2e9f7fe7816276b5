"""Results folders of strangers: spoiled files, names that lead elsewhere, pipes, links.

Each case spoils a copy of committed results, and then asks of them whatever a user may ask that
needs no guest. One message is well; anything else is not, and so is a change outside the folder.
"""

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from numalab.errors import LabError
from numalab.report.build.publish import publish
from numalab.report.build.study import gather
from numalab.report.formats.perfetto import PerfettoFormat
from numalab.results.archive import export_results
from numalab.results.compare import compare_results
from numalab.results.layout import Results
from numalab.results.query import catalogue, query
from numalab.results.status import read_progress
from support.example_results import copy_example

CASES, FEW = 2000, 12
HOSTILE: list[Any] = [
    "../../outside/mine", "/etc/passwd", "mine", "..", "", "\x1b[2J", "a" * 5000, "a\nb", "é", "\0",
    0, -1, 1 << 70, 10**400, 1e308, -1e308, True, None, [], {}, [[]], {"a": {}}, "NaN", "lost", "2",
]  # fmt: skip
LITERALS = ["NaN", "Infinity", "1e400", "9" * 5000, "-0", '"\\ud800"', "[" * 3000, "{}", "1" * 400]


def case(seed: int, scratch: Path) -> str:
    """Spoil results, ask everything of them, and look at what is beside them."""
    rng = random.Random(seed)
    path = copy_example(scratch / "results")
    whole = copy_example(scratch / "whole")
    outside = scratch / "outside"
    (outside / "mine.running").mkdir(parents=True)
    (outside / "index.html").write_text("mine")
    ways = rng.sample(_WAYS, rng.choice([1, 1, 1, 2, 3]))
    for spoil in sorted(ways, key=_WAYS.index):  # what has to read a file comes first
        spoil(rng, path, outside)
    before = _beside(scratch)
    answers = [_ask(question, Results(path), Results(whole), scratch) for question in _QUESTIONS]
    assert _beside(scratch) == before
    return "all answered" if all(answers) else "refused" if not any(answers) else "part answered"


def _ask(
    question: Callable[[Results, Results, Path], object],
    results: Results,
    whole: Results,
    scratch: Path,
) -> bool:
    try:
        question(results, whole, scratch)
    except LabError as error:
        assert len(str(error)) < 20_000
        return False
    return True


def _report(results: Results, _whole: Results, _scratch: Path) -> None:
    study = gather(results)
    publish(study, results)
    PerfettoFormat().write(study, results)


_QUESTIONS: list[Callable[[Results, Results, Path], object]] = [
    lambda results, whole, scratch: read_progress(results),
    _report,
    lambda results, whole, scratch: compare_results(results, whole),
    lambda results, whole, scratch: query([catalogue(results)], "SELECT * FROM runs"),
    lambda results, whole, scratch: export_results(results, scratch / "archive.tar.zst"),
]


def _beside(scratch: Path) -> dict[str, int]:
    """Return what there is beside the results, with sizes; the archive is ours to write."""
    sizes = {}
    for folder in ("outside", "whole"):
        for path in (scratch / folder).rglob("*"):
            sizes[str(path)] = path.lstat().st_size
    return sizes | {path.name: 0 for path in scratch.iterdir() if path.name != "archive.tar.zst"}


def _json(rng: random.Random, path: Path) -> Path:
    return rng.choice(sorted(path.rglob("*.json")))


def _file(rng: random.Random, path: Path) -> Path:
    return rng.choice(sorted(entry for entry in path.rglob("*") if entry.is_file()))


def _value(rng: random.Random, path: Path, _outside: Path) -> None:
    """Put something hostile in the place of a value, somewhere in a document."""
    target = _json(rng, path)
    document = json.loads(target.read_text())
    for _ in range(rng.choice([1, 1, 5])):
        place: Any = document
        while isinstance(place, dict | list) and place:
            key: Any = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
            if not isinstance(place[key], dict | list) or rng.random() < 0.1:
                place[key] = rng.choice(HOSTILE)
                break
            place = place[key]
    target.write_text(json.dumps(document))


def _key(rng: random.Random, path: Path, _outside: Path) -> None:
    """Take a key away, or a whole part."""
    target = _json(rng, path)
    place: Any = json.loads(target.read_text())
    document = place
    while isinstance(place, dict | list) and place:
        key: Any = rng.choice(list(place) if isinstance(place, dict) else range(len(place)))
        if rng.random() < 0.4:
            del place[key]
            break
        place = place[key]
    target.write_text(json.dumps(document))


def _literal(rng: random.Random, path: Path, _outside: Path) -> None:
    """Put a literal that Python's own writer would not write in the place of a number."""
    target = _json(rng, path)
    parts = target.read_text().split(": ")
    place = rng.randrange(1, max(2, len(parts)))
    if place < len(parts):
        _, comma, rest = parts[place].partition(",")
        parts[place] = rng.choice(LITERALS) + comma + rest
    target.write_text(": ".join(parts))


def _flip(rng: random.Random, path: Path, _outside: Path) -> None:
    target = _file(rng, path)
    data = bytearray(target.read_bytes())
    for _ in range(rng.choice([1, 10, 500])):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    target.write_bytes(data)


def _cut(rng: random.Random, path: Path, _outside: Path) -> None:
    target = _file(rng, path)
    os.truncate(target, rng.randrange(target.stat().st_size + 1))


def _replace(rng: random.Random, path: Path, outside: Path) -> None:
    """Put a folder, a pipe, a link, a device or nothing in the place of a file."""
    target = _file(rng, path)
    target.unlink()
    match rng.randrange(5):
        case 0:
            target.mkdir()
        case 1:
            os.mkfifo(target)
        case 2:
            target.symlink_to(outside / "index.html")
        case 3:
            target.symlink_to("/dev/zero")


def _swap(rng: random.Random, path: Path, _outside: Path) -> None:
    """Put one file in the place of another."""
    _file(rng, path).write_bytes(_file(rng, path).read_bytes())


def _name(rng: random.Random, path: Path, outside: Path) -> None:
    """Add folders and files with names that no result has, and links to other folders."""
    for name in rng.sample([b"caf\xe9", b"a\nb", b"\x1b[2J", b".hidden", b"x.running", b"-rf"], 3):
        folder = Path(os.fsdecode(bytes(path / "runs") + b"/" + name))
        folder.mkdir(exist_ok=True)
        (folder / "manifest.json").write_text(rng.choice(["{}", "", "null"]))
    with_link = rng.choice([path / "cells", path / "index.html", path / ".catalogue", path / "x"])
    with_link.symlink_to(outside)


def _rename(rng: random.Random, path: Path, outside: Path) -> None:
    """Name a run, a label, a variant or a topology as a way out, wherever it is named."""
    old = rng.choice(["ring-4_bound-hogs_before_1", "bound-hogs", "before", "ring-4"])
    new = rng.choice(["../../outside/mine", "../../../outside", str(outside), "x/../../y"])
    for target in path.rglob("*.json"):
        text = target.read_text()
        target.write_text(text.replace(json.dumps(old), json.dumps(new)))


def _number_of_runs(rng: random.Random, path: Path, _outside: Path) -> None:
    """Plan a run twice, or very many."""
    plan = json.loads((path / "plan.json").read_text())
    plan["runs"] *= rng.choice([0, 2, 1000])
    (path / "plan.json").write_text(json.dumps(plan))


def _columns(rng: random.Random, path: Path, _outside: Path) -> None:
    """Take a column out of a table, or give it another type."""
    target = rng.choice(sorted(path.rglob("*.parquet")))
    table = pl.read_parquet(target)
    for name in rng.sample(table.columns, rng.choice([1, 1, 3])):
        kinds = (None, pl.String, pl.Float64, pl.Boolean, pl.Binary, pl.List(pl.Int8))
        match rng.choice(kinds):
            case None:
                table = table.drop(name)
            case kind:
                table = table.with_columns(pl.lit(None).cast(kind).alias(name))
    table.write_parquet(target)


_WAYS = [
    _columns, _columns, _number_of_runs, _rename, _value, _value, _value, _key, _key, _name,
    _literal, _swap, _flip, _flip, _cut, _replace,
]  # fmt: skip
