"""A property of SMT: tasks do not share a core while another one is idle."""

from collections.abc import Iterator

import numpy as np
import polars as pl

from numalab.analysis.tables.intervals import Spans, covered, joined, longest, met
from numalab.hunt.finding import Finding
from numalab.hunt.properties.tolerances import Tolerances
from numalab.hunt.recording import LoadRecording

CORES = "idle-cores"


def cores(run: LoadRecording, limits: Tolerances) -> Iterator[Finding]:
    """Hogs do not run two on a core for long while a core of the same node is idle.

    The value is the longest such time, as a share of the settled time. Across nodes the kernel may
    leave it so (imb_numa_nr).
    """
    packaging = run.machine.packaging
    parts = run.load.parts
    if packaging.threads < 2 or len(parts) != 1 or parts[0].kind != "hog" or parts[0].later:
        return
    if run.load.hotplug or run.load.cpuset:
        return
    window, part = run.settled, parts[0]
    low, high = window.start_ns, window.end_ns
    worst = 0
    for node in run.machine.nodes:
        members: dict[int, list[int]] = {}
        for cpu in node.cpus:
            members.setdefault(packaging.core_of(cpu), []).append(cpu)
        whole = [cpus for cpus in members.values() if set(cpus) <= set(part.cpus)]
        if len(whole) < 2:
            continue
        empty = joined([_all([run.idle[cpu] for cpu in cpus], low, high) for cpus in whole])
        for cpus in whole:
            busy = [_busy(run, cpu, low, high) for cpu in cpus]
            both = joined(met(a, b) for i, a in enumerate(busy) for b in busy[:i])
            worst = max(worst, longest(met(both, empty))[0])
    share = worst / max(1, window.length_ns)
    yield limits.shared_core.found(
        CORES, run.number, share,
        f"two hogs shared a core for {100 * share:.0f} % of the settled time while a core of their"
        " node was idle",
    )  # fmt: skip


def _busy(run: LoadRecording, cpu: int, low: int, high: int) -> Spans:
    rows = run.ran.filter(pl.col("cpu") == cpu)
    spans = covered(rows)
    return met(spans, (np.array([low], np.int64), np.array([high], np.int64)))


def _all(sets: list[Spans], low: int, high: int) -> Spans:
    found = (np.array([low], np.int64), np.array([high], np.int64))
    for each in sets:
        found = met(found, each)
    return found
