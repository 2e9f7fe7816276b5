"""Files of a run's analysis: measures, findings, sched domains, and the timeline.

A report is made of these files alone, but for the timeline of a recording that is longer than the
analysis holds at once: `reader` makes it from the events.
"""

import json
from dataclasses import asdict

import polars as pl
from pydantic import TypeAdapter

from numalab.analysis.analyse import Analysis
from numalab.analysis.findings import read_findings
from numalab.errors import WorkloadFailed
from numalab.files import bound_json, replacing, utf8_path, write_json, write_text
from numalab.measure import LARGEST_NUMBER
from numalab.parquet import collect, scan_parquet
from numalab.recording.timeline import SPANS, Mark, RunTimeline
from numalab.results.stored import StoredMeasure
from numalab.run_dir import RunDir
from numalab.topology.sched_domains import SchedLog, render_domains

_MARKS = TypeAdapter(tuple[Mark, ...])
_MOST_SPANS = 2_000_000
_MOST_MARK_VALUES = 10_000
_NEVER_NULL = ("cpu", "start_ns", "end_ns", "pid", "of_interest")


def save_analysis(directory: RunDir, analysis: Analysis) -> None:
    """Write measures.json, analysis.json and, where it is known who ran, timeline.parquet.

    Raises WorkloadFailed for numbers that no reader takes: a guest may leave any, and one run must
    not spoil the report of the others.
    """
    stored = [StoredMeasure.of(measure).model_dump() for measure in analysis.measures]
    for measure in analysis.measures:
        if measure.value is not None and not abs(measure.value) < LARGEST_NUMBER:
            raise WorkloadFailed(
                f"{measure.name} is {str(measure.value)[:20]}..., out of all bounds"
            )
    # Without the blanks that would double its size.
    findings = json.dumps(asdict(analysis.findings), separators=(",", ":"))
    try:
        read_findings(findings.encode())
    except ValueError as error:
        raise WorkloadFailed(f"what was found in the run cannot be: {error}") from None
    write_text(directory.analysis, findings + "\n")
    if (timeline := analysis.timeline) is not None:
        about = {
            "length_ns": str(timeline.length_ns),
            "marks": _MARKS.dump_json(timeline.marks).decode(),
        }
        with replacing(directory.timeline) as temporary:
            timeline.spans.write_parquet(utf8_path(temporary), metadata=about)
    write_json(directory.measures, stored)


def read_timeline(directory: RunDir) -> RunTimeline:
    """Read a timeline that `save_analysis` wrote.

    Raises ValueError, OSError or PolarsError for a damaged file.
    """
    table = scan_parquet(directory.timeline, most_rows=_MOST_SPANS)
    about = pl.read_parquet_metadata(utf8_path(directory.timeline))
    if missing := {"length_ns", "marks"} - about.keys():
        raise ValueError(f"without {', '.join(sorted(missing))}")
    if table.collect_schema() != pl.Schema(SPANS):
        raise ValueError("other columns than a timeline has")
    marks = bound_json(about["marks"].encode(), _MOST_MARK_VALUES).decode()
    spans = collect(table)
    if any(spans.select(_NEVER_NULL).null_count().row(0)):
        raise ValueError("a span without a CPU, a time or a task")
    length = int(about["length_ns"])
    within = (pl.col("start_ns") >= 0) & (pl.col("end_ns") <= length)
    if not spans.select(within.all()).item() or length < 0:
        raise ValueError("a span outside the window")
    return RunTimeline(length, spans, _MARKS.validate_json(marks))


def save_domains(directory: RunDir, log: SchedLog) -> None:
    """Write domains.json: the sched domains that a guest's kernel printed."""
    write_text(directory.domains, render_domains(log))
