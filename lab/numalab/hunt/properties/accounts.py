"""The kernel's accounts of each task and of each cgroup, beside what the trace shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from numalab.hunt.load_text import TaskAccount
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import between, total
from numalab.recording.stays import SLEEPING_BITS

# A switch takes its time from the queue's clock and is traced later. In mode icount other CPUs may
# have their turns in between: 0.17 ms on average for a waker on six CPUs.
_LEAST_MS, _OF_SWITCH_MS, _LEAST_COUNT = 200, 0.5, 10
_WHOLE_CPU = 1 << 20  # BW_UNIT of kernel/sched/sched.h
_LEAST_LOAD = 100  # a tenth of a task of nice level 0
_IN, _READY, _ASLEEP, _WOKEN = range(4)  # switched in, out while ready, out to sleep; woken


@dataclass(frozen=True)
class TracedAccount:
    """The account of a task that the trace shows, and a wait that lasts when it is read."""

    account: TaskAccount
    lasting_ns: int


@register_property("account", unit="%", most=40.0, suspect=20.0, any_load=True)
def account(run: LoadRecording) -> Iterator[Observation]:
    """The kernel's account of a task is true: times on CPUs and in queues, switches, migrations.

    The value is the largest difference in % of what the trace shows, to which 10 are added, or 200
    ms and half a ms for each switch. A wait that lasts when the account is read may be in it or
    not: the kernel adds it when the task runs or leaves the queue. Reported are `sum_exec_runtime`
    and `run_delay` (/proc/PID/schedstat), `nr_switches` and `nr_migrations` (/proc/PID/sched;
    kernel/sched/debug.c, 6.12), since the fork.
    """
    if not run.printed.accounts:  # the kernel has no CONFIG_SCHED_DEBUG
        return
    traced = traced_accounts(run)
    for place, part in enumerate(run.load.parts):
        differences = [
            _difference(kernels, traced[pid])
            for pid, kernels in run.printed.accounts.items()
            if pid in traced and run.load_tasks[pid].part == place
        ]
        if differences:
            value, text = max(differences)
            yield Observation(value, f"a {part.kind} has {text}")


@register_property("group-account", unit="%", most=40.0, suspect=20.0, any_load=True)
def group_account(run: LoadRecording) -> Iterator[Observation]:
    """The kernel's account of a cgroup's CPU time is true.

    The value is the difference in % of what its tasks ran in the trace, to which 200 ms and half a
    ms for each turn are added (`usage_usec` of `cpu.stat`, admin-guide/cgroup-v2.rst). Groups that
    tasks enter or leave meanwhile have none.
    """
    load = run.load
    places = {change.part for change in load.changes if change.into}
    moved = {load.parts[place].group for place in places if place is not None}
    moved |= {change.into for change in load.changes if change.into}
    for group in load.groups:
        inside = load.places_in(group)
        names = {load.parts[place].group for place in inside} | {group.name}
        kernels = run.printed.groups.get(group.name)
        if kernels is not None and inside and not names & moved:
            ran_ms = sum(_ran_ns(run, place) for place in inside) / MS
            turns = sum(_turns(run, place) for place in inside)
            least = _LEAST_MS + _OF_SWITCH_MS * turns
            value, text = _compared(kernels.used_us / 1000, ran_ms, least, "ms on CPUs")
            yield Observation(value, f"the tasks of group {group.name} have {text}")


@register_property("group-settings", unit="files", most=0.0, any_load=True)
def group_settings(run: LoadRecording) -> Iterator[Observation]:
    """A cgroup's files read as they were written.

    `cpu.max`, `cpu.max.burst`, and `cpu.weight` of a group that is not idle.
    """
    for group in run.load.groups:
        if (kernels := run.printed.groups.get(group.name)) is not None:
            text = f"{kernels.wrong} of the files of group {group.name} read other than was written"
            yield Observation(kernels.wrong, text)


@register_property("group-load", unit="%", most=20.0, suspect=10.0, any_load=True)
def group_load(run: LoadRecording) -> Iterator[Observation]:
    """A cgroup's load forgets tasks that are gone.

    The value is the part of the load, to which 100 are added, of queues that the kernel no longer
    updates (`tg_load_avg` without `tg_load_avg_contrib` of the queues of
    /sys/kernel/debug/sched/debug; cfs_rq_is_decayed(), kernel/sched/fair.c, 6.12). Groups below a
    quota have none: the queues of throttled ones are not updated.
    """
    for group in run.load.groups:
        kernels = run.printed.groups.get(group.name)
        if kernels is not None and not run.load.is_limited(group.name):
            left = kernels.load - kernels.listed
            yield Observation(
                100.0 * max(0, left) / (kernels.load + _LEAST_LOAD),
                f"of the load of group {group.name}, {kernels.load}, {left} is of queues that the"
                " kernel no longer updates",
            )


@register_property("deadline-bandwidth", unit="% of a CPU", most=0.0, any_load=True)
def deadline_bandwidth(run: LoadRecording) -> Iterator[Observation]:
    """Nothing stays admitted for deadline tasks that are gone.

    The value is the change of `dl_bw->total_bw` (/sys/kernel/debug/sched/debug) over the load, two
    seconds after its tasks were killed; not where CPUs or root domains change.
    """
    left = run.printed.counters.get("end", {}).get("admitted_left")
    if left is not None and not run.load.changes_machine:
        value = 100.0 * left / run.topology.cpu_count / _WHOLE_CPU
        yield Observation(value, f"{value:.3g} % of a CPU is admitted for tasks that are gone")


def _ran_ns(run: LoadRecording, place: int) -> int:
    """Return how long the tasks of a part ran since the begin, until they were stopped."""
    late = (
        total(between(spans, run.window.end_ns, run.stopped_ns))
        for pid, spans in run.ran_until_stopped.items()
        if run.load_tasks[pid].part == place
    )
    return int(run.time_on(place, run.window)["ns"].sum()) + sum(late)


def _turns(run: LoadRecording, place: int) -> int:
    """Return how often tasks of a part had a CPU."""
    mine = [pid for pid, task in run.load_tasks.items() if task.part == place]
    return run.load_spans.filter(pl.col("pid").is_in(mine)).height


def _difference(kernels: TaskAccount, of_trace: TracedAccount) -> tuple[float, str]:
    """Return the largest difference of an account, in %, as a number and in words."""
    traced = of_trace.account
    least = _LEAST_MS + _OF_SWITCH_MS * traced.switches
    counted = min(max(kernels.waited_ns - traced.waited_ns, 0), of_trace.lasting_ns)
    waited_ms = (traced.waited_ns + counted) / MS
    return max(
        _compared(kernels.ran_ns / MS, traced.ran_ns / MS, least, "ms on CPUs"),
        _compared(kernels.waited_ns / MS, waited_ms, least, "ms in run queues"),
        _compared(kernels.switches, traced.switches, _LEAST_COUNT, "context switches"),
        _compared(kernels.migrations, traced.migrations, _LEAST_COUNT, "migrations"),
    )


def _compared(kernels: float, traced: float, least: float, what: str) -> tuple[float, str]:
    text = f"{traced:.0f} {what}, and {kernels:.0f} in the kernel's account"
    return 100.0 * abs(kernels - traced) / (traced + least), text


def traced_accounts(run: LoadRecording) -> Mapping[int, TracedAccount]:
    """Return the account of each task of the load that the trace shows, until it was stopped."""
    table = (
        run.table.lazy()
        .filter(pl.col("time_ns") <= run.stopped_ns)
        .select("time_ns", "event", "prev_pid", "prev_state", "next_pid", "event_pid")
        .collect()
    )
    events = {
        str(name): rows for (name,), rows in table.partition_by("event", as_dict=True).items()
    }
    switches = events.get("sched_switch", table.clear())
    wakeups = [events[name] for name in ("sched_wakeup", "sched_wakeup_new") if name in events]
    ready = (pl.col("prev_state") & SLEEPING_BITS) == 0
    left = pl.when(ready).then(_READY).otherwise(_ASLEEP)
    steps = [
        *(rows.select("time_ns", pid="event_pid", step=pl.lit(_WOKEN)) for rows in wakeups),
        switches.select("time_ns", pid="prev_pid", step=left),
        switches.select("time_ns", pid="next_pid", step=pl.lit(_IN)),
    ]
    rows = pl.concat(steps).filter(pl.col("pid").is_in(list(run.load_tasks)))
    rows = rows.sort("pid", "time_ns", maintain_order=True)
    waited = _passed(rows, pl.col("before").is_in([_READY, _WOKEN]) & (pl.col("step") == _IN))
    on_cpus = rows.filter(pl.col("step") != _WOKEN)
    ran = _passed(on_cpus, (pl.col("before") == _IN) & (pl.col("step") != _IN))
    moves = events.get("sched_migrate_task", table.clear()).group_by("event_pid").len()
    moved = dict(moves.iter_rows())
    last = rows.group_by("pid").last().filter(pl.col("step").is_in([_READY, _WOKEN]))
    lasting = dict(last.select("pid", run.stopped_ns - pl.col("time_ns")).iter_rows())
    return {
        pid: TracedAccount(
            TaskAccount(ns, waited.get(pid, (0, 0))[0], count, moved.get(pid, 0)),
            lasting.get(pid, 0),
        )
        for pid, (ns, count) in ran.items()
    }


def _passed(rows: pl.DataFrame, of_interest: pl.Expr) -> dict[int, tuple[int, int]]:
    """Return by process the time between rows and those before, and how many are of interest."""
    steps = rows.with_columns(
        before=pl.col("step").shift().over("pid"),
        ns=(pl.col("time_ns") - pl.col("time_ns").shift()).over("pid"),
    )
    sums = steps.filter(of_interest).group_by("pid").agg(pl.col("ns").sum(), pl.len())
    return {pid: (ns, count) for pid, ns, count in sums.iter_rows()}
