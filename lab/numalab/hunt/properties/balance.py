"""Properties of load balancing: nobody waits for long while a CPU that may run it is idle."""

from collections.abc import Iterator

import polars as pl

from numalab.hunt.finding import Finding
from numalab.hunt.intervals import longest, total
from numalab.hunt.properties.tolerances import Tolerances
from numalab.hunt.recording import MS, LoadRecording

REACHABILITY = "reachability"
WORK_CONSERVATION = "work-conservation"
FAIRNESS = "fairness"
PING_PONG = "ping-pong"
AFFINITY = "affinity"


def reachability(run: LoadRecording, limits: Tolerances) -> Iterator[Finding]:
    """Every node that several hogs may use gets some of their work.

    Weak where they are no more than the machine's CPUs: a group that holds the busy CPUs and idle
    ones then need not count as overloaded (`group_is_overloaded()`, 6.12).

    The value is 0 for a node on which one of them ran in the settled time, else the share of that
    time in which its allowed CPUs were idle while a task waited that may run there.
    """
    if run.load.hotplug or run.load.cpuset:
        return
    window = run.settled
    for place, part in enumerate(run.load.parts):
        if part.kind != "hog" or part.later or part.count < 2:
            continue
        ran = run.time_on(place, window)
        idle = run.avoidable(place, window)
        for node in run.machine.nodes:
            mine = sorted(set(part.cpus) & set(node.cpus))
            if not mine or window.length_ns <= 0:
                continue
            worked = int(ran.filter(pl.col("cpu").is_in(mine))["ns"].sum())
            unused = min(total(idle[cpu]) if cpu in idle else 0 for cpu in mine)
            share = unused / window.length_ns if not worked else 0.0
            yield Finding(
                REACHABILITY, run.number, round(share, 4), limits.unreached,
                f"tasks that may run on node {node.id} (CPUs {_list(mine)}) never did in"
                f" {window.length_ns / MS:.0f} ms, of which it was idle for"
                f" {100 * share:.0f} % while one of them waited elsewhere",
                weak=part.count <= run.machine.cpu_count,
            )  # fmt: skip


def work_conservation(run: LoadRecording, limits: Tolerances) -> Iterator[Finding]:
    """No allowed CPU is idle for longer than T while a task waits that may run there."""
    for place, part in enumerate(run.load.parts):
        worst, at, where = 0, 0, -1
        for cpu, spans in run.avoidable(place).items():
            length, start = longest(spans)
            if length > worst:
                worst, at, where = length, start, cpu
        most = limits.idle_ms[part.kind]
        yield Finding(
            WORK_CONSERVATION, run.number, round(worst / MS, 3), most,
            f"CPU {where} was idle for {worst / MS:.1f} ms while a {part.kind} that may run there"
            f" waited, from {(at - run.window.start_ns) / MS:.1f} ms after the begin"
            if worst else f"no {part.kind} waited while a CPU was idle that may run it",
        )  # fmt: skip


def fairness(run: LoadRecording, limits: Tolerances) -> Iterator[Finding]:
    """Equal hogs that have CPUs of their own get at least a part of what an even share is.

    The share is that of the fullest CPU when tasks are spread evenly: 1 / ceil(tasks / CPUs). The
    value is how many times less than that the poorest task got.
    """
    parts = run.load.parts
    if len(parts) != 1 or parts[0].kind != "hog" or parts[0].later:
        return
    if run.load.hotplug or run.load.cpuset:
        return
    part, window = parts[0], run.settled
    ran = dict(run.time_on(0, window).group_by("pid").agg(pl.col("ns").sum()).iter_rows())
    even = window.length_ns / -(-part.count // len(part.cpus))
    least = min((ran.get(pid, 0) for pid in run.tasks), default=0)
    value = even / max(least, even / 100)
    yield Finding(
        FAIRNESS, run.number, round(value, 3), limits.unfair,
        f"of {part.count} equal hogs on {len(part.cpus)} CPUs one ran for {least / MS:.0f} ms of"
        f" {window.length_ns / MS:.0f} ms, {value:.1f} times less than an even share",
    )  # fmt: skip


def ping_pong(run: LoadRecording, limits: Tolerances) -> Iterator[Finding]:
    """Where every hog can have a CPU of its own, hogs do not change nodes all the time."""
    load = run.load
    if load.hotplug or load.cpuset or any(p.kind != "hog" or p.later for p in load.parts):
        return
    if len({part.cpus for part in load.parts}) > 1 or load.tasks > len(load.parts[0].cpus):
        return
    window = run.settled
    inside = run.ran.filter(pl.col("end_ns") > window.start_ns).sort("pid", "start_ns")
    inside = inside.with_columns(
        node=pl.col("cpu").replace_strict(
            {cpu: node.id for node in run.machine.nodes for cpu in node.cpus}, return_dtype=pl.Int64
        )
    )
    moved = inside.select((pl.col("node") != pl.col("node").shift(1)).over("pid").sum()).item()
    rate = (moved or 0) / max(1, load.tasks) / (window.length_ns / 1e9)
    yield Finding(
        PING_PONG, run.number, round(rate, 3), limits.moves,
        f"{load.tasks} hogs on {len(load.parts[0].cpus)} CPUs changed nodes {moved or 0} times in"
        f" {window.length_ns / MS:.0f} ms, {rate:.1f} times a second each",
    )  # fmt: skip


def affinity(run: LoadRecording, limits: Tolerances) -> Iterator[Finding]:
    """No task runs on a CPU that its mask, or its cpuset, does not have."""
    for place, part in enumerate(run.load.parts):
        worst, text = 0, f"every {part.kind} kept to its CPUs"
        for window, at_ms in run.phases():
            masks = run.load.masks(place, at_ms)
            away = {h.cpu for h in run.load.hotplug if h.off_ms <= at_ms < h.on_ms}
            if not masks - away:
                continue
            ran = run.time_on(place, window).filter(~pl.col("cpu").is_in(sorted(masks)))
            if ran.is_empty():
                continue
            pid, cpu, ns = ran.sort("ns", descending=True).row(0)
            if ns > worst:
                task = run.tasks[pid]
                worst = ns
                text = (
                    f"{task.kind} {task.number}, which may run on CPUs {_list(sorted(masks))}, ran"
                    f" on CPU {cpu} for {ns / MS:.2f} ms"
                )
        yield Finding(AFFINITY, run.number, round(worst / MS, 3), limits.outside_ms, text)


def _list(cpus: list[int]) -> str:
    return ",".join(map(str, cpus))
