"""The kernel's accounts of each task, beside what the trace shows."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from numalab.hunt.loads.driver_output import TaskAccount
from numalab.hunt.loads.exact_output import Turns
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.events import fell_asleep

# A switch takes its time from the queue's clock and is traced later. In mode icount other CPUs may
# have their turns in between: 0.17 ms on average for a waker on six CPUs.
LEAST_MS, OF_SWITCH_MS, _LEAST_COUNT = 200, 0.5, 10
# Switched in, out while ready, out to sleep; woken; moved to another CPU.
_IN, _READY, _ASLEEP, _WOKEN, _MOVED = range(5)


@dataclass(frozen=True)
class TracedAccount:
    """The account of a task that the trace shows.

    `perhaps_ns` is time that the kernel may count as waiting or not: a wait that lasts when the
    account is read, and sleep after a move in it.
    """

    account: TaskAccount
    perhaps_ns: int


@register_property("account", unit="%", most=40.0, suspect=20.0, any_load=True)
def account(run: LoadRecording) -> Iterator[Observation]:
    """A task's reported runtime, delay, switches and migrations match the trace.

    The value is the largest difference in % of what the trace shows, to which 10 are added, or 200
    ms and half a ms for each switch. A wait that lasts when the account is read may be in it or
    not: the kernel adds it when the task runs or leaves the queue. So may the rest of a sleep in
    which a task moves to another CPU: while its dequeue is delayed, enqueue_task() (core.c, 6.12,
    7.3) notes the begin of a wait. Reported are `sum_exec_runtime`
    and `run_delay` (/proc/PID/schedstat), `nr_switches` and `nr_migrations` (/proc/PID/sched;
    kernel/sched/debug.c, 6.12), since the fork. Or by how much `wait_sum` of a stopped thread of
    a fair part (same file; __update_stats_wait_end()) is below its `run_delay`: it may be more, as
    tasks may stay in queues while they sleep.
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
        # Since 6.18 a task that a quota stops is in no queue, and only its delay goes on.
        fair = not (part.is_real_time or run.load.has_quota(part))
        fair = fair and not any(change.policy for change in run.load.changes)
        differences += [
            _less_waits(turns, traced[pid].perhaps_ns if pid in traced else 0)
            for pid, turns in run.printed.exact.turns.items()
            if fair and turns.waits_us >= 0 and pid in run.stopped_threads
            if pid in run.load_tasks and run.load_tasks[pid].part == place
        ]
        if differences:
            value, text = max(differences)
            yield Observation(value, f"a {part.kind} has {text}")


def _less_waits(turns: Turns, perhaps_ns: int) -> tuple[float, str]:
    """Return by how much the waits in the statistics are too short, in %, and in words."""
    short_us = max(0.0, turns.delay_us - turns.waits_us - perhaps_ns / 1000)
    value = 100.0 * short_us / (turns.delay_us + 1000 * LEAST_MS)
    return value, f"{turns.delay_us} us of delay, and {turns.waits_us} us in the sum of its waits"


def _difference(kernels: TaskAccount, of_trace: TracedAccount) -> tuple[float, str]:
    """Return the largest difference of an account, in %, as a number and in words."""
    traced = of_trace.account
    least = LEAST_MS + OF_SWITCH_MS * traced.switches
    counted = min(max(kernels.waited_ns - traced.waited_ns, 0), of_trace.perhaps_ns)
    waited_ms = (traced.waited_ns + counted) / MS
    return max(
        compared(kernels.ran_ns / MS, traced.ran_ns / MS, least, "ms on CPUs"),
        compared(kernels.waited_ns / MS, waited_ms, least, "ms in run queues"),
        compared(kernels.switches, traced.switches, _LEAST_COUNT, "context switches"),
        compared(kernels.migrations, traced.migrations, _LEAST_COUNT, "migrations"),
    )


def compared(kernels: float, traced: float, least: float, what: str) -> tuple[float, str]:
    """Return a difference in % of what the trace shows and `least`, as a number and in words."""
    text = f"{traced:.0f} {what}, and {kernels:.0f} in the kernel's account"
    return 100.0 * abs(kernels - traced) / (traced + least), text


def traced_accounts(run: LoadRecording) -> Mapping[int, TracedAccount]:
    """Return the account of each task of the load that the trace shows, until it was stopped."""
    table = run.until_stopped.select(
        "time_ns", "event", "prev_pid", "prev_state", "next_pid", "event_pid"
    )
    events = {
        str(name): rows for (name,), rows in table.partition_by("event", as_dict=True).items()
    }
    switches = events.get("sched_switch", table.clear())
    wakeups = [events[name] for name in ("sched_wakeup", "sched_wakeup_new") if name in events]
    left = pl.when(~fell_asleep()).then(_READY).otherwise(_ASLEEP)
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
    moves = events.get("sched_migrate_task", table.clear())
    moved = dict(moves.group_by("event_pid").len().iter_rows())
    asleep = _asleep_after_moves(rows, moves)
    last = rows.group_by("pid").last().filter(pl.col("step").is_in([_READY, _WOKEN]))
    lasting = dict(last.select("pid", run.stopped_ns - pl.col("time_ns")).iter_rows())
    return {
        pid: TracedAccount(
            TaskAccount(ns, waited.get(pid, (0, 0))[0], count, moved.get(pid, 0)),
            lasting.get(pid, 0) + asleep.get(pid, 0),
        )
        for pid, (ns, count) in ran.items()
    }


def _asleep_after_moves(rows: pl.DataFrame, moves: pl.DataFrame) -> dict[int, int]:
    """Return by process the time, in ns, that it slept on after moves to other CPUs."""
    of_moves = moves.select("time_ns", pid="event_pid", step=pl.lit(_MOVED, rows["step"].dtype))
    of_moves = of_moves.filter(pl.col("pid").is_in(rows["pid"].unique().implode()))
    steps = pl.concat([rows.select("time_ns", "pid", "step"), of_moves]).sort(
        "pid", "time_ns", maintain_order=True
    )
    is_move = pl.col("step") == _MOVED
    steps = steps.with_columns(
        ns=(pl.col("time_ns").shift(-1) - pl.col("time_ns")).over("pid"),
        state=pl.when(~is_move).then("step").forward_fill().over("pid"),
    )
    sums = steps.filter(is_move & (pl.col("state") == _ASLEEP)).group_by("pid").agg(pl.sum("ns"))
    return dict(sums.iter_rows())


def _passed(rows: pl.DataFrame, of_interest: pl.Expr) -> dict[int, tuple[int, int]]:
    """Return by process the time between rows and those before, and how many are of interest."""
    steps = rows.with_columns(
        before=pl.col("step").shift().over("pid"),
        ns=(pl.col("time_ns") - pl.col("time_ns").shift()).over("pid"),
    )
    sums = steps.filter(of_interest).group_by("pid").agg(pl.col("ns").sum(), pl.len())
    return {pid: (ns, count) for pid, ns, count in sums.iter_rows()}
