"""Utilization and preferred nodes, beside the kernel's own way to add up utilization."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from numalab.hunt.loads.driver_output import Printed, TaskState
from numalab.hunt.loads.exact_output import Averages, Exact
from numalab.hunt.properties.accounts.task_state import (
    memory_on_preferred_nodes,
    readiness,
    time_on_preferred_nodes,
    utilization,
)
from numalab.hunt.property import judge_load
from numalab.hunt.recording import MS, read_loads
from unit.hunt.recordings import recording

HOG = "time ms=1000;hog n=1 cpus=0"
PERIOD, MOST = 1024, 47742  # in us; LOAD_AVG_MAX


def kernels_utilization(times_us: Sequence[tuple[int, int]]) -> int:
    """Return util_avg after runs (from, to): accumulate_sum() and ___update_load_avg(), 6.12.

    The time between runs counts as asleep. y^32 is 0.5, and 32 bits of y^n are kept, as in
    runnable_avg_yN_inv; the last call is at the end of the last run.
    """

    def decayed(value: int, periods: int) -> int:
        inverse = [int(0xFFFFFFFF * 0.5 ** (n / 32)) for n in range(32)]
        return ((value >> (periods // 32)) * inverse[periods % 32]) >> 32

    total, contributed, now, average = 0, 0, times_us[0][0], 0
    for start, end in times_us:
        for until, running in ((start, 0), (end, 1)):
            delta = until - now + contributed
            periods = delta // PERIOD
            contribution = until - now
            if periods:
                total = decayed(total, periods)
                first = decayed(PERIOD - contributed, periods)
                middle = MOST - decayed(MOST, periods) - PERIOD
                delta %= PERIOD
                contribution = first + middle + delta
            contributed = delta
            total += running * contribution * 1024
            average = total // (MOST - 1024 + contributed) if periods else average
            now = until
    return average


@pytest.mark.parametrize(
    "times_ms",
    [
        [(100, 1000)],
        [(at, at + 3) for at in range(100, 1000, 12)],
        [(100, 940), (960, 1000)],
        [(200, 400), (800, 830), (985, 990)],
    ],
)
def test_the_runtime_gives_the_kernels_utilization(times_ms: list[tuple[int, int]]) -> None:
    rows = [(11, "hog0.0", 0, start, end) for start, end in times_ms]
    periods = [(start * 1000 * 1000 // 1024, end * 1000 * 1000 // 1024) for start, end in times_ms]
    measured = kernels_utilization(periods)
    run = replace(recording(HOG, rows), printed=Printed(task_states={11: TaskState(measured, -1)}))
    (finding,) = utilization(run)
    assert finding.value < 26, finding.text
    wrong = replace(run, printed=Printed(task_states={11: TaskState(measured + 300, -1)}))
    (finding,) = utilization(wrong)
    assert finding.violated and f"is {measured + 300} of 1024" in finding.text


def averages(load: str, runnable: int, weighted: int) -> list[float]:
    """Return the differences of a task that was ready all the time, and ran for half of it."""
    kind = load.partition(";")[2].partition(" ")[0]
    rows = [(11, f"{kind}0.0", 0, at, at + 5) for at in range(0, 1000, 10)]
    rows += [(11, f"-{kind}0.0", 0, at + 5, at + 10) for at in range(0, 990, 10)]
    exact = Exact(averages={11: Averages(runnable, weighted)})
    run = replace(recording(load, rows), printed=Printed(exact=exact))
    return [round(finding.value) for finding in readiness(run)]


def test_the_time_in_which_a_task_is_ready_gives_its_averages() -> None:
    assert averages(HOG, 1024, 1024) == [0]
    assert averages(HOG, 512, 1024) == [512], "that of the time in which it ran"
    assert averages(HOG, 1024, 512) == [512]
    assert averages("time ms=1000;sleeper n=1 cpus=0", 1024, 512) == [0], "it may be delayed"


@pytest.mark.parametrize(
    ("words", "weighted"),
    [
        (" nice=5", 335),
        (" nice=5;change at=100 part=0 nice=0;change at=200 part=0 nice=-5", 3121),
        (" nice=5;change at=100 part=0 policy=batch", 9),
        (" policy=idle", 3),
    ],
)
def test_load_is_by_the_last_weight(words: str, weighted: int) -> None:
    (away,) = averages(HOG + words, 1024, weighted)
    assert away < 5


@pytest.mark.parametrize(
    "load",
    [
        "time ms=1000;hog n=1 cpus=0;sleeper n=1 cpus=0 policy=fifo priority=5",
        "time ms=1000;group name=a quota=20;hog n=1 cpus=0 group=a",
        "time ms=1000;locker n=1 cpus=0 run=100 sleep=100",
    ],
)
def test_tasks_without_a_steady_clock_are_not_judged(load: str) -> None:
    kind = load.rpartition(";")[2].partition(" ")[0]
    run = recording(load, [(11, f"{kind}{load.count(';') - 1}.0", 0, 0, 1000)])
    run = replace(run, printed=Printed(task_states={11: TaskState(1, -1)}))
    assert not utilization(run)


def test_a_kernel_that_tells_nothing_is_not_judged() -> None:
    run = recording(HOG, [(11, "hog0.0", 0, 0, 1000)])
    names = {"utilization", "more-memory-on-preferred-nodes", "less-time-on-preferred-nodes"}
    assert judge_load(run, names) == ((), {})
    assert judge_load(
        replace(run, printed=Printed(task_states={11: TaskState(-1, -1)})), names
    ) == ((), {})


def test_pages_on_preferred_nodes() -> None:
    rows = [(11, "memory0.0", 0, 0, 1000), (12, "memory0.1", 1, 0, 1000)]
    run = replace(
        recording("time ms=1000;memory n=2 cpus=0-3 mib=1 node=0", rows),
        printed=Printed(
            task_states={11: TaskState(900, 0), 12: TaskState(900, 1), 13: TaskState(900, 1)},
            pages={(0, 0): {0: 200, 1: 56}, (0, 1): {0: 256}},
        ),
    )
    assert memory_on_preferred_nodes(run) == 39.0625
    assert time_on_preferred_nodes(run) == 50


def test_a_task_is_followed_until_the_driver_has_stopped_it() -> None:
    marked = ((1, "begin"), (1000, "end"), (1012, "stopped"), (1100, "over"))
    rows: list[tuple[int, str, int, str | None, int | None, int | None]] = [
        (at, "print", 1, f"hunt: load 0 {text}\n", None, None) for at, text in marked
    ]
    switches = ((500, 11, 0), (700, 0, 11), (1010, 11, 0), (1015, 0, 11), (1016, 11, 0))
    rows += [(at, "sched_switch", 0, None, before, after) for at, before, after in switches]
    events = pl.DataFrame(
        [
            (at * MS, event, cpu, buf, before, after, name(before), name(after))
            for at, event, cpu, buf, before, after in sorted(rows, key=lambda row: row[0])
        ],
        schema=["time_ns", "event", "cpu", "buf", "prev_pid", "next_pid", "prev_comm", "next_comm"],
        orient="row",
    )
    written = recording(HOG, [])
    measured = "load 0 pid 11 utilization 1000 preferred -1\n"
    (run,) = read_loads(events, measured, written.topology, (written.load,))
    assert run.printed.task_states == {11: TaskState(1000, -1)}
    start, end = run.ran_until_stopped[11]
    assert list(zip(start // MS, end // MS, strict=True)) == [(700, 1010)]


def name(pid: int | None) -> str | None:
    return None if pid is None else "hog0.0" if pid else "swapper/0"
