"""The kernel's accounts of each cgroup, beside what the trace shows and what was written."""

from collections.abc import Iterator

import polars as pl

from numalab.hunt.properties.accounts.tasks import LEAST_MS, OF_SWITCH_MS, compared
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import between, total

_LEAST_LOAD = 100  # a tenth of a task of nice level 0
_LOST = 10.0  # % of a load; it was 0 in all loads of unmodified kernels
_DELAY_US = 10_000


@register_property("group-account", unit="%", most=40.0, suspect=20.0, any_load=True)
def group_account(run: LoadRecording) -> Iterator[Observation]:
    """A cgroup's reported CPU time matches the trace.

    The value is the difference in % of what its tasks ran in the trace, to which 200 ms and half a
    ms for each turn are added (`usage_usec` of `cpu.stat`, admin-guide/cgroup-v2.rst). Groups that
    tasks enter or leave meanwhile have none, nor has any if real-time tasks delayed the driver
    between its first reading and the begin.
    """
    load = run.load
    places = {change.part for change in load.changes if change.into}
    moved = {load.parts[place].group for place in places if place is not None}
    moved |= {change.into for change in load.changes if change.into}
    for group in load.groups:
        inside = load.places_in(group)
        kernels = run.printed.groups.get(group.name)
        if kernels is None or kernels.delay_us > _DELAY_US:
            continue
        if inside and not load.names_in(group) & moved:
            ran_ms = sum(_ran_ns(run, place) for place in inside) / MS
            turns = sum(_turns(run, place) for place in inside)
            least = LEAST_MS + OF_SWITCH_MS * turns
            value, text = compared(kernels.used_us / 1000, ran_ms, least, "ms on CPUs")
            yield Observation(value, f"the tasks of group {group.name} have {text}")


@register_property("group-settings", unit="files", most=0.0, any_load=True)
def group_settings(run: LoadRecording) -> Iterator[Observation]:
    """A cgroup's files read as written.

    `cpu.max`, `cpu.max.burst`, `cpu.idle`, `cpuset.cpus`, and `cpu.weight` of a group that is not
    idle.
    """
    for group in run.load.groups:
        if (kernels := run.printed.groups.get(group.name)) is not None:
            text = f"{kernels.wrong} of the files of group {group.name} read other than was written"
            yield Observation(kernels.wrong, text)


@register_property("group-load", unit="%", most=0.0, any_load=True)
def group_load(run: LoadRecording) -> Iterator[Observation]:
    """A cgroup's load excludes tasks that ended or left.

    The value is the part of the load, to which 100 are added, of queues that the kernel no longer
    updates, or 0 up to a tenth (`tg_load_avg` without `tg_load_avg_contrib` of the queues of
    /sys/kernel/debug/sched/debug; cfs_rq_is_decayed(), kernel/sched/fair.c, 6.12), or all of it if
    it is negative. Groups of which no queue is listed have none, and those below a quota: the
    queues of throttled ones are not updated.
    """
    for group in run.load.groups:
        kernels = run.printed.groups.get(group.name)
        is_listed = kernels is not None and kernels.listed != -1
        if kernels is not None and is_listed and not run.load.is_limited(group.name):
            left = kernels.load - kernels.listed
            lost = abs(kernels.load) if kernels.load < 0 else max(0, left)
            part = 100.0 * lost / (abs(kernels.load) + _LEAST_LOAD)
            yield Observation(
                part if part > _LOST else 0.0,
                f"of the load of group {group.name}, {kernels.load}, {left} is of queues that the"
                " kernel no longer updates",
            )


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
