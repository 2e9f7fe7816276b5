"""Measures that were added after the runs are computed from stored events, and merged."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from numalab.analysis.measures.family import explain
from numalab.api import Recording, register_measure
from numalab.campaign.added_measures import EVENTS, WHAT_IT_NAMES, Lacking, add_measures
from numalab.campaign.verify import compare_runs
from numalab.cli.results.measure import command
from numalab.errors import UserError
from numalab.report.build.study import gather
from numalab.results.archive import export_compact, export_results, import_results
from numalab.results.layout import Results
from numalab.results.query import catalogue, query
from numalab.results.reader import load_runs
from numalab.topology.load import load_topology, topology_to_dict
from numalab.workload.workload import load_workload, resolve
from support.example_results import EXAMPLE, RUNS, copy_example
from support.one_command import invoke

pytestmark = pytest.mark.usefixtures("without_plugins")


def _moves_between_marks(run: str) -> int:
    """Count in the committed events of a run, without numalab's own readers."""
    events = pl.read_parquet(EXAMPLE / "runs" / run / "events.parquet")
    begin, end = events.filter(pl.col("event") == "print")["time_ns"]
    inside = pl.col("time_ns").is_between(begin, end)
    return events.filter(inside & (pl.col("event") == "sched_migrate_task")).height


MOVES = {run: _moves_between_marks(run) for run in RUNS}

SWAPPED = """
summary = "s"
nodes = 2
cpus = ["2-7", "0-1"]
memory_mib = 512
matrix = [[10, 20], [20, 10]]
"""


@pytest.fixture
def stored(tmp_path: Path) -> Results:
    return Results(copy_example(tmp_path / "results"))


def register(name: str, events: list[str], value: Callable[[Recording], Any] | None = None) -> None:
    def compute(run: Recording) -> Any:
        """How often it happened."""
        return run.events(*events).height if value is None else value(run)

    register_measure(name, unit="events", events=events)(compute)


@pytest.fixture
def moves(without_plugins: None) -> None:
    register("moves", ["sched_migrate_task"])


def values(results: Results, name: str) -> dict[str, Any]:
    return {run.id: run.value(name) for run in load_runs(results)[1]}


@pytest.mark.usefixtures("moves")
def test_every_reader_has_the_added_measure(stored: Results, tmp_path: Path) -> None:
    before = [stored.run(run).measures.read_bytes() for run in RUNS]
    sql = "SELECT run, value FROM measures WHERE measure = 'moves' ORDER BY run DESC"
    assert query([catalogue(stored)], sql).is_empty()
    add_measures(stored)
    assert [stored.run(run).measures.read_bytes() for run in RUNS] == before
    assert values(stored, "moves") == MOVES
    assert dict(query([catalogue(stored)], sql).iter_rows()) == MOVES
    (report,) = gather(stored)
    assert "moves" in {info.name for info in report.measures}
    export_results(stored, tmp_path / "a.tar.zst")
    assert values(import_results(tmp_path / "a.tar.zst", tmp_path / "imported"), "moves") == MOVES


@pytest.mark.usefixtures("moves")
def test_the_same_measure_again_gives_the_same_bytes(stored: Results) -> None:
    path = stored.run(RUNS[0]).added_measures
    add_measures(stored)
    first = path.read_bytes()
    add_measures(stored)
    assert path.read_bytes() == first
    register("wake_ups", ["sched_wakeup"])
    add_measures(stored, ["wake_ups"])
    assert [measure["name"] for measure in json.loads(path.read_bytes())] == ["moves", "wake_ups"]


@pytest.mark.usefixtures("moves")
def test_verify_does_not_compare_an_added_measure(stored: Results, tmp_path: Path) -> None:
    repeated = {
        run.id: replace(run, manifest=run.manifest.but(started="2099-01-01T00:00:00+00:00"))
        for run in load_runs(stored)[1]
    }
    add_measures(stored)
    compact = Results(tmp_path / "compact")
    export_compact(stored, compact)
    assert values(compact, "moves") == MOVES
    for results in (stored, compact):
        for run in load_runs(results)[1]:
            assert run.added == {"moves"}
            assert compare_runs(run, repeated, {}).identical
    for run in load_runs(compact)[1]:
        other = compare_runs(run, {run.id: replace(repeated[run.id], measures={})}, {})
        assert not other.identical and other.error == "there was nothing to compare"


def test_a_measure_of_the_run_itself_never_changes(stored: Results) -> None:
    directory = stored.run(RUNS[0])
    measures = json.loads(directory.measures.read_bytes())
    name, value = measures[0]["name"], measures[0]["value"]
    directory.added_measures.write_text(json.dumps([{**measures[0], "value": value + 1}]))
    run = next(run for run in load_runs(stored)[1] if run.id == RUNS[0])
    assert run.value(name) == value and not run.added
    assert not add_measures(stored, [name]).measures


def test_nodes_have_the_numbers_of_the_guest(stored: Results) -> None:
    """The kernel counts nodes by their CPUs: node 1 of this file, with CPU 0, is its node 0."""
    removed: dict[str, dict[str, Any]] = {}
    for run in map(stored.run, RUNS):
        manifest = json.loads(run.manifest.read_bytes())
        first, second = manifest["machine"]["nodes"][:2]
        first["cpus"], second["cpus"] = second["cpus"], first["cpus"]
        run.manifest.write_text(json.dumps(manifest))
        measures = json.loads(run.measures.read_bytes())
        gone = {m["name"]: m["value"] for m in measures if m["name"].startswith("tasks_final_node")}
        run.measures.write_text(json.dumps([m for m in measures if m["name"] not in gone]))
        removed[run.path.name] = gone
    added = add_measures(stored).measures
    assert {run: {m.name: m.value for m in added[run]} for run in RUNS} == removed
    finals = removed[RUNS[1]]
    assert finals["tasks_final_node1"] != finals["tasks_final_node0"]


@pytest.mark.parametrize("text", ["", "{}", "[7]", '[{"name": "moves"}]'])
def test_damaged_added_measures(stored: Results, text: str) -> None:
    stored.run(RUNS[0]).added_measures.write_text(text)
    with pytest.raises(UserError, match=r"added-measures\.json: a file of these .* damaged"):
        load_runs(stored)


def test_added_measures_are_no_link(stored: Results, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("[]")
    stored.run(RUNS[0]).added_measures.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="damaged"):
        load_runs(stored)


def test_runs_without_the_data_are_named(stored: Results) -> None:
    register("user_faults", ["page_fault_user"])
    register("moves", ["sched_migrate_task"])
    stored.run(RUNS[1]).events.unlink()
    added = add_measures(stored)
    assert [measure.name for measure in added.measures[RUNS[0]]] == ["moves"]
    lacking = {(entry.measure, entry.needs, entry.runs) for entry in added.lacking}
    assert lacking == {
        ("user_faults", ("page_fault_user",), (RUNS[0],)),
        ("", (EVENTS,), (RUNS[1],)),
    }
    named = invoke(command, stored.path, "--measure", "user_faults")
    assert named.exit_code == 1 and "user_faults: without page_fault_user" in named.stderr
    assert invoke(command, stored.path).exit_code == 0


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("task_faults_preferred", ("guest: /proc/PID/sched",)),
        ("numa_moves_nearer", ("guest: /proc/PID/sched",)),
        ("memory_local_share", ("memory model: counts",)),
        ("perf_cycles", ("perf stat",)),
        ("task_busy_share_cpu99", (WHAT_IT_NAMES,)),
    ],
)
def test_a_measure_whose_data_no_run_has_is_told(
    stored: Results, name: str, needs: tuple[str, ...]
) -> None:
    added = add_measures(stored, [name])
    assert added.measures == {}
    assert added.lacking == (Lacking(name, needs, RUNS),)


def test_a_cpu_that_only_a_larger_machine_has_is_no_lack(stored: Results) -> None:
    first, second = map(stored.run, RUNS)
    measures = json.loads(first.measures.read_bytes())
    share = next(entry for entry in measures if entry["name"] == "task_busy_share_cpu3")
    first.measures.write_text(json.dumps([*measures, {**share, "name": "task_busy_share_cpu99"}]))
    added = add_measures(stored, ["task_busy_share_cpu99"])
    assert not added.measures and not added.lacking, second.path


@pytest.mark.parametrize("name", ["memory-users", "full-node"])
def test_passes_over_the_memory_are_of_the_workload_of_the_run(
    stored: Results, name: str, tmp_path: Path
) -> None:
    """The workload of the second run has other parameters in the lab of today.

    The kernel's number of the machine's node 1 is 0; full-node counts the CPUs of node 1.
    """
    file = tmp_path / "swapped.toml"
    file.write_text(SWAPPED)
    machine = load_topology(str(file))
    workload = resolve(load_workload(name), {}, machine)
    plan = json.loads(stored.plan_file.read_bytes())
    plan["file"]["workloads"] = [{"name": name, "label": "bound-hogs"}]
    stored.plan_file.write_text(json.dumps(plan))
    for run, more in zip(map(stored.run, RUNS), ({}, {"other": 7}), strict=True):
        manifest = json.loads(run.manifest.read_bytes())
        manifest["workload"]["parameters"] = {**workload.parameters, **more}
        manifest["machine"] = topology_to_dict(machine)
        run.manifest.write_text(json.dumps(manifest))
        run.vmstat_before.write_text("numa_pte_updates 100\n")
        marked = int(100 + 2 * 256 * workload.memory_mib)
        run.vmstat_after.write_text(f"numa_pte_updates {marked}\n")
    added = add_measures(stored, ["numa_scan_passes"])
    ((measure,),) = added.measures.values()
    assert measure.value == 2 and list(added.measures) == [RUNS[0]]
    (lacking,) = added.lacking
    assert lacking.runs == (RUNS[1],)
    assert "guest: memory_mib of the workload" in lacking.needs


def test_an_optional_event_that_the_kernel_may_lack_is_no_zero(stored: Results) -> None:
    register("cpuset_skips", ["sched_skip_cpuset_numa"])
    (lacking,) = add_measures(stored).lacking
    assert lacking.needs == ("sched_skip_cpuset_numa",)


def test_compact_results_have_no_events(stored: Results, tmp_path: Path) -> None:
    compact = Results(tmp_path / "compact")
    export_compact(stored, compact)
    with pytest.raises(UserError, match=r"compact results have no events: .*--output FOLDER"):
        add_measures(compact)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda _: 1 << 70, "out of all bounds"),
        (lambda _: float("nan"), "gave float 'nan', not a finite number"),
        (lambda _: 10**400, "gave int '1000*', not a finite number"),
        (lambda _: 10**9999, "gave int 'of many digits', not a finite number"),
        (lambda _: sys.exit(3), "failed: SystemExit: 3"),
        (lambda _: "many", "gave str 'many', not a finite number"),
        (lambda run: run.samples.tasks, "failed: AttributeError"),
        (lambda run: run.events().select("nothing"), "failed: ColumnNotFoundError"),
    ],
)
def test_a_measure_that_fails_is_one_message(
    stored: Results, value: Callable[[Recording], Any], reason: str
) -> None:
    register("broken", ["sched_switch"], value)
    (message,) = add_measures(stored, ["broken"]).failed
    assert re.search(f"the measure 'broken' .*{reason}", message)
    assert not stored.run(RUNS[0]).added_measures.exists()


@pytest.mark.usefixtures("moves")
def test_a_measure_that_fails_does_not_stop_the_others(stored: Results) -> None:
    register("broken", ["sched_switch"], lambda _: "many")
    register("later", ["sched_migrate_task"])
    done = invoke(command, stored.path, "--json")
    assert done.exit_code == 2
    assert done.stderr.count("numalab: ") == 1
    assert f"{__file__}: the measure 'broken' gave str 'many'" in done.stderr
    document = json.loads(done.stdout)
    assert [measure["name"] for measure in document["measures"]] == ["moves", "later"]
    assert len(document["failed"]) == 1
    assert values(stored, "moves") == values(stored, "later") == MOVES
    assert invoke(command, stored.path, "--measure", "moves").exit_code == 0


def test_damaged_events_are_one_message(stored: Results) -> None:
    register("moves", ["sched_migrate_task"])
    path = stored.run(RUNS[0]).events
    pl.read_parquet(path).drop("event").write_parquet(path)
    with pytest.raises(UserError, match="damaged"):
        add_measures(stored)
    data = bytearray(path.read_bytes())
    data[100:900] = bytes(800)
    path.write_bytes(data)
    with pytest.raises(UserError, match="damaged"):
        add_measures(stored)


def test_an_unknown_measure_is_refused(stored: Results) -> None:
    with pytest.raises(UserError, match="no measure is called 'movez'"):
        add_measures(stored, ["movez"])


@pytest.mark.usefixtures("moves")
def test_the_command_prints_the_range_and_json(stored: Results) -> None:
    assert explain("moves").unit == "events"
    line = invoke(command, stored.path).stdout.splitlines()[1]
    lowest, highest = sorted(MOVES.values())
    assert line.split() == ["moves", "events", "2", str(lowest), str(highest)]
    document = json.loads(invoke(command, stored.path, "--json", "--measure", "moves").stdout)
    assert document["measures"] == [{"name": "moves", "unit": "events", "values": MOVES}]
    assert document["lacking"] == []
