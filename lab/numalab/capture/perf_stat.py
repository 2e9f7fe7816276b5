"""What `perf stat -x ,` counted while the command ran."""

import csv
import re
from collections.abc import Iterable

MAX_LINES = 10_000
_COUNT = re.compile(r"\d{1,20}(\.\d{1,9})?")


def parse_perf_stat(text: str) -> dict[str, int | float | None]:
    """Parse the CSV of perf-stat(1): the counts by event, None for one that was not counted.

    perf writes `<not supported>` for an event that the CPU or hypervisor has no counter for, and
    `<not counted>` for one that never was on a CPU; neither is 0. A count that was scaled up,
    because perf had more events than counters, is the scaled one. Lines that are not understood
    are left out.
    """
    counts: dict[str, int | float | None] = {}
    for row in csv.reader(text.splitlines()[:MAX_LINES]):
        if len(row) < 3 or row[0].startswith("#") or not row[2]:
            continue
        value, event = row[0], row[2]
        if _COUNT.fullmatch(value):
            counts[event] = float(value) if "." in value else int(value)
        elif value in ("<not supported>", "<not counted>"):
            counts[event] = None
    return counts


def perf_counts(asked: Iterable[str], text: str | None) -> dict[str, int | float | None]:
    """Return the count of every event that was asked for; None for one that perf did not count.

    An event that this kernel lacks was not given to perf at all. `text` is None where perf left
    nothing.
    """
    counted = parse_perf_stat(text or "")
    return {event: counted.get(event) for event in asked}


def perf_measure_name(event: str) -> str:
    """Return the name of an event's measure: `perf_cache_misses`, `perf_sched_move_numa`.

    A tracepoint has its event's name alone, which is unique enough.
    """
    return "perf_" + re.sub(r"\W", "_", event.rpartition(":")[2])
