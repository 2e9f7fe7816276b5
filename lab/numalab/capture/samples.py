"""Counters that the guest's numalab-run read while the command ran, as tables.

The text comes from a guest: a line that is not understood is left out, and nothing is raised.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

MAX_LINES = 2_000_000
_NUMBER = re.compile(r"-?\d{1,18}")
_BY_NODE = re.compile(r"(\d{1,4}):(\d{1,18})")
_FAULTS = re.compile(r"(\d{1,4}):(\d{1,18}):(\d{1,18}):(\d{1,18}):(\d{1,18})")

Schema = Mapping[str, type[pl.DataType]]
VMSTAT: Schema = {"time_ns": pl.Int64, "counter": pl.String, "value": pl.Int64}
SCHEDSTAT: Schema = {
    "time_ns": pl.Int64,
    "cpu": pl.Int32,
    "running_ns": pl.Int64,
    "waiting_ns": pl.Int64,
    "timeslices": pl.Int64,
}
TASKS: Schema = {
    "time_ns": pl.Int64,
    "tgid": pl.Int32,
    "pid": pl.Int32,
    "comm": pl.String,
    "node": pl.Int32,
    "ngid": pl.Int32,
}
FAULTS: Schema = {
    "time_ns": pl.Int64,
    "pid": pl.Int32,
    "node": pl.Int32,
    "task_private": pl.Int64,
    "task_shared": pl.Int64,
    "group_private": pl.Int64,
    "group_shared": pl.Int64,
}
PAGES: Schema = {"time_ns": pl.Int64, "tgid": pl.Int32, "node": pl.Int32, "kib": pl.Int64}


@dataclass(frozen=True)
class Samples:
    """Tables with a row for each value sampled; `time_ns` is CLOCK_MONOTONIC.

    `vmstat`: counter, value. `schedstat`: of each CPU as `CpuSchedstat`. `tasks`: each thread with
    its process (tgid), name, preferred NUMA node (-1: none) and NUMA group (0: none). `faults`: the
    NUMA faults of a task by node (/proc/PID/sched; they decay). `pages`: KiB of a process by node.
    """

    vmstat: pl.DataFrame
    schedstat: pl.DataFrame
    tasks: pl.DataFrame
    faults: pl.DataFrame
    pages: pl.DataFrame


def parse_samples(text: str) -> Samples:
    """Parse the samples; tables of what was not sampled are empty."""
    rows: dict[str, list[tuple[int | str, ...]]] = {
        name: [] for name in ("vmstat", "schedstat", "tasks", "faults", "pages")
    }
    time = 0
    for line in text.splitlines()[:MAX_LINES]:
        kind, *words = line.split()[:400] or [""]
        if kind == "@" and words and _NUMBER.fullmatch(words[0]):
            time = int(words[0])
        else:
            for table, row in _rows(kind, words):
                rows[table].append((time, *row))
    schemas: dict[str, Schema] = {
        "vmstat": VMSTAT,
        "schedstat": SCHEDSTAT,
        "tasks": TASKS,
        "faults": FAULTS,
        "pages": PAGES,
    }
    return Samples(
        **{
            name: pl.DataFrame(rows[name], schema=schema, orient="row", strict=False)
            for name, schema in schemas.items()
        }
    )


def _rows(kind: str, words: list[str]) -> Iterator[tuple[str, tuple[int | str, ...]]]:
    match kind, words:
        case "vmstat", [counter, value] if _NUMBER.fullmatch(value):
            yield "vmstat", (counter, int(value))
        case "schedstat", [cpu, *numbers] if len(numbers) >= 9:
            if re.fullmatch(r"cpu\d{1,5}", cpu) and all(map(_NUMBER.fullmatch, numbers[6:9])):
                yield "schedstat", (int(cpu[3:]), *map(int, numbers[6:9]))
        case "task", [tgid, pid, node, group, *rest]:
            if all(map(_NUMBER.fullmatch, (tgid, pid, node, group))):
                name = rest.pop(0) if rest and ":" not in rest[0] else ""
                yield "tasks", (int(tgid), int(pid), _name(name), int(node), int(group))
                for found in filter(None, map(_FAULTS.fullmatch, rest)):
                    yield "faults", (int(pid), *map(int, found.groups()))
        case "pages", [tgid, *rest] if _NUMBER.fullmatch(tgid):
            for found in filter(None, map(_BY_NODE.fullmatch, rest)):
                yield "pages", (int(tgid), int(found[1]), int(found[2]))


def _name(text: str) -> str:
    """Turn hexadecimal into a task's name, bytes that are not UTF-8 into `\\xNN`."""
    if not re.fullmatch(r"([0-9a-f]{2}){0,64}", text):
        return ""
    return bytes.fromhex(text).decode("utf-8", "backslashreplace")
