"""Calls that the plugin counts, and accounts of tasks, beside what the guest's kernel traces."""

from dataclasses import replace
from pathlib import Path

import pytest

from numalab.hunt.boot_case import HuntBench, boot_case, prepare_benches, record_case
from numalab.hunt.calls.benches import for_properties
from numalab.hunt.calls.counting import read_calls
from numalab.hunt.calls.functions import read_symbols
from numalab.hunt.case import Case
from numalab.hunt.loads.driver_output import GroupLeft
from numalab.hunt.loads.load_text import parse_loads
from numalab.hunt.properties.accounts.tasks import traced_accounts
from numalab.hunt.recording import MS
from numalab.kernel.kernel_build import BuiltKernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.parquet import read_parquet
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

LOADS = parse_loads(
    "time ms=300;hog n=6 start=1 cpus=0-3|time ms=300;sleeper n=3 run=5000 sleep=5000 cpus=0-3"
)
# Linux 6.12, kernel/sched/core.c: set_task_cpu() traces each call as sched_migrate_task.
FUNCTION, EVENT = "set_task_cpu", "sched_migrate_task"


def bench_of(kernel: BuiltKernel) -> HuntBench:
    (bench,) = prepare_benches([find_kernel(kernel.spec_name)], "icount", cold=True)
    return bench


def test_calls_are_those_that_the_kernel_traces(kernel: BuiltKernel, tmp_path: Path) -> None:
    assert kernel.symbols is not None
    case = Case(load_topology("ring-2"), LOADS)
    functions = read_symbols(kernel.symbols).counted([FUNCTION, "schedule", "absent"])
    assert set(functions.names) == {FUNCTION, "schedule"}
    bench = bench_of(kernel)
    plain = record_case(case, bench, 1, RunDir(tmp_path / "plain"))
    counted = RunDir(tmp_path / "counted")
    loads = record_case(case, replace(bench, calls=functions), 1, counted)
    assert counted.trace.read_bytes() == RunDir(tmp_path / "plain").trace.read_bytes()
    events = read_parquet(counted.events, 1 << 30, 1 << 20)
    calls, _ = read_calls(counted, functions, events)
    assert len(loads) == len(plain) == len(calls) == 2
    for load in loads:
        assert calls[load.number].get(FUNCTION, 0) == load.events(EVENT).height
        switches = load.events("sched_switch").height
        assert calls[load.number]["schedule"] > switches / 4 > 0
    assert calls[loads[0].number][FUNCTION] > 0, "hogs start on one CPU, and leave it"


def test_runs_of_a_line_are_those_that_the_kernel_traces(
    kernel: BuiltKernel, tmp_path: Path
) -> None:
    case = Case(load_topology("ring-2"), LOADS)
    line = "more-runs-of-set_task_cpu:trace_sched_migrate_task-p-new_cpu"
    plain = bench_of(kernel)
    counted = boot_case(case, for_properties(plain, [line]), 1)
    for load in record_case(case, plain, 1, RunDir(tmp_path / "plain")):
        finding = counted.of(line, load.number)
        assert finding is not None
        assert finding.measured == load.events(EVENT).height


def test_run_queues_of_idle_cpus_hold_no_task(kernel: BuiltKernel) -> None:
    case = Case(load_topology("ring-2"), LOADS)
    left = boot_case(case, bench_of(kernel), 1).run_queues
    assert left is not None
    # struct rq of Linux 6.12: __lock, nr_running, nr_numa_running and nr_preferred_running.
    assert not {0, 4, 8, 12} & left.held.keys()
    assert case.machine.cpu_count - 1 in left.held.values(), "its number, of all CPUs but the first"


def test_the_kernels_account_of_each_task_is_what_it_traces(
    kernel: BuiltKernel, tmp_path: Path
) -> None:
    case = Case(load_topology("ring-2"), LOADS)
    for load in record_case(case, bench_of(kernel), 1, RunDir(tmp_path)):
        accounts = load.printed.accounts
        assert len(accounts) == load.load.parts[0].count
        traced = traced_accounts(load)
        for pid, kernels in accounts.items():
            of_trace = traced[pid].account
            assert kernels.switches == of_trace.switches
            assert kernels.migrations == of_trace.migrations
            assert kernels.ran_ns == pytest.approx(of_trace.ran_ns, rel=0.1, abs=20 * MS)
            assert kernels.waited_ns == pytest.approx(of_trace.waited_ns, rel=0.1, abs=50 * MS)


def test_queues_of_groups_are_empty_at_the_end_and_limits_are_counted(
    kernel: BuiltKernel, tmp_path: Path
) -> None:
    loads = parse_loads(
        "time ms=500;group name=a quota=40 burst=10;group name=b parent=a;hog n=3 cpus=0-3 group=b"
        ";change at=150 group=b idle=1;change at=250 group=b idle=0"
        ";change at=300 group=a quota=0;change at=350 group=a quota=20 period=50 burst=0"
    )
    case = Case(load_topology("ring-2"), loads)
    (load,) = record_case(case, bench_of(kernel), 1, RunDir(tmp_path))
    assert {group.wrong for group in load.printed.groups.values()} == {0}
    assert load.printed.left == dict.fromkeys("ab", GroupLeft(0, "nothing"))
    limits = load.printed.limits["a"]
    assert 2 <= limits.throttled <= limits.periods + 1
    assert limits.throttled_us > 0
    assert load.printed.limits["b"].periods == 0
