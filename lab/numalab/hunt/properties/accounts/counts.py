"""What the kernel counts of switches, migrations and forks, each of which the trace shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from numalab.hunt.loads.exact_output import ThreadAccount, Turns
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import LoadRecording
from numalab.recording.events import fell_asleep
from numalab.recording.window import marks

_BLOCKED = {"blocked": "blocked", "blocked_by_io": "waiting for a device"}


@dataclass(frozen=True)
class _Counted:
    """What the trace shows of a thread from its fork until it stopped."""

    voluntary: int
    involuntary: int
    migrations: int


@dataclass(frozen=True)
class ReadTimes:
    """When /proc/stat was read, in ns of the trace clock: each time from and to a mark."""

    first: tuple[int, int]
    last: tuple[int, int]


@register_property("thread-counts", unit="events", most=0.0, any_load=True)
def thread_counts(run: LoadRecording) -> Iterator[Observation]:
    """The kernel counts each thread's switches and migrations.

    The value is the largest difference from the trace. Judged are threads whose fork the trace
    shows, and that had stopped (/proc/PID/task/TID/sched: `nr_voluntary_switches`,
    `nr_involuntary_switches`, `se.nr_migrations`; __schedule() and set_task_cpu(),
    kernel/sched/core.c, 6.12). Each signal may keep a thread from sleeping, which some kernels
    trace as an involuntary switch. Turns in schedstat (proc(5)) are no more than traced switches,
    and at least half of them: one after a preemption on the way to sleep does not count.
    """
    traced = _traced_counts(run)
    signals = 1 + sum(change.stop or change.go for _, change in run.load.timeline)
    for place, part in enumerate(run.load.parts):
        differences = [
            _difference(kernels, traced[pid], signals, run.printed.exact.turns.get(pid))
            for pid, kernels in run.printed.exact.threads.items()
            if pid in traced and pid in run.load_tasks and run.load_tasks[pid].part == place
        ]
        if differences:
            value, text = max(differences)
            yield Observation(value, f"a thread of a {part.kind} has {text}")


def _difference(
    kernels: ThreadAccount, traced: _Counted, signals: int, turns: Turns | None
) -> tuple[int, str]:
    """Return the largest difference as a number and in words."""
    of_kernel = kernels.voluntary, kernels.involuntary, kernels.migrations
    of_trace = traced.voluntary, traced.involuntary, traced.migrations
    slept = abs(kernels.voluntary - traced.voluntary)
    away = max(
        abs(sum(of_kernel[:2]) - sum(of_trace[:2])),
        slept if slept > signals else 0,
        abs(kernels.migrations - traced.migrations),
    )
    switches = sum(of_trace[:2])
    count = switches if turns is None else turns.count
    if (wrong := max(count - switches, switches // 2 - count)) > away:
        return wrong, f"{switches} switches, and {count} turns in the kernel's account"
    words = "{} voluntary and {} involuntary switches and {} migrations".format
    return away, f"{words(*of_trace)}, and in the kernel's account {words(*of_kernel)}"


@register_property("system-counts", unit="events", most=0.0, any_load=True)
def system_counts(run: LoadRecording) -> Iterator[Observation]:
    """The kernel counts switches, forks and blocked tasks.

    The value is how many the growth of `ctxt` and `processes` (/proc/stat, proc(5)) over the load
    is above the most, or below the least, that the trace shows: each file is read between two
    marks. A fork is counted before the new task wakes up, on each CPU perhaps one. Or it is how
    many tasks more or less than after the load before count as blocked two seconds after the load:
    the sum of `nr_uninterruptible` (/sys/kernel/debug/sched/debug), and `procs_blocked`.
    """
    for name, what in _BLOCKED.items():
        if (more := run.printed.counters.get("end", {}).get(name)) is not None:
            yield Observation(abs(more), f"{more:+} tasks that are gone count as {what}")
    times, readings = read_times(run), run.printed.exact.readings
    if times is None or run.load.hotplug:
        return
    first, last = readings["first"], readings["last"]
    most, least = (times.first[0], times.last[1]), (times.first[1], times.last[0])
    table, cpus = run.table.lazy().collect(), run.topology.cpu_count
    for what, grown, event, slack in (
        ("context switches", last.switches - first.switches, "sched_switch", 0),
        ("forks", last.forks - first.forks, "sched_wakeup_new", cpus),
    ):
        at = table.filter(pl.col("event") == event)["time_ns"]
        low, high = (int(at.is_between(*ends).sum()) for ends in (least, most))
        away = max(0, grown - high - slack, low - slack - grown)
        text = f"the trace shows {low} to {high} {what}, and /proc/stat {grown}"
        yield Observation(away, text)


def read_times(run: LoadRecording) -> ReadTimes | None:
    """Return when /proc/stat was read first and last; None if not twice, or if events were lost."""
    if len(run.printed.exact.readings) < 2 or run.has_gaps:
        return None
    written = marks(run.table)
    before, after = (
        written.filter(pl.col("text") == f"hunt: load {run.number} {word}")["time_ns"].to_list()
        for word in ("reading", "read")
    )
    if len(before) != 2 or len(after) != 2:
        return None
    return ReadTimes((before[0], after[0]), (before[1], after[1]))


def _traced_counts(run: LoadRecording) -> Mapping[int, _Counted]:
    """Return what the trace shows of each thread that had stopped."""
    if not run.printed.exact.threads:
        return {}
    rows = run.until_stopped
    switches = rows.filter(pl.col("event") == "sched_switch")
    left = {
        pid: (asleep, count)
        for pid, asleep, count in switches.group_by("prev_pid")
        .agg(asleep=fell_asleep().sum(), count=pl.len())
        .iter_rows()
    }
    moved = (pl.col("event") == "sched_migrate_task") & (pl.col("orig_cpu") != pl.col("dest_cpu"))
    moves = dict(rows.filter(moved).group_by("event_pid").len().iter_rows())
    return {
        pid: _Counted(left[pid][0], left[pid][1] - left[pid][0], moves.get(pid, 0))
        for pid in run.stopped_threads
    }
