"""What a guest left of a run is read once, and becomes all that a report needs."""

from dataclasses import replace
from pathlib import Path

import pytest

from numalab.analysis.analyse import Analysis
from numalab.capture.spec import CaptureSpec, TraceEvent
from numalab.errors import WorkloadFailed
from numalab.results.reader import load_findings, load_run, load_timeline
from numalab.results.run_files import RunFiles
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from numalab.topology.sched_domains import parse_domains
from numalab.workload.workload import load_workload, resolve
from numalab.workload.workload_table import MetricTable
from support.example_results import RUNS, copy_example

CAPTURE = CaptureSpec(
    tuple(TraceEvent(f"sched:{name}") for name in ("sched_switch", "sched_migrate_task"))
)


@pytest.fixture
def directory(tmp_path: Path) -> RunDir:
    """Return a run as it is before it has been analysed, with what its guest would leave."""
    directory = RunDir(copy_example(tmp_path / "results") / "runs" / RUNS[0])
    for path in (directory.analysis, directory.measures):
        path.unlink()
    for path, growth in ((directory.vmstat_before, 0), (directory.vmstat_after, 7)):
        path.write_text(f"numa_hint_faults {10 + growth}\n")
    for node in range(4):
        (directory.sysfs / f"node{node}").mkdir(parents=True)
        (directory.sysfs / f"node{node}" / "cpulist").write_text(f"{2 * node}-{2 * node + 1}\n")
    directory.sched_domains.write_text("/sys/kernel/debug/sched/domains/cpu7/domain0/flags:SD_X \n")
    directory.stdout.write_text(
        "hog 0 pid 7 cpu_seconds 1.5 last_cpu 2 loops 9\ntotal loops 9 per_second 12.5\n"
    )
    return directory


def measure(files: RunFiles, capture: CaptureSpec = CAPTURE) -> Analysis:
    topology = load_topology("ring-4")
    parameters: dict[str, str | int | float] = {"start_node": 1, "allowed_nodes": "1,3"}
    workload = resolve(load_workload("bound-hogs"), parameters, topology)
    return files.measure(topology, workload, capture)


def test_measures_findings_timeline_and_domains_are_written(directory: RunDir) -> None:
    expected = load_timeline(directory, ["hog"])
    measure(RunFiles(directory))
    run = load_run(directory)
    assert run.value("vmstat_numa_hint_faults") == 7
    assert run.value("throughput") == 12.5
    assert run.value("task_time_share_node3") == 0  # that of the committed run
    findings = load_findings(directory)
    assert findings is not None
    assert findings.nodes == (0, 1, 2, 3)
    stored = load_timeline(directory, ())
    assert expected is not None and stored is not None
    assert stored.spans.equals(expected.spans)
    assert (stored.length_ns, stored.marks) == (expected.length_ns, expected.marks)
    domains = parse_domains(directory.domains.read_bytes())
    assert [cpu.cpu for cpu in domains.cpus] == [*range(8)]
    assert [cpu.domains[0].flags for cpu in domains.cpus[6:]] == [(), ("SD_X",)]


def test_an_event_that_was_not_recorded_gives_none_and_not_0(directory: RunDir) -> None:
    measure(RunFiles(directory))
    assert load_run(directory).value("sched_stick_numa") is None


@pytest.mark.parametrize("name", ["sched:sched_switch", "sched"])
def test_by_an_event_with_a_filter_nothing_is_measured(directory: RunDir, name: str) -> None:
    """Its rows are some of the switches: the task before would seem to run on."""
    filtered = TraceEvent(name, "next_pid != 0")
    events = (TraceEvent("sched:sched_switch"), TraceEvent("sched:sched_migrate_task"), filtered)
    analysis = measure(RunFiles(directory), CaptureSpec(events))
    run = load_run(directory)
    assert run.value("task_time_share_node3") is None
    assert (run.value("task_migrations") is None) == (name == "sched")
    assert analysis.notes[0] == "sched_switch was filtered: nothing is measured by it"
    assert analysis.findings.residence == ()
    assert not [note for note in analysis.findings.notes if "sched_switch" in note]


@pytest.mark.parametrize("version", [16, 18])
def test_counters_that_cannot_be_read_are_a_note(directory: RunDir, version: int) -> None:
    for path, waited in ((directory.schedstat_before, 0), (directory.schedstat_after, 6)):
        path.write_text(f"version {version}\ncpu0 0 0 0 0 0 0 1 {waited} {waited}\n")
    notes = measure(RunFiles(directory)).notes
    assert [note.partition(" has ")[0] for note in notes] == ["/proc/schedstat"] * (version == 18)
    assert load_run(directory).value("schedstat_wait_mean") == (1e-6 if version == 16 else None)


def test_the_log_is_read_once(directory: RunDir) -> None:
    files = RunFiles(directory)
    view = files.guest_view
    directory.dmesg.unlink()
    measure(files)
    assert files.guest_view is view
    assert view.sched_log.cpus
    assert [node.cpus for node in view.nodes] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_a_metric_that_was_not_printed_is_the_workloads_failure(directory: RunDir) -> None:
    directory.stdout.write_text("nothing\n")
    with pytest.raises(WorkloadFailed, match="hog_cpu_time"):
        measure(RunFiles(directory))
    assert not directory.measures.exists()


@pytest.mark.parametrize("printed", ["9" * 300 + ".5", "99999999999999999999.0"])
def test_a_number_that_no_report_takes_fails_its_run_and_not_the_report(
    directory: RunDir, printed: str
) -> None:
    directory.stdout.write_text(
        f"hog 0 pid 7 cpu_seconds 1.5 last_cpu 2 loops 9\ntotal loops 9 per_second {printed}\n"
    )
    with pytest.raises(WorkloadFailed, match=r"throughput is .* out of all bounds"):
        measure(RunFiles(directory))
    assert not directory.measures.exists()


def test_a_label_that_makes_the_name_of_a_measure_fails_its_run(directory: RunDir) -> None:
    """The results would be taken as damaged."""
    metric = MetricTable(
        name="task", pattern=r"hog 0 pid (?P<value>\d+) (?P<label>\w+) .*", unit="s",
        direction="lower", kind="timing",
    )  # fmt: skip
    topology = load_topology("ring-4")
    workload = resolve(load_workload("bound-hogs"), {}, topology)
    workload = replace(workload, metrics=(metric,))
    directory.stdout.write_text("hog 0 pid 7 migrations 1\n")
    with pytest.raises(WorkloadFailed) as caught:
        RunFiles(directory).measure(topology, workload, CAPTURE)
    sources = "from trace: sched_migrate_task, and from workload: bound-hogs"
    assert str(caught.value) == f"two measures are called task_migrations: {sources}"
    assert not directory.measures.exists()


def test_a_counter_beyond_all_bounds_fails_its_run(directory: RunDir) -> None:
    directory.vmstat_after.write_text("numa_hint_faults 99999999999999999999\n")
    with pytest.raises(WorkloadFailed, match=r"vmstat_numa_hint_faults is .* out of all bounds"):
        measure(RunFiles(directory))


def test_what_a_guest_did_not_leave(directory: RunDir) -> None:
    for path in (directory.sched_domains, directory.dmesg):
        path.unlink()
    files = RunFiles(directory)
    assert (files.dmesg, files.buffer_stats) == ("", ())
    with pytest.raises(WorkloadFailed, match=r"left no sched_domains\.txt"):
        _ = files.guest_view


def test_what_the_command_had_to_say_is_its_errors_else_its_output(directory: RunDir) -> None:
    assert RunFiles(directory).printed.startswith("hog 0 ")
    directory.stderr.write_text("no memory\n")
    assert RunFiles(directory).printed == "no memory\n"
