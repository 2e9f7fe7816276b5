"""Properties of NUMA balancing: tasks and their memory converge on one node and stay."""

from collections.abc import Iterator

import polars as pl

from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import GRACE_MS, MS, LoadRecording
from numalab.recording.window import Window


@register_property("numa-convergence", unit="of accesses", most=0.9, suspect=0.25)
def convergence(run: LoadRecording) -> Iterator[Observation]:
    """At the end, memory users run on the node of their memory.

    The value is the share of remote accesses in the last quarter of the time: for each task the
    share of its time on each node, times the share of its pages on other nodes. Nodes without
    memory are left out. Always weak: convergence may take longer than the load.
    """
    load = run.load
    if len(run.topology.nodes) < 2 or load.rebuilds_domains:
        return
    end = run.window.end_ns
    late = Window(end - run.window.length_ns // 4, end)
    for place, part in enumerate(load.parts):
        if part.kind != "memory":
            continue
        time = run.time_on(place, late)
        far = whole = 0.0
        for pid, task in run.load_tasks.items():
            if task.part != place or task.number >= part.count:
                continue
            pages = run.printed.pages.get(
                (place, 0 if part.threads or part.shared else task.number)
            )
            ran = {cpu: ns for _, cpu, ns in time.filter(pl.col("pid") == pid).iter_rows()}
            if not pages or not ran:
                continue
            for cpu, ns in ran.items():
                node = run.topology.node_of_cpu(cpu)
                if not run.topology.nodes[node].memory_mib:
                    continue
                away = sum(count for at, count in pages.items() if at != node)
                far += ns * away / sum(pages.values())
                whole += ns
        if not whole:
            continue
        yield Observation(
            far / whole,
            f"at the end {100 * far / whole:.0f} % of what memory users touch is on another node"
            f" than they",
            weak=True,
        )  # fmt: skip


@register_property("storms", unit="a second", most=5000.0, suspect=100.0)
def storms(run: LoadRecording) -> Iterator[Observation]:
    """In the second half of a load there are few NUMA hinting faults."""
    if (rate := _rate(run, "numa_hint_faults")) is not None:
        yield Observation(
            rate,
            f"{rate:.0f} hinting faults a second and memory user in the later half of"
            f" {run.load.ms} ms",
            weak=any(part.later for part in run.load.parts),
        )  # fmt: skip


@register_property("page-moves", unit="a second", most=50000.0, suspect=50.0)
def page_moves(run: LoadRecording) -> Iterator[Observation]:
    """In the second half of a load NUMA balancing migrates few pages."""
    if (rate := _rate(run, "numa_pages_migrated")) is not None:
        yield Observation(
            rate,
            f"{rate:.0f} pages a second and memory user moved to another node in the later half of"
            f" {run.load.ms} ms",
            weak=any(part.later for part in run.load.parts),
        )  # fmt: skip


def _rate(run: LoadRecording, name: str) -> float | None:
    """Return the growth of a counter in the second half, for each second and memory user."""
    users = run.memory_users
    if not users or {"half", "end"} - run.printed.counters.keys():
        return None
    grown = run.printed.counters["end"].get(name, 0) - run.printed.counters["half"].get(name, 0)
    return grown / users / (run.load.ms / 2000)


@register_property("numa-moves", unit="a second", most=20.0, suspect=2.0)
def moves(run: LoadRecording) -> Iterator[Observation]:
    """In the second half of a load NUMA balancing rarely moves or swaps tasks."""
    if (counted := _settled(run, "sched_move_numa", "sched_swap_numa")) is not None:
        made, rate = counted
        yield Observation(
            rate,
            f"NUMA balancing moved or swapped tasks {made} times in"
            f" {run.settled.length_ns / MS:.0f} ms",
        )  # fmt: skip


@register_property("numa-sticks", unit="a second", most=500.0, suspect=4.0)
def sticks(run: LoadRecording) -> Iterator[Observation]:
    """In the second half of a load NUMA balancing rarely fails to find a CPU for a task.

    Always weak: if the preferred node is full, it tries again with each scan.
    """
    if (counted := _settled(run, "sched_stick_numa")) is not None:
        tried, rate = counted
        yield Observation(
            rate,
            f"NUMA balancing looked {tried} times in vain for a place for one of"
            f" {run.memory_users} memory users in {run.settled.length_ns / MS:.0f} ms",
            weak=True,
        )  # fmt: skip


def _settled(run: LoadRecording, *events: str) -> tuple[int, float] | None:
    """Count events in the settled time: in total, a second and memory user.

    None without memory users, or where the last change leaves no time to settle.
    """
    users, window = run.memory_users, run.settled
    if not users or window.length_ns < 2 * GRACE_MS * MS:
        return None
    when = pl.col("time_ns").is_between(window.start_ns, window.end_ns)
    count = run.events(*events).filter(when).height
    return count, count / users / (window.length_ns / 1e9)


@register_property("throughput", unit="times", most=2.0, suspect=1.2)
def throughput(run: LoadRecording) -> Iterator[Observation]:
    """Memory users without a mask do as much work as if bound at random (mode `timed`).

    The value is the pages touched in the first half of the time, when each task is bound to its own
    CPU, over those of the second half. Only for machines whose far memory is slower.
    """
    parts = run.load.parts
    alone = {part.cpus for part in parts if part.kind == "memory" and len(part.cpus) == 1}
    apart = len(alone) == len(parts) and all(part.count == 1 and part.later for part in parts)
    if not run.far_costs or not apart:
        return
    began, half, end = (run.printed.counters.get(when, {}).get("pages_touched")
                        for when in ("begin", "half", "end"))  # fmt: skip
    if began is None or half is None or end is None:
        return
    bound, free = half - began, end - half
    yield Observation(
        bound / max(1, free),
        f"{len(parts)} memory users touched {bound} pages while each was bound to a random CPU, and"
        f" {free} in as long a time afterwards, when they could run anywhere",
    )  # fmt: skip
