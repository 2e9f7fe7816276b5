"""The trace around the worst moment: the move or the idle time, and what the kernel compared."""

from dataclasses import replace
from typing import cast

import polars as pl

from numalab.hunt.posting.excerpt import render_excerpt
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.events import typed
from numalab.topology.sched_domains import CpuDomains, SchedDomain, SchedGroup
from unit.hunt.recordings import WrittenRecording, recording

Event = tuple[float, int, str, dict[str, object]]


def with_events(run: LoadRecording, events: list[Event]) -> LoadRecording:
    rows = [
        {"time_ns": int(ms * MS), "cpu": cpu, "event": event, **fields}
        for ms, cpu, event, fields in events
    ]
    return replace(run, table=typed(pl.DataFrame(rows)).collect())


def migration(ms: float, pid: int, source: int, target: int, comm: str) -> Event:
    fields: dict[str, object] = {"comm": comm, "event_pid": pid, "event_comm": "hog0.0"}
    return ms, source, "sched_migrate_task", {**fields, "orig_cpu": source, "dest_cpu": target}


def test_an_idle_cpu_beside_a_waiting_task() -> None:
    """CPU 3 is idle while hog 1 waits behind hog 0 on CPU 0, and the groups say why."""
    run = recording(
        "time ms=1000;hog n=2 cpus=0,3",
        [(1, "hog0.0", 0, 0, 1000), (2, "-hog0.1", 0, 0, 1000)],
    )
    switch: dict[str, object] = {"prev_pid": 2, "prev_comm": "hog0.1", "next_pid": 1}
    run = with_events(
        run,
        [
            (100, 0, "sched_switch", {**switch, "next_comm": "hog0.0"}),
            (120, 1, "sched_wakeup", {"event_pid": 77, "event_comm": "kworker", "target_cpu": 1}),
            (130, 0, "sched_wakeup", {"event_pid": 1, "event_comm": "x", "target_cpu": 0}),
        ],
    )
    text = render_excerpt(run, "lost-time")
    assert text.startswith("CPU 3 is idle for 1000.0 ms while a task waits that may run there")
    assert "domain 0-3\n    own group 2-3: 0 tasks on 2 CPUs, 2 idle\n" in text
    assert "    group 0-1: 2 tasks on 2 CPUs, 1 idle\n" in text
    assert "hog0.1 -> hog0.0" in text
    assert "hog0.0 on CPU 0" in text
    assert "kworker" not in text


def test_groups_are_those_that_the_kernel_printed_without_cpus_that_are_off_line() -> None:
    """A patch of topology.c may make the kernel build others than are predicted."""
    run = recording(
        "time ms=1000;hog n=2 cpus=0,2",
        [(1, "hog0.0", 0, 0, 1000), (2, "-hog0.1", 0, 0, 1000)],
    )
    stops: dict[str, object] = {"prev_comm": "swapper/3", "prev_pid": 0, "next_pid": 30}
    run = with_events(run, [(9, 3, "sched_switch", {**stops, "next_comm": "migration/3"})])
    groups = tuple(SchedGroup(span, span, 2048) for span in ((0, 2), (0, 1), (3,)))
    domain = SchedDomain(1, "NUMA", (0, 1, 2, 3), (), groups)
    written = cast(WrittenRecording, run)
    printed = (CpuDomains(2, (domain,)),)
    text = render_excerpt(replace(written, printed_domains=printed), "lost-time")
    assert "    own group 0,2: 2 tasks on 2 CPUs, 1 idle\n    group 0-1: 2 tasks on" in text
    assert "group 3" not in text
    without = render_excerpt(replace(written, printed_domains=(CpuDomains(0, ()),)), "lost-time")
    assert "compares" not in without, "the kernel printed no domains of CPU 2"


def test_a_throttled_task_does_not_wait_and_other_properties_have_no_moment() -> None:
    """CPU 3 is idle while a deadline task waits for its next period behind another one."""
    stays = [(1, "hog0.0", 0, 0, 1000), (2, "-hog1.0", 0, 0, 1000)]
    load = "time ms=1000;hog n=1 cpus=0,3;hog n=1 cpus=0,3 policy=deadline runtime=4000 period=9999"
    switch: dict[str, object] = {"prev_pid": 2, "prev_comm": "hog1.0", "next_pid": 1}
    event: Event = (100, 0, "sched_switch", {**switch, "next_comm": "hog0.0"})
    run = with_events(recording(load, stays), [event])
    assert render_excerpt(run, "lost-time").startswith("No CPU was idle beside a waiting task;")
    plain = with_events(recording("time ms=1000;hog n=1 cpus=0,3;hog n=1 cpus=0,3", stays), [event])
    assert render_excerpt(plain, "lost-time").startswith("CPU 3 is idle for 1000.0 ms")
    assert render_excerpt(plain, "account").startswith("No one moment shows account; the middle")


def test_a_crowd_of_moves_by_active_balance() -> None:
    run = recording("time ms=1000;hog n=1 cpus=0-3", [(1, "hog0.0", 0, 0, 1000)])
    moves = [
        migration(510, 1, 0, 1, "kswapd"),
        migration(520, 1, 1, 0, "kswapd"),
        migration(800, 1, 0, 2, "migration/0"),
        migration(850, 1, 2, 0, "migration/2"),
    ]
    text = render_excerpt(with_events(run, moves), "ping-pong")
    assert text.startswith("Task hog0.0 moves from CPU 0 to CPU 2, 800.000 ms after the begin")
    assert "What CPU 2 compares at that moment" in text
    assert ">   800.000" in text
    assert "hog0.0: CPU 2 -> 0" in text


def test_a_load_in_which_nothing_waits_and_nothing_moves() -> None:
    run = recording("time ms=1000;hog n=1 cpus=0", [(1, "hog0.0", 0, 0, 1000)])
    run = with_events(run, [(1, 0, "sched_wakeup", {"event_pid": 9, "event_comm": "\x1b[2J"})])
    text = render_excerpt(run, "ping-pong")
    assert "the middle of the load" in text
    assert "\x1b" not in text


def test_tasks_that_stay_uneven_are_shown_where_they_have_settled() -> None:
    """CPU 2 has one hog, CPU 0 two; what CPU 2 compares says why it pulls none."""
    run = recording(
        "time ms=1000;hog n=3 cpus=0,2",
        [(1, "hog0.0", 0, 0, 1000), (2, "-hog0.1", 0, 0, 1000), (3, "hog0.2", 2, 0, 1000)],
    )
    wakeup: dict[str, object] = {"event_pid": 1, "event_comm": "x", "target_cpu": 0}
    text = render_excerpt(with_events(run, [(800, 0, "sched_wakeup", wakeup)]), "spread")
    middle = run.settled.start_ns + run.settled.length_ns // 2
    assert text.startswith(f"CPU 2 has 1 task, CPU 0 has 2 tasks, {middle / MS:.3f} ms after")
    assert "What CPU 2 compares" in text
    assert "    own group 2-3: 1 task on 2 CPUs, 1 idle\n    group 0-1: 2 tasks" in text


def test_a_task_outside_its_mask() -> None:
    run = recording(
        "time ms=1000;hog n=2 cpus=0-1",
        [(1, "hog0.0", 0, 0, 1000), (2, "hog0.1", 3, 600, 640), (2, "hog0.1", 1, 640, 1000)],
    )
    switch: dict[str, object] = {"prev_pid": 0, "prev_comm": "swapper/3", "next_pid": 2}
    event: Event = (600, 3, "sched_switch", {**switch, "next_comm": "hog0.1"})
    text = render_excerpt(with_events(run, [event]), "affinity")
    said = "Task hog0.1 runs on CPU 3, which is not in its mask, for 40.0 ms, 600.000 ms after"
    assert text.startswith(said)
    assert ">   600.000  CPU 3" in text
