"""Properties of moves: in steady state tasks stay where they are."""

from collections.abc import Iterator

import polars as pl

from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import GRACE_MS, MS, LoadRecording


@register_property("ping-pong", unit="a second", most=6.0, suspect=1.0)
def ping_pong(run: LoadRecording) -> Iterator[Observation]:
    """If every hog can have its own CPU, hogs rarely change nodes.

    Weak in every other load: tasks that outnumber CPUs, or wake up elsewhere, change nodes.
    """
    if (changes := _changes(run, nodes=True)) is not None:
        moved, rate = changes
        parts = run.load.parts
        alike = len({part.cpus for part in parts}) == 1 and all(p.kind == "hog" for p in parts)
        yield Observation(
            rate,
            f"{_tasks(run)} changed nodes {moved} times in"
            f" {run.settled.length_ns / MS:.0f} ms, {rate:.1f} times a second each",
            weak=not alike or run.load.tasks > len(parts[0].cpus),
        )  # fmt: skip


@register_property("wandering", unit="a second", most=1000.0, suspect=2.0)
def wandering(run: LoadRecording) -> Iterator[Observation]:
    """Tasks rarely change CPUs."""
    if (changes := _changes(run, nodes=False)) is not None:
        moved, rate = changes
        yield Observation(
            rate,
            f"{_tasks(run)} changed CPUs {moved} times in"
            f" {run.settled.length_ns / MS:.0f} ms, {rate:.1f} times a second each",
            weak=True,
        )  # fmt: skip


def _tasks(run: LoadRecording) -> str:
    return "1 task" if run.load.tasks == 1 else f"{run.load.tasks} tasks"


def _changes(run: LoadRecording, *, nodes: bool) -> tuple[int, float] | None:
    """Count changes of node, or of CPU, in the settled time: in total, a second and task."""
    load = run.load
    window = run.settled
    if window.length_ns < 2 * GRACE_MS * MS:
        return None
    inside = run.load_spans.filter(pl.col("end_ns") > window.start_ns).sort("pid", "start_ns")
    where = pl.col("cpu").replace_strict(run.places(nodes=nodes), return_dtype=pl.Int64)
    changed = (where != where.shift(1)).over("pid").sum()
    moved = int(inside.select(changed).item() or 0)
    return moved, moved / max(1, load.tasks) / (window.length_ns / 1e9)
