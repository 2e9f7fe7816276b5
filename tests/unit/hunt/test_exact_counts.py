"""Counts of threads and of the system, ticks of CPU time, and NUMA hinting faults, made up."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest

from numalab.hunt.loads.driver_output import Printed, TaskAccount, parse_output
from numalab.hunt.loads.exact_output import (
    Averages,
    CpuTicks,
    Exact,
    NodeFaults,
    ProcessTicks,
    Reading,
    ThreadAccount,
    ThreadFaults,
    Turns,
    parse_exact,
)
from numalab.hunt.properties.accounts.counts import system_counts, thread_counts
from numalab.hunt.properties.accounts.cpu_time import (
    idle_time,
    reaped_time,
    user_and_system_time,
)
from numalab.hunt.properties.accounts.faults import (
    faults_on_bound_memory,
    numa_faults,
    preferred_node,
)
from numalab.hunt.properties.accounts.tasks import account
from numalab.hunt.property import judge_load
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.events import SCHEMA
from unit.hunt.recordings import Row, recording

HOG = "time ms=1000;hog n=1 cpus=0-3"
ROWS: list[Row] = [(11, "hog0.0", 0, 0, 1000)]
RUNNING, SLEEPING, STOPPED, DEAD, PREEMPTED = 0, 1, 4, 16, 0x100
Event = dict[str, int | str | None]


def switch(at: int, pid: int, state: int, after: int = 0, *, cpu: int = 0, comm: str = "") -> Event:
    names = {"prev_comm": comm, "next_comm": ""}
    return {"time_ns": at * MS, "event": "sched_switch", "cpu": cpu, "prev_pid": pid,
            "prev_state": state, "next_pid": after, **names}  # fmt: skip


def wakeup(at: int, pid: int, *, new: bool = False) -> Event:
    name = "sched_wakeup_new" if new else "sched_wakeup"
    return {"time_ns": at * MS, "event": name, "cpu": 0, "event_pid": pid}


def moved(at: int, pid: int, old: int, new: int) -> Event:
    return {"time_ns": at * MS, "event": "sched_migrate_task", "cpu": 0, "event_pid": pid,
            "orig_cpu": old, "dest_cpu": new}  # fmt: skip


def mark(at: int, word: str) -> Event:
    return {"time_ns": at * MS, "event": "print", "cpu": 0, "buf": f"hunt: load 0 {word}\n"}


LIFE = [
    wakeup(90, 11, new=True),
    switch(100, 0, RUNNING, 11),
    switch(200, 11, PREEMPTED, 12),
    moved(250, 11, 0, 1),
    moved(251, 11, 1, 1),  # traced, and no migration
    switch(260, 0, RUNNING, 11),
    switch(400, 11, SLEEPING),
    wakeup(500, 11),
    switch(505, 0, RUNNING, 11),
    switch(900, 11, STOPPED),
]
TRUE = ThreadAccount(11, 635 * MS, 62, 2, 1, 1)


def recorded(
    events: Sequence[Event],
    exact: Exact,
    load: str = HOG,
    rows: Sequence[Row] = ROWS,
    cpus: Sequence[int] = (2, 2),
) -> LoadRecording:
    table = pl.DataFrame(list(events), schema=SCHEMA)
    run = recording(load, rows, cpus=cpus)
    return replace(run, table=table, stopped_ns=1000 * MS, printed=Printed(exact=exact))


def counted(account: ThreadAccount, events: Sequence[Event] = LIFE, load: str = HOG) -> list[float]:
    run = recorded(events, Exact({11: account}), load)
    return [finding.value for finding in thread_counts(run)]


def test_counts_of_a_thread_are_those_of_the_trace() -> None:
    assert counted(TRUE) == [0]
    assert counted(replace(TRUE, voluntary=3)) == [1]
    assert counted(replace(TRUE, migrations=2)) == [1]
    run = recorded(LIFE, Exact({11: replace(TRUE, involuntary=4)}))
    (finding,) = thread_counts(run)
    assert finding.violated
    assert finding.text == (
        "a thread of a hog has 2 voluntary and 1 involuntary switches and 1 migrations, and in the"
        " kernel's account 2 voluntary and 4 involuntary switches and 1 migrations"
    )


@pytest.mark.parametrize(("turns", "value"), [(3, 0), (2, 0), (1, 0), (4, 1), (0, 1)])
def test_turns_of_a_thread_are_at_most_its_switches(turns: int, value: int) -> None:
    """Some that no switch to sleep ended do not count."""
    run = recorded(LIFE, Exact({11: TRUE}, turns={11: Turns(turns, 0, 0)}))
    (finding,) = thread_counts(run)
    assert finding.value == value
    assert not value or finding.text == (
        f"a thread of a hog has 3 switches, and {turns} turns in the kernel's account"
    )


@pytest.mark.parametrize(
    ("load", "waits_us", "value"),
    [(HOG, 295_000, 1.0), (HOG, 900_000, 0.0), (HOG, 0, 60.0), (HOG, -1, 0.0),
     (f"{HOG} policy=rr priority=5", 0, 0.0),
     (f"{HOG};change at=9 part=0 policy=rr priority=5", 0, 0.0)],
)  # fmt: skip
def test_the_sum_of_waits_is_not_less_than_the_delay(
    load: str, waits_us: int, value: float
) -> None:
    run = recorded(LIFE, Exact(turns={11: Turns(3, 300_000, waits_us)}), load)
    accounts = {11: TaskAccount(TRUE.ran_ns, 75 * MS, 3, 2)}
    printed = replace(run.printed, accounts=accounts)
    (finding,) = account(replace(run, printed=printed))
    assert finding.value == value
    moving = recorded(LIFE[:-1], Exact(turns={11: Turns(3, 300_000, 0)}))
    assert all(
        "in the sum of its waits" not in finding.text
        for finding in account(replace(moving, printed=replace(moving.printed, accounts=accounts)))
    ), "it waits"


def test_each_signal_may_keep_a_thread_from_sleeping() -> None:
    assert counted(replace(TRUE, voluntary=1, involuntary=2)) == [0]
    assert counted(replace(TRUE, voluntary=0, involuntary=3)) == [2]
    stops = f"{HOG};change at=100 part=0 stop=1;change at=200 part=0 go=1"
    assert counted(replace(TRUE, voluntary=0, involuntary=3), load=stops) == [0]


@pytest.mark.parametrize(
    "events",
    [
        LIFE[1:],  # its fork is not in the trace
        LIFE[:-1],  # it had not stopped
        [*LIFE, wakeup(950, 11)],  # it goes on
        [*LIFE, {"time_ns": 950 * MS, "event": "lost_events", "cpu": 1}],
    ],
)
def test_threads_that_the_trace_does_not_show_whole_have_no_counts(events: list[Event]) -> None:
    assert not counted(replace(TRUE, voluntary=9), events)


READ = [
    mark(10, "reading"), switch(11, 0, RUNNING, 5), mark(12, "read"), switch(20, 5, SLEEPING),
    wakeup(30, 6, new=True), switch(40, 0, RUNNING, 6), switch(540, 6, SLEEPING),
    mark(810, "reading"), mark(812, "read"),
]  # fmt: skip


def of_system(*, switches: int = 3, forks: int = 1, idle: int = 25, nice: int = 0) -> Exact:
    cpus = {0: CpuTicks(40, 7)}, {0: CpuTicks(40 + nice, 7 + idle)}
    readings = {
        "first": Reading(100, 50, cpus[0]),
        "last": Reading(100 + switches, 50 + forks, cpus[1]),
    }
    return Exact(readings=readings)


def of_readings(exact: Exact) -> list[float]:
    return [finding.value for finding in system_counts(recorded(READ, exact))]


def test_switches_and_forks_of_the_system_lie_between_the_marks_of_both_readings() -> None:
    assert of_readings(of_system(switches=3)) == [0, 0]
    assert of_readings(of_system(switches=4)) == [0, 0], "the one during the reading"
    assert of_readings(of_system(switches=2)) == [1, 0]
    assert of_readings(of_system(switches=7)) == [3, 0]
    assert of_readings(of_system(forks=5)) == [0, 0], "one for each of four CPUs"
    assert of_readings(of_system(forks=9)) == [0, 4]
    away = recorded(READ, of_system(switches=0), f"{HOG};hotplug cpu=1 off=9 on=99")
    assert not system_counts(away)
    assert not system_counts(recorded(READ[1:], of_system(switches=0)))


def test_no_task_counts_as_blocked_when_all_are_gone() -> None:
    run = recorded(READ, of_system(switches=3))
    printed = parse_output("load 0 end blocked -2\nload 0 end blocked_by_io 0\n")[0]
    run = replace(run, printed=replace(printed, exact=run.printed.exact))
    assert [finding.value for finding in system_counts(run)] == [2, 0, 0, 0]
    finding = max(system_counts(run), key=lambda finding: finding.value)
    assert finding.text == "-2 tasks that are gone count as blocked" and finding.violated


def test_no_cpu_was_idle_for_longer_than_the_trace_shows() -> None:
    values = {
        idle: [finding.value for finding in idle_time(recorded(READ, of_system(idle=idle)))]
        for idle in (10, 29, 50)
    }
    # From 20 to 40, and from 540 to 810 ms.
    assert values == {10: [0.0], 29: [0.0], 50: [210.0]}


@pytest.mark.parametrize(
    ("ticks", "of_process", "away"), [(63, 63, 0), (62, 62, 0), (64, 63, 5), (63, 60, 15)]
)
def test_user_and_system_time_are_the_runtime(ticks: int, of_process: int, away: float) -> None:
    threads = {11: replace(TRUE, ticks=ticks)}
    exact = Exact(threads, {11: ProcessTicks(of_process, 0, 0)})
    (finding,) = user_and_system_time(recorded(LIFE, exact))
    assert finding.value == away


@pytest.mark.parametrize(
    ("load", "nice", "values"),
    [
        (HOG, 0, [0]),
        (HOG, 3, [30]),
        (HOG.replace("cpus", "nice=-5 cpus"), 3, [30]),
        (HOG.replace("cpus", "nice=5 cpus"), 3, [0]),
        (HOG.replace("cpus", "nice=5 cpus"), 0, [1000]),
        (f"{HOG};change at=9 part=0 nice=3", 3, []),
        (f"{HOG};hotplug cpu=1 off=9 on=99", 3, []),
    ],
)
def test_nice_time_is_that_of_positive_nice_levels(
    load: str, nice: int, values: list[float]
) -> None:
    run = recorded(READ, of_system(nice=nice), load)
    assert [finding.value for finding in user_and_system_time(run)] == values


def test_hogs_run_outside_the_kernel() -> None:
    name = "more-system-time-of-hogs"
    (finding,), _ = judge_load(
        recorded(LIFE, Exact({}, {11: ProcessTicks(62, 60, 0), 7: ProcessTicks(9, 0, 0)})), {name}
    )
    assert finding.text == "system-time-of-hogs: 96.77 %"
    assert judge_load(recorded(LIFE, Exact({}, {11: ProcessTicks(49, 49, 0)})), {name}) == ((), {})
    less = {"less-system-time-of-hogs"}
    (finding,), _ = judge_load(recorded(LIFE, Exact({}, {11: ProcessTicks(62, 0, 0)})), less)
    assert finding.text == "system-time-of-hogs: 0 %"


def test_a_process_has_the_time_of_all_its_threads() -> None:
    life = [*LIFE, *({**event, "prev_pid": 12, "event_pid": 12} for event in (LIFE[0], LIFE[-1]))]
    life = sorted(life, key=lambda event: int(event["time_ns"] or 0))
    threads = {11: replace(TRUE, ticks=62), 12: replace(TRUE, ticks=62)}
    values = []
    for ticks in (62, 125):
        exact = Exact(threads, {11: ProcessTicks(ticks, 0, 0)})
        values += [finding.value for finding in user_and_system_time(recorded(life, exact))]
    assert values == [630.0, 0.0]
    assert not user_and_system_time(recorded(LIFE, Exact(threads, {11: ProcessTicks(0, 0, 0)})))


def test_the_account_of_reaped_children_is_the_time_that_dead_ones_ran() -> None:
    events = [
        wakeup(90, 12, new=True),
        switch(100, 0, RUNNING, 12),
        switch(400, 12, PREEMPTED, 13, comm="forker0.0"),  # it has no name yet
        switch(500, 13, SLEEPING, 12),
        switch(600, 12, DEAD, 15, comm="child0.0"),
        switch(700, 15, DEAD, 14, comm="child0.1"),  # which may wait to be reaped
        switch(900, 14, RUNNING, comm="child0.2"),  # it lives
    ]
    load = "time ms=1000;forker n=1 cpus=0-3"
    texts = []
    for reaped in (50, 45, 40, 0):
        exact = Exact({}, {11: ProcessTicks(9, 0, reaped)})
        run = recorded(events, exact, load, [(11, "forker0.0", 0, 0, 1000)])
        texts += [(finding.violated, finding.text) for finding in reaped_time(run)]
    assert texts == [
        (False, "the children of forkers have 500 ms on CPUs, and 500 in the kernel's account"),
        (False, "the children of forkers have 450 ms on CPUs, and 450 in the kernel's account"),
        (False, "the children of forkers have 400 ms on CPUs, and 400 in the kernel's account"),
        (True, "the children of forkers have 400 ms on CPUs, and 0 in the kernel's account"),
    ]


MEMORY = "time ms=1000;memory n=2 cpus=0-3 node=0 bound=1"
USERS: list[Row] = [(11, "memory0.0", 0, 0, 1000), (12, "memory0.1", 1, 0, 1000)]


def of_users(*nodes: Sequence[NodeFaults], total: int = 100) -> LoadRecording:
    """Return a recording of two users in a group, the driver (1) in it, by node their faults."""
    events = [*LIFE, *({**event, "prev_pid": 12, "event_pid": 12} for event in (LIFE[0], LIFE[-1]))]
    events = sorted(events, key=lambda event: int(event["time_ns"] or 0))
    faults = {
        pid: ThreadFaults(0, 11, total, dict(enumerate(of_pid)))
        for pid, of_pid in zip((11, 12, 1), nodes, strict=False)
    }
    return recorded(events, Exact(faults=faults), MEMORY, USERS)


def group_on(first: tuple[int, int], second: tuple[int, int]) -> tuple[NodeFaults, NodeFaults]:
    return NodeFaults(90, 0, *first), NodeFaults(10, 0, *second)


def test_faults_of_a_thread_and_of_a_group_add_up() -> None:
    right = group_on((270, 0), (30, 0))
    assert {finding.value for finding in numa_faults(of_users(right, right, right))} == {0}
    run = of_users(right, right, right, total=130)
    assert max(finding.value for finding in numa_faults(run)) == 30
    wrong = group_on((270, 7), (30, 0))
    finding = max(numa_faults(of_users(wrong, wrong, wrong)), key=lambda finding: finding.value)
    assert finding.violated
    assert finding.text == "a group of 3 threads has 7 faults on node 0, its members 0"


def test_a_group_that_changes_while_it_is_read_or_that_children_may_join_is_not_judged() -> None:
    right, later = group_on((270, 0), (30, 0)), group_on((280, 0), (30, 0))
    run = of_users(right, right, later)
    assert {finding.value for finding in numa_faults(run)} == {0}
    wrong = group_on((1, 0), (30, 0))
    forks = replace(of_users(wrong, wrong, wrong), load=recording(f"{MEMORY};forker n=1 cpus=0",
                    []).load)  # fmt: skip
    assert {finding.value for finding in numa_faults(forks)} == {0}
    assert not numa_faults(recorded(LIFE, Exact(), MEMORY, USERS))


def test_faults_on_bound_memory_are_on_its_node() -> None:
    right = group_on((180, 0), (20, 0))
    (finding,) = faults_on_bound_memory(of_users(right, right))
    assert (finding.value, finding.violated) == (10.0, False)
    (finding,) = faults_on_bound_memory(of_users(right[::-1], right[::-1]))
    assert finding.violated
    assert finding.text == "of 200 NUMA hinting faults on memory of node 0, 20 count for it"
    assert not faults_on_bound_memory(of_users(right, right, total=20))
    wrong = of_users(right[::-1], right[::-1])
    for unbound in (0, 1):  # kernels before 5.12 refuse it
        printed = parse_output(f"load 0 end unbound {unbound}\n")[0]
        run = replace(wrong, printed=replace(printed, exact=wrong.printed.exact))
        assert len(list(faults_on_bound_memory(run))) == 1 - unbound


def preferring(node: int, load: str, *, group: int = 0) -> list[float]:
    on_node = {0: NodeFaults(20, 10, 0, 0), 1: NodeFaults(40, 50, 0, 0)}
    exact = Exact(faults={11: ThreadFaults(node, group, 120, on_node)})
    run = recorded(LIFE, exact, load, [(11, "memory0.0", 0, 0, 1000)])
    return [finding.value for finding in preferred_node(run)]


def test_a_thread_alone_prefers_the_node_of_its_most_faults() -> None:
    load = "time ms=1000;memory n=1 cpus=0-3"
    assert preferring(1, load) == [0]
    assert preferring(0, load) == [60]
    assert preferring(-1, load) == [90], "it is set in the same pass as the faults"
    assert not preferring(0, load, group=11)
    assert not preferring(0, f"{load};cpuset from=0 to=0-3 at=100")
    assert not preferring(0, f"{load};group name=a cpus=0")


@pytest.mark.parametrize(
    ("on_node", "preferred", "value", "weak"),
    [
        ({0: 10, 1: 500, 2: 0}, 1, 0, False),
        ({0: 10, 1: 500, 2: 0}, 0, 490, False),
        ({0: 10, 1: 500, 2: 0}, 2, 500, False),
        ({0: 10, 1: 0, 2: 500}, 0, 0, True),
        ({0: 10, 1: 0, 2: 500}, 1, 0, True),
        ({0: 10, 1: 0, 2: 500}, 2, 500, True),
        ({0: 10, 1: 0, 2: 500}, -1, 500, False),
        ({0: 10, 1: 500, 2: 500}, 0, 0, True),
    ],
)
def test_a_thread_does_not_prefer_a_node_without_cpus(
    on_node: dict[int, int], preferred: int, value: int, weak: bool
) -> None:
    """The last node has none."""
    nodes = {node: NodeFaults(count, 0, 0, 0) for node, count in on_node.items()}
    exact = Exact(faults={11: ThreadFaults(preferred, 0, sum(on_node.values()), nodes)})
    users: list[Row] = [(11, "memory0.0", 0, 0, 1000)]
    run = recorded(LIFE, exact, "time ms=1000;memory n=1 cpus=0-3", users, cpus=(2, 2, 0))
    (finding,) = preferred_node(run)
    assert (finding.value, finding.weak) == (value, weak)


def test_a_thread_without_faults_prefers_no_node() -> None:
    exact = Exact(faults={11: ThreadFaults(-1, 0, 0, {0: NodeFaults(0, 0, 3, 0)})})
    run = recorded(LIFE, exact, MEMORY, USERS[:1])
    assert judge_load(run, {"preferred-node", "numa-faults"})[1] == {}
    assert not preferred_node(run)


def test_a_thread_whose_nodes_are_not_told_is_not_judged() -> None:
    """The guest's output ends there."""
    exact = Exact(faults={11: ThreadFaults(1, 0, 512)})
    run = recorded(LIFE, exact, MEMORY, USERS[:1])
    assert judge_load(run, {"preferred-node", "numa-faults"}) == ((), {})


def test_the_drivers_lines_are_read() -> None:
    lines = (
        "load 3 thread 12 of 11 ran_ns 7 ticks 6 voluntary 5 involuntary 4 migrations 3",
        "load 3 process 11 ticks 6 system 2 reaped 5",
        "load 3 thread 12 preferred -1 group 11 faults 9",
        "load 3 thread 12 node 1 private 8 shared 7 group_private 6 group_shared 5",
        "load 3 first cpu 2 nice 8 idle 7",
        "load 3 first switches 9 forks 2",
        "load 3 last switches 9 forks few",
        "load 3 thread 12 runnable 900 load 15",
        "load 3 thread 12 turns 9 delay_us 8 waits_us -1",
    )
    expected = Exact(
        {12: ThreadAccount(11, 7, 6, 5, 4, 3)},
        {11: ProcessTicks(6, 2, 5)},
        {12: ThreadFaults(-1, 11, 9, {1: NodeFaults(8, 7, 6, 5)})},
        {"first": Reading(9, 2, {2: CpuTicks(8, 7)})},
        {12: Averages(900, 15)},
        {12: Turns(9, 8, -1)},
    )
    assert parse_exact("\n".join(lines)) == {3: expected}
    assert parse_output("\n".join(lines))[3].exact == expected


@pytest.mark.parametrize("ticks", [((1 << 64) - 5_000_000) // 10_000_000, -1, (1 << 64) - 1])
def test_a_figure_below_zero_is_judged(ticks: int) -> None:
    text = (
        f"load 0 thread 11 of 11 ran_ns 635000000 ticks {ticks} voluntary 2 involuntary 1"
        f" migrations {ticks}\nload 0 process 11 ticks 62 system 1 reaped 0\n"
    )
    run = recorded(LIFE, parse_exact(text)[0])
    findings, failures = judge_load(run, {"user-and-system-time", "thread-counts"})
    assert [finding.violated for finding in findings] == [True, True]
    assert not failures


def test_a_kernel_that_tells_nothing_is_not_judged() -> None:
    names = {
        "thread-counts", "system-counts", "user-and-system-time", "reaped-time", "idle-time",
        "numa-faults", "faults-on-bound-memory", "preferred-node", "readiness",
    }  # fmt: skip
    assert judge_load(recorded(LIFE, Exact()), names) == ((), {})
