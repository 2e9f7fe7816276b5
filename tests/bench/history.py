"""The history of `make bench`: one JSON line a run, its table, and its picture.

docs/results/speed.md documents the lines.
"""

import json
import os
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import vl_convert
from pydantic import BaseModel, ConfigDict

from bench.rows import BY_KEY, ROWS, Figure
from numalab.doctor.checks import components
from numalab.places import shipped_dir
from numalab.process import find_program, run
from numalab.report.page.charts import VEGA_LITE

RESULTS = shipped_dir() / "docs" / "results"
PAGE, LINES, PICTURE = (RESULTS / f"speed.{suffix}" for suffix in ("md", "jsonl", "svg"))
_BEGIN, _END = "<!-- table of make bench -->\n", "<!-- end of the table -->\n"
_CHARTS_IN_A_ROW = 3


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MachineFacts(_Model):
    """The host of a run: `load` is the load average of the last minute before it."""

    cpu: str
    cpus: int
    memory_mib: int | None = None
    load: float


class Value(_Model):
    """A figure in the unit of its row; `ratio` is ours in multiples of the reference."""

    ours: float
    reference: float | None = None
    ratio: float | None = None


class Line(_Model):
    """One run of `make bench`."""

    date: datetime
    machine: MachineFacts
    versions: dict[str, str]
    rows: dict[str, Value]


def facts() -> MachineFacts:
    """Describe this host."""
    text = Path("/proc/cpuinfo").read_text("utf-8")
    name = re.search(r"^model name\s*:\s*(.*)$", text, re.M)
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return MachineFacts(
        cpu=name[1] if name else platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        memory_mib=pages >> 20,
        load=round(os.getloadavg()[0], 2),
    )


def line(figures: Iterable[Figure], machine: MachineFacts) -> Line:
    """Return the line of a run that ends now."""
    commit = run(
        [find_program("git", "git"), "describe", "--always", "--dirty"], cwd=shipped_dir()
    ).stdout.strip()
    versions = {"numalab": commit, "python": platform.python_version()}
    versions |= {name.lower(): text for name, text in components()}
    rows = {
        figure.key: Value(
            ours=round(figure.ours, 4),
            reference=None if figure.reference is None else round(figure.reference, 4),
            ratio=None if figure.ratio is None else round(figure.ratio, 4),
        )
        for figure in figures
    }
    now = datetime.now(UTC).replace(microsecond=0)
    return Line(date=now, machine=machine, versions=versions, rows=rows)


def read(path: Path = LINES) -> tuple[Line, ...]:
    """Return all lines, the oldest first; none if there is no file."""
    texts = path.read_text("utf-8").splitlines() if path.exists() else []
    return tuple(Line.model_validate_json(text) for text in texts)


def keep(lines: Sequence[Line], last: Line) -> None:
    """Append a line to the history; write the table of the newest figures and the picture."""
    with LINES.open("a", encoding="utf-8") as file:
        file.write(last.model_dump_json(exclude_none=True) + "\n")
    lines = (*lines, last)
    PAGE.write_text(with_table(PAGE.read_text("utf-8"), table(lines)), "utf-8")
    PICTURE.write_text(draw(lines), "utf-8")


def table(lines: Sequence[Line]) -> str:
    """Return a Markdown table with the newest figure of each row that was ever measured."""
    newest = {key: (entry, value) for entry in lines for key, value in entry.rows.items()}
    texts = [
        "| what | ours | reference | ratio | target | | measured |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in ROWS:
        if row.key not in newest:
            continue
        entry, value = newest[row.key]
        figure = Figure(row.key, value.ours, value.reference)
        beside = "" if value.reference is None else f"{amount(value.reference)} {row.unit}"
        what = f"{row.what} / {row.reference}" if beside else row.what
        ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
        share = row.share(figure)
        verdict = "" if share is None else "met" if share <= 1 else "missed"
        target = row.target if share is not None or not row.of_ratio else ""
        cells = (
            what, f"{amount(value.ours)} {row.unit}", beside, ratio, target, verdict,
            f"{entry.date:%Y-%m-%d}, {entry.machine.cpus} CPUs, load {entry.machine.load:.1f}",
        )  # fmt: skip
        texts.append(_row(cells))
    return "\n".join(texts) + "\n"


def _row(cells: Iterable[str]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


def amount(value: float) -> str:
    """Write a figure with three digits, or as a whole number."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def with_table(page: str, text: str) -> str:
    """Return the page with another table between its two marks. Raises ValueError without them."""
    head, begin, rest = page.partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks {_BEGIN.strip()} or {_END.strip()}")
    return f"{head}{begin}\n{text}\n{end}{tail}"


def draw(lines: Sequence[Line]) -> str:
    """Return an SVG: a chart for each row with a target, its figures in multiples of the target."""
    values = [
        {
            "row": BY_KEY[key].label,
            "date": entry.date.isoformat(),
            "share": BY_KEY[key].share(Figure(key, value.ours, value.reference)),
        }
        for entry in lines
        for key, value in entry.rows.items()
        if key in BY_KEY
    ]
    values = [value for value in values if value["share"] is not None]
    order = [row.label for row in ROWS]
    share = {
        "field": "share",
        "type": "quantitative",
        "title": None,
        "scale": {"type": "log"},
        "axis": {"tickCount": 3, "grid": False},
    }
    date = {"field": "date", "type": "temporal", "title": None, "axis": {"tickCount": 4}}
    spec: dict[str, Any] = {
        "title": "Figures in multiples of their target: 1 and less meets it",
        "background": "white",
        "data": {"values": values},
        "columns": _CHARTS_IN_A_ROW,
        "facet": {"field": "row", "type": "nominal", "title": None, "sort": order},
        "spec": {
            "width": 250,
            "height": 80,
            "layer": [
                {
                    "mark": {"type": "line", "point": True},
                    "encoding": {"x": date, "y": share},
                },
                {"mark": {"type": "rule", "strokeDash": [4, 3]}, "encoding": {"y": {"datum": 1}}},
            ],
        },
        "resolve": {"scale": {"y": "independent"}},
    }
    svg: str = vl_convert.vegalite_to_svg(json.dumps(spec), vl_version=VEGA_LITE)
    return svg
