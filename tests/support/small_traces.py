"""Small traces written by hand, as tables like those that a recording is decoded into."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

SCHEMA = {
    "time_ns": pl.Int64,
    "cpu": pl.Int16,
    "node": pl.Int16,
    "event": pl.String,
    "pid": pl.Int32,
    "comm": pl.String,
    "lost": pl.Int64,
    "buf": pl.String,
    "prev_comm": pl.String,
    "prev_pid": pl.Int32,
    "prev_state": pl.Int64,
    "next_comm": pl.String,
    "next_pid": pl.Int32,
    "event_comm": pl.String,
    "event_pid": pl.Int32,
    "target_cpu": pl.Int32,
    "orig_cpu": pl.Int32,
    "dest_cpu": pl.Int32,
    "src_pid": pl.Int32,
    "src_cpu": pl.Int32,
    "dst_pid": pl.Int32,
    "dst_cpu": pl.Int32,
    "src_tgid": pl.Int32,
    "src_ngid": pl.Int32,
    "tgid": pl.Int32,
    "ngid": pl.Int32,
}
SLEEPS, PREEMPTED, RUNS = 1, 0x100, 0
Row = dict[str, Any]


def _task(task: str) -> tuple[str, int]:
    """`hog:7` is the task hog with pid 7; `idle` is the idle task."""
    if task == "idle":
        return "swapper", 0
    comm, _, pid = task.rpartition(":")
    return comm, int(pid)


def switch(time: int, cpu: int, prev: str, next_: str, state: int = RUNS) -> Row:
    (left, left_pid), (came, came_pid) = _task(prev), _task(next_)
    return {
        "time_ns": time,
        "cpu": cpu,
        "event": "sched_switch",
        "pid": left_pid,
        "comm": left,
        "prev_comm": left,
        "prev_pid": left_pid,
        "prev_state": state,
        "next_comm": came,
        "next_pid": came_pid,
    }


def wakeup(time: int, task: str, target: int, *, new: bool = False) -> Row:
    comm, pid = _task(task)
    name = "sched_wakeup_new" if new else "sched_wakeup"
    row = {"time_ns": time, "cpu": target, "event": name, "pid": 0, "comm": "<idle>"}
    return {**row, "event_comm": comm, "event_pid": pid, "target_cpu": target}


def migrate(time: int, task: str, orig: int, dest: int) -> Row:
    comm, pid = _task(task)
    row = {"time_ns": time, "cpu": dest, "event": "sched_migrate_task", "pid": 0, "comm": "<idle>"}
    return {**row, "event_comm": comm, "event_pid": pid, "orig_cpu": orig, "dest_cpu": dest}


def migrated_by(time: int, by: str, task: str, orig: int, dest: int) -> Row:
    """A migration reported on CPU `orig` while the task `by` ran there."""
    comm, pid = _task(by)
    return {**migrate(time, task, orig, dest), "cpu": orig, "pid": pid, "comm": comm}


def numa_move(time: int, task: str, src: int, dst: int, tgid: int = 0) -> Row:
    comm, pid = _task(task)
    row = {"time_ns": time, "cpu": src, "event": "sched_move_numa", "pid": pid, "comm": comm}
    return {**row, "event_pid": pid, "src_cpu": src, "dst_cpu": dst, "tgid": tgid, "ngid": 0}


def numa_pair(time: int, kind: str, task: str, src: int, *to: int) -> Row:
    """sched_swap_numa or sched_stick_numa; `to` is a CPU and the task there, 0 for none."""
    comm, pid = _task(task)
    dst, other = to
    row = {"time_ns": time, "cpu": src, "event": f"sched_{kind}_numa", "pid": pid, "comm": comm}
    return {
        **row,
        "src_pid": pid,
        "src_cpu": src,
        "dst_pid": other,
        "dst_cpu": dst,
        "src_tgid": pid,
        "src_ngid": 0,
    }


def mark(time: int, text: str, cpu: int = 0, pid: int = 99) -> Row:
    row = {"time_ns": time, "cpu": cpu, "event": "print", "pid": pid, "comm": "marker"}
    return {**row, "buf": f"{text}\n"}


def lost(time: int, cpu: int, number: int | None = None) -> Row:
    return {"time_ns": time, "cpu": cpu, "event": "lost_events", "lost": number}


def other(time: int, cpu: int, event: str, pid: int = 0) -> Row:
    return {"time_ns": time, "cpu": cpu, "event": event, "pid": pid, "comm": "<idle>"}


def table(*rows: Row) -> pl.DataFrame:
    """Make a table of rows in the order of their times; each CPU is a node of its own."""
    whole = [{**dict.fromkeys(SCHEMA), "node": row["cpu"], **row} for row in rows]
    return pl.DataFrame(whole, schema=SCHEMA, orient="row").sort("time_ns", maintain_order=True)


@dataclass(frozen=True)
class Trace:
    """The functions above."""

    switch: Callable[..., Row] = switch
    wakeup: Callable[..., Row] = wakeup
    migrate: Callable[..., Row] = migrate
    migrated_by: Callable[..., Row] = migrated_by
    numa_move: Callable[..., Row] = numa_move
    numa_pair: Callable[..., Row] = numa_pair
    mark: Callable[..., Row] = mark
    lost: Callable[..., Row] = lost
    other: Callable[..., Row] = other
    table: Callable[..., pl.DataFrame] = table
    sleeps: int = SLEEPS
    preempted: int = PREEMPTED
