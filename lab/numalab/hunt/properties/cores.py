"""Properties of SMT: tasks do not share a core while another core is idle."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import LoadRecording
from numalab.recording.intervals import Spans, covered, joined, longest, met, within


@register_property("idle-cores", unit="of the time", most=0.9, suspect=0.2)
def cores(run: LoadRecording) -> Iterator[Observation]:
    """Two hogs do not share a core for long while a core of the same node is idle.

    The value is the longest such time, as a share of the settled time. Between nodes the kernel
    allows such an imbalance (imb_numa_nr).
    """
    packaging = run.topology.packaging
    parts = run.load.parts
    if packaging.threads < 2 or len(parts) != 1 or parts[0].kind != "hog":
        return
    window, mask = run.settled, run.last_masks(0)
    if not run.load.has_plain_tasks:
        return
    low, high = window.start_ns, window.end_ns
    worst = 0
    for node in run.topology.nodes:
        members: dict[int, list[int]] = {}
        for cpu in node.cpus:
            members.setdefault(packaging.core_of(cpu), []).append(cpu)
        whole = [cpus for cpus in members.values() if set(cpus) <= mask]
        if len(whole) < 2:
            continue
        empty = joined([_all([run.idle[cpu] for cpu in cpus], low, high) for cpus in whole])
        for cpus in whole:
            busy = [_busy(run, cpu, low, high) for cpu in cpus]
            both = joined(met(a, b) for i, a in enumerate(busy) for b in busy[:i])
            worst = max(worst, longest(met(both, empty))[0])
    share = worst / max(1, window.length_ns)
    yield Observation(
        share,
        f"two hogs shared a core for {100 * share:.0f} % of the settled time while a core of their"
        " node was idle",
    )  # fmt: skip


@register_property("numa-cores", unit="a task", most=20.0, suspect=0.3)
def choice(run: LoadRecording) -> Iterator[Observation]:
    """NUMA balancing moves no task to a busy core while another core of that node is idle.

    The value is the number of such moves for each memory user. Always weak: the kernel checks
    the cores in turn, and their load may change meanwhile.
    """
    packaging, users = run.topology.packaging, run.memory_users
    if packaging.threads < 2 or not users or not run.load.is_steady:
        return
    known_cpu = pl.col("dst_cpu").is_in(list(run.idle))
    moved = run.events("sched_move_numa").filter(known_cpu)
    wrong = 0
    for time_ns, cpu in moved.select("time_ns", "dst_cpu").iter_rows():
        at = np.array([time_ns], np.int64)
        busy: dict[int, bool] = {}  # of each core of the node, but for the CPU that was chosen
        for other in run.topology.nodes[run.topology.node_of_cpu(cpu)].cpus:
            if other != cpu:
                core = packaging.core_of(other)
                busy[core] = busy.get(core, False) or not within(run.idle[other], at)[0]
        wrong += busy.pop(packaging.core_of(cpu), False) and not all(busy.values())
    yield Observation(
        wrong / users,
        f"NUMA balancing moved tasks {wrong} times to a busy core while another one of that node"
        " was idle",
        weak=True,
    )  # fmt: skip


def _busy(run: LoadRecording, cpu: int, low: int, high: int) -> Spans:
    rows = run.load_spans.filter(pl.col("cpu") == cpu)
    spans = covered(rows)
    return met(spans, (np.array([low], np.int64), np.array([high], np.int64)))


def _all(sets: list[Spans], low: int, high: int) -> Spans:
    common = (np.array([low], np.int64), np.array([high], np.int64))
    for spans in sets:
        common = met(common, spans)
    return common
