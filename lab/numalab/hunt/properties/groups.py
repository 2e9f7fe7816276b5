"""Properties of cgroups: quotas are kept and used, and weights decide between groups."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.loads.load import Cgroup, Load
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import covered, longest, minus
from numalab.recording.window import Window

_LEAST_MS = 400  # four periods
_TURN_MS = 5  # sysctl_sched_cfs_bandwidth_slice: what a CPU takes of a quota at once


@register_property("quota", unit="times", most=2.0, suspect=1.15, any_load=True)
def quota(run: LoadRecording) -> Iterator[Observation]:
    """Tasks of a group with a quota run for no longer than it allows, and use it if they can.

    The value is the time used over the time allowed, or, for a group of hogs without competitors on
    its CPUs, its inverse if that is larger (`cpu.max`, Documentation/admin-guide/cgroup-v2.rst).
    The quota is that after the last change, and the time begins some time after it.
    """
    load, window = run.load.at_end, run.settled
    if window.length_ns < _LEAST_MS * MS:
        return
    used = _used(run, window)
    for group in load.groups:
        places = load.places_in(group)
        # A quota is of fair tasks only.
        if not group.quota_ms or not places or any(load.parts[n].is_real_time for n in places):
            continue
        granted = window.length_ns * group.quota_ms / group.period_ms
        allowed = granted + group.burst_ms * MS  # saved before
        ran = sum(used.get(place, 0) for place in places)
        value = ran / allowed
        if run.load.is_steady and (wanted := wanted_alone(load, group)):
            due = min(granted, wanted * window.length_ns)
            value = max(value, due / max(ran, due / 100))
        yield Observation(
            value,
            f"group {group.name}, which may use {allowed / MS:.0f} ms of CPU time in"
            f" {window.length_ns / MS:.0f} ms, used {ran / MS:.0f} ms",
        )  # fmt: skip


@register_property("quota-turns", unit="of the time", most=0.95, suspect=0.4, any_load=True)
def turns(run: LoadRecording) -> Iterator[Observation]:
    """Hogs of a group with a quota all get their turn, if it suffices for two turns of each.

    The value is the longest time that one of them did not run, as a share of the settled time
    (`distribute_cfs_runtime()`, kernel/sched/fair.c, 6.12). Weak beside other tasks.
    """
    load, window = run.load, run.settled
    limited = [group for group in load.groups if group.quota_ms]
    if len(limited) != 1 or not load.is_steady or window.length_ns < _LEAST_MS * MS:
        return
    (group,) = limited
    places = load.places_in(group)
    parts = [load.parts[place] for place in places]
    if not parts or {(part.kind, part.policy, part.nice) for part in parts} != {("hog", "fair", 0)}:
        return
    granted = window.length_ns * group.quota_ms / group.period_ms
    if granted < 2 * _TURN_MS * MS * sum(part.count for part in parts):
        return
    whole = (np.array([window.start_ns], np.int64), np.array([window.end_ns], np.int64))
    pids = [pid for place in places for crew in run.crews(place) for pid in crew.pids]
    gaps = [longest(minus(whole, covered(run.spans.filter(pid=pid))))[0] for pid in pids]
    value = max(gaps, default=0) / window.length_ns
    text = f"a hog of group {group.name} did not run for {100 * value:.0f} % of the time"
    yield Observation(value, text, weak=len(places) < len(load.parts))


@register_property("group-shares", unit="times", most=3.0, suspect=1.4)
def shares(run: LoadRecording) -> Iterator[Observation]:
    """Groups of hogs on the same CPUs share them by their weights (`cpu.weight`).

    The value is the share due to a group over the share that it got, the largest of all groups.
    Weak on several CPUs: the kernel divides a group's weight by the load of its tasks on each.
    """
    load, window = run.load.at_end, run.settled
    rivals = [group for group in load.groups if not group.parent and load.places_in(group)]
    plain = all(
        part.kind == "hog" and part.group and not part.is_real_time and part.policy != "idle"
        for part in load.parts
    )
    masks = {run.last_masks(place) for place in range(len(load.parts))}
    if load.rebuilds_domains or not plain or len(masks) > 1 or len(rivals) < 2:
        return
    if window.length_ns < _LEAST_MS * MS:
        return
    if run.load.stops_any or any(group.quota_ms or group.idle for group in load.groups):
        return
    cpus = next(iter(masks))
    if any(sum(load.parts[p].count for p in load.places_in(group)) < len(cpus) for group in rivals):
        return  # it cannot use what is due to it
    used = _used(run, window)
    whole = sum(used.values())
    weights = sum(group.weight for group in rivals)
    worst, text = 1.0, "every group got its part"
    for group in rivals:
        due = group.weight / weights
        got = sum(used.get(place, 0) for place in load.places_in(group)) / max(1, whole)
        value = due / max(got, due / 100)
        if value > worst:
            worst = value
            text = (
                f"group {group.name} got {100 * got:.0f} % of the CPU time of"
                f" {window.length_ns / MS:.0f} ms, where {100 * due:.0f} % are due to its weight"
            )
    yield Observation(worst, text, weak=len(cpus) > 1)


@register_difference(Quantity("least-group-share", "per mille", 50.0, ("less",), apart=1.3))
def least_group_share(run: LoadRecording) -> float | None:
    """What a group of hogs gets of what is due to its weight, in the longest time without changes.

    The least of all groups (`calc_group_shares()`, kernel/sched/fair.c, 6.12).
    """
    load = run.load
    rivals = [group for group in load.groups if not group.parent and load.places_in(group)]
    hogs = all(part.kind == "hog" and not part.is_real_time for part in load.parts)
    if len(rivals) < 2 or not hogs or any(group.idle or group.quota_ms for group in load.groups):
        return None
    windows = [window for window, _ in run.phases() if window.length_ns >= _LEAST_MS * MS]
    if not windows:
        return None
    window = max(windows, key=lambda window: window.length_ns)
    used = _used(run, window)
    got = [sum(used.get(place, 0) for place in load.places_in(group)) for group in rivals]
    due = sum(group.weight for group in rivals) / max(1, sum(got))
    return min(1000.0 * ns * due / group.weight for ns, group in zip(got, rivals, strict=True))


def wanted_alone(load: Load, group: Cgroup) -> int:
    """Return how many CPUs the hogs of a group use at least if nothing but its quota stops them.

    0 if it also has other tasks, if another group has a quota, or if tasks outside the group may
    want one of its CPUs.
    """
    places = load.places_in(group)
    masks = Counter[frozenset[int]]()
    for place in places:
        masks[load.masks(place, load.ms)] += load.parts[place].count
    cpus = frozenset[int]().union(*masks)
    near = [
        part for place, part in enumerate(load.parts) if place in places or part.every_cpu & cpus
    ]
    alike = len(masks) == 1 and all(part.every_cpu == cpus for part in near)
    alone = len(near) == len(places) or (alike and sum(part.tasks for part in near) <= len(cpus))
    limited = [other for other in load.groups if other.quota_ms]
    hogs = all(load.parts[place].kind == "hog" for place in places)
    if not (hogs and alone and limited == [group]):
        return 0
    used = [min(count, len(mask)) for mask, count in masks.items()]
    apart = len(cpus) == sum(map(len, masks))
    return sum(used) if apart else max(used, default=0)


def _used(run: LoadRecording, window: Window) -> dict[int, int]:
    """Return how long the tasks of each part ran in a time, in ns."""
    return {
        place: int(run.time_on(place, window)["ns"].sum()) for place in range(len(run.load.parts))
    }
