"""What the analysis leaves is what a report is made of, without events and kernel log."""

from pathlib import Path

import polars as pl
import pytest

from numalab.analysis.analyse import analyse
from numalab.errors import UserError
from numalab.recording.recording import Recording
from numalab.report.build.study import gather
from numalab.results.layout import Results
from numalab.results.reader import load_domains, load_manifest, load_run, load_timeline
from numalab.results.run_files import scan_events
from numalab.results.stored_analysis import save_analysis, save_domains
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from support.example_results import RUNS, copy_example


@pytest.fixture
def copied(tmp_path: Path) -> Results:
    return Results(copy_example(tmp_path / "results"))


def store(directory: RunDir) -> None:
    """Analyse a run of an older numalab from its events."""
    workload, before = load_manifest(directory).workload, load_run(directory).measures
    analysis = analyse(
        Recording(
            scan_events(directory),
            load_topology("ring-4"),
            tasks=workload.tasks,
            allowed_cpus=workload.allowed_cpus or None,
        )
    )
    kept = directory.analysis.read_bytes(), directory.measures.read_bytes()
    save_analysis(directory, analysis)
    assert load_run(directory).value("task_node_migrations") == before["task_node_migrations"].value
    directory.analysis.write_bytes(kept[0])
    directory.measures.write_bytes(kept[1])
    save_domains(directory, load_domains(directory))


def test_a_report_needs_neither_events_nor_log_where_they_are_stored(copied: Results) -> None:
    expected = gather(copied)
    for name in RUNS:
        directory = copied.run(name)
        store(directory)
        directory.events.unlink()
        directory.dmesg.unlink()
    assert gather(copied) == expected
    assert all(report.timelines and report.sched_domains[0].cpus for report in expected)


def test_without_both_it_says_what_is_missing(copied: Results) -> None:
    directory = copied.run(RUNS[0])
    directory.events.unlink()
    with pytest.raises(UserError, match=r"events\.parquet: no such file"):
        load_timeline(directory, ())


def test_a_damaged_timeline(copied: Results) -> None:
    directory = copied.run(RUNS[0])
    store(directory)
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
