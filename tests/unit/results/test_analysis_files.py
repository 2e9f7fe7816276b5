"""The files of the analysis are enough for a report, without events and kernel log."""

from pathlib import Path

import polars as pl
import pytest

from numalab.analysis.analyse import analyse
from numalab.errors import UserError
from numalab.recording.recording import Recording
from numalab.report.build.study import gather
from numalab.results.layout import Results
from numalab.results.reader import load_domains, load_manifest, load_timeline
from numalab.results.run_files import scan_events
from numalab.topology.load import load_topology
from support.example_results import RUNS, copy_example


@pytest.fixture
def copied(tmp_path: Path) -> Results:
    return Results(copy_example(tmp_path / "results"))


def test_the_analysis_of_the_events_gives_the_stored_timeline(copied: Results) -> None:
    directory = copied.run(RUNS[0])
    workload, stored = load_manifest(directory).workload, load_timeline(directory, ())
    analysis = analyse(
        Recording(
            scan_events(directory).collect(),
            load_topology("ring-4"),
            tasks=workload.tasks,
            allowed_cpus=workload.allowed_cpus,
        )
    )
    directory.timeline.unlink()
    for timeline in (analysis.timeline, load_timeline(directory, workload.tasks)):
        assert timeline is not None and stored is not None
        assert (timeline.length_ns, timeline.marks) == (stored.length_ns, stored.marks)
        assert timeline.spans.equals(stored.spans)


def test_a_report_needs_neither_events_nor_kernel_log(copied: Results) -> None:
    expected = gather(copied)
    for name in RUNS:
        copied.run(name).events.unlink()
        copied.run(name).dmesg.unlink()
    assert gather(copied) == expected
    assert all(report.timelines and report.sched_domains[0].cpus for report in expected)


def test_without_timeline_and_events_the_message_names_the_events(copied: Results) -> None:
    directory = copied.run(RUNS[0])
    directory.events.unlink()
    directory.timeline.unlink()
    with pytest.raises(UserError, match=r"events\.parquet: no such file"):
        load_timeline(directory, ())


def test_a_damaged_timeline(copied: Results) -> None:
    directory = copied.run(RUNS[0])
    whole = pl.read_parquet(directory.timeline)
    about = pl.read_parquet_metadata(directory.timeline)
    kept = {key: about[key] for key in ("length_ns", "marks")}
    for spoiled, with_ in (
        (whole, {}),
        (whole, {**kept, "length_ns": "long"}),
        (whole, {**kept, "marks": "[7]"}),
        (whole.drop("pid"), kept),
        (whole.with_columns(cpu=pl.lit(None, pl.Int16)), kept),
        (whole.with_columns(start_ns=pl.col("start_ns") - 1), kept),
        (whole, {**kept, "length_ns": "1"}),
        (whole.clear(), {**kept, "length_ns": "-1"}),
    ):
        spoiled.write_parquet(directory.timeline, metadata=with_)
        with pytest.raises(UserError, match=r"timeline\.parquet: a file of these .* damaged"):
            load_timeline(directory, ())
    directory.timeline.write_bytes(b"PAR1")
    with pytest.raises(UserError, match="damaged"):
        load_timeline(directory, ())


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"cpus": 1}', '{"cpus": [{"cpu": -1, "domains": []}], "errors": []}']
)
def test_damaged_domains(copied: Results, text: str) -> None:
    directory = copied.run(RUNS[0])
    directory.domains.write_text(text)
    with pytest.raises(UserError, match=r"domains\.json: a file of these results is damaged"):
        load_domains(directory)
