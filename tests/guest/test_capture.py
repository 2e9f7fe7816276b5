"""What is counted and sampled in a real guest, and what of it says that it cannot be."""

from pathlib import Path

from numalab.capture.counters import (
    parse_numastat,
    parse_schedstat,
    parse_times,
    parse_vmstat,
    perf_counts,
)
from numalab.capture.decode import decode_trace
from numalab.capture.samples import parse_samples
from numalab.guest.run import run_guest
from numalab.machine.model import Job
from numalab.process import find_program, run
from numalab.recording.recording import CommandData
from numalab.run_dir import RunDir
from support.guest_types import LIMITS, Boot, MakeMachine
from support.run_sample import measures_of

ASKED = ("context-switches", "cache-misses", "sched:sched_move_numa", "sched:no_such_event")
WORK = "stress-ng --quiet --cpu 1 --timeout 1; sleep 0.3; exit 7"


def test_everything_that_can_be_counted_is(make_machine: MakeMachine, tmp_path: Path) -> None:
    job = Job(
        ("sh", "-c", WORK),
        events=("sched", "?sched:sched_skip_vma_numa", "?sched:sched_no_such_event"),
        perf_stat=ASKED,
        sample_ms=200,
        sampled="vstp",
        numastat=True,
    )
    run_dir = RunDir(tmp_path / "run")
    machine = make_machine("ring-4", mode="icount")
    outcome = run_guest(machine, job, run_dir, limits=LIMITS)
    assert outcome.status == 7  # the command's own, through perf and the sampler
    assert run_dir.absent_events.read_text().split() == ["sched:sched_no_such_event"]

    times = parse_times(run_dir.times.read_text())
    assert times is not None
    assert times.elapsed > 1.3
    assert 0.3 < times.user < times.elapsed

    counts = perf_counts(ASKED, run_dir.perf_stat.read_text())
    assert counts["context-switches"]
    assert counts["cache-misses"] is None  # an emulated CPU counts nothing
    assert counts["sched:sched_move_numa"] == 0
    assert counts["sched:no_such_event"] is None

    samples = parse_samples(run_dir.samples.read_text())
    moments = samples.vmstat["time_ns"].unique().sort()
    assert len(moments) >= 6  # before, every 200 ms, after
    assert {"numa_hint_faults", "pgfault"} <= set(samples.vmstat["counter"])
    assert samples.schedstat["cpu"].unique().sort().to_list() == list(range(8))
    assert "stress-ng" in " ".join(samples.tasks["comm"].unique())
    assert samples.pages["kib"].sum() > 0
    assert set(samples.pages["node"]) <= {0, 1, 2, 3}

    nodes = [
        parse_numastat(path.read_text())
        for path in (run_dir.numastat_before, run_dir.numastat_after)
    ]
    cpus = [
        parse_schedstat(path.read_text())
        for path in (run_dir.schedstat_before, run_dir.schedstat_after)
    ]
    command = CommandData("sh", schedstat=(cpus[0], cpus[1]), numastat=(nodes[0], nodes[1]))
    made = measures_of(command)
    grown = {
        name: measure.value or 0
        for name, measure in made.items()
        if name.startswith(("numastat_", "allocations_"))
    }
    assert len(grown) == 4 * 6 + 2  # nodes, counters; local and astray
    assert sum(grown[f"numastat_numa_hit_node{node}"] for node in range(4)) > 0
    assert 0 < grown["allocations_local"] <= 100
    assert made["schedstat_wait_time"].value
    assert parse_vmstat(run_dir.vmstat_after.read_text())["pgfault"]

    table = run_dir.path / "events.parquet"
    decoded = decode_trace(run_dir.trace, None, table)
    assert decoded.clock == "mono"  # the one of the recording, which extract alone would not say
    assert decoded.counts["sched_stat_runtime"]  # of the whole system, not only of our sets
    # Samples and events are on one clock.
    assert decoded.first_ns is not None and decoded.last_ns is not None
    assert decoded.first_ns <= moments[0] < moments[-1] <= decoded.last_ns
    trace_cmd = find_program("trace-cmd", "trace-cmd")
    lines = run([trace_cmd, "report", "-t", "-R", run_dir.trace], timeout=60).stdout.splitlines()
    assert sum(": sched_switch: " in line for line in lines) == decoded.counts["sched_switch"]


def test_what_is_not_asked_for_is_not_done(boot: Boot, make_machine: MakeMachine) -> None:
    outcome, run_dir = boot("true", machine=make_machine(mode="icount"))
    assert outcome.status == 0
    assert parse_times(run_dir.times.read_text()) is not None
    for path in (run_dir.perf_stat, run_dir.samples, run_dir.numastat_before, run_dir.trace):
        assert not path.exists()
