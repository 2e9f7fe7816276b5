"""What the kernel keeps for the quota of a cgroup, and for its queues when its tasks are gone."""

from collections.abc import Iterator

from numalab.hunt.loads.driver_output import LimitAccount
from numalab.hunt.loads.load import Cgroup
from numalab.hunt.properties.groups import wanted_alone
from numalab.hunt.property import Observation, register_property
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.window import Window

_PERIODS = 4  # in which hogs that want twice the quota are throttled
_SLICE_MS = 6  # of a quota, which a CPU may keep (sched_cfs_bandwidth_slice_us, and a rest of 1)
_ROUNDING_US = 3  # of three figures
_FEWEST_BURSTS = 8  # each may be a few ns, and their sum is rounded down to us
_OWED_MS = 20  # at most, of a CPU: it takes more than is left of a quota until its next tick
_FEWEST_PERIODS = 1 / 3  # of those that passed: the kernel doubles a period that is too short


@register_property("left-in-groups", unit="counted", most=0.0, any_load=True)
def left_in_groups(run: LoadRecording) -> Iterator[Observation]:
    """A cgroup's queues are empty when its tasks have ended.

    The value is the sum of `nr_running`, `h_nr_*`, `idle_*`, `throttled` and `throttle_count` of
    its queues (/sys/kernel/debug/sched/debug; print_cfs_rq(), kernel/sched/debug.c, 5.10 to 7.3),
    after up to five seconds. Queues that the kernel no longer updates are not read.
    """
    for name, left in run.printed.left.items():
        text = f"the queues of group {name}, without tasks, hold {left.count} ({left.member})"
        yield Observation(left.count, text)


@register_property("limit-account", unit="figures", most=0.0, any_load=True)
def limit_account(run: LoadRecording) -> Iterator[Observation]:
    """A cgroup's `cpu.stat` is consistent with its quota.

    The value is how many figures of `cpu.stat` (admin-guide/cgroup-v2.rst) contradict the quota,
    the time or each other.
    """
    for group in run.load.groups:
        account = run.printed.limits.get(group.name)
        if account is not None:
            wrong = [*_of_any_group(run, account), *_of_limits(run, group, account)]
            text = "; ".join(wrong) or "nothing impossible"
            yield Observation(len(wrong), f"cpu.stat of group {group.name} has {text}")


def _of_any_group(run: LoadRecording, account: LimitAccount) -> Iterator[str]:
    for name, figure in vars(account).items():
        if figure < (0 if name == "late" else -1):  # -1 is for none
            yield f"{name} {figure}"
    if account.throttled > account.periods + 1:  # they are read one after the other
        yield f"{account.throttled} periods throttled of {account.periods}"
    if account.throttled_us > 1.05 * account.since_us * run.topology.cpu_count:
        yield f"{account.throttled_us} us throttled in {account.since_us} us"
    used_us, parts_us = account.used_us, account.user_us + account.system_us
    if account.user_us >= 0 and abs(used_us - parts_us) > _ROUNDING_US:
        yield f"{used_us} us used, and {parts_us} us by user and system"


def _of_limits(run: LoadRecording, group: Cgroup, account: LimitAccount) -> Iterator[str]:
    limits = run.load.limits_of(group)
    if not any(limit.quota_ms for limit in limits):
        if max(account.periods, account.throttled_us, account.bursts) > 0:
            yield "periods, throttled time or bursts without a quota"
        return
    shortest_us = 1000 * min(limit.period_ms for limit in limits)
    if account.periods > account.since_us / shortest_us + 2:
        yield f"{account.periods} periods of {shortest_us} us in {account.since_us} us"
    burst_us = 1000 * max(limit.burst_ms for limit in limits)
    # A lower quota looks like a burst (__refill_cfs_bandwidth_runtime()).
    same = len({(limit.quota_ms, limit.period_ms) for limit in limits}) == 1
    if same and account.burst_us > max(0, account.bursts) * burst_us:
        yield f"{account.burst_us} us of {account.bursts} bursts of {burst_us} us"
    if account.bursts >= _FEWEST_BURSTS and account.burst_us == 0:
        yield f"0 us of {account.bursts} bursts"
    if _must_be_throttled(run, group):
        yield from _of_hogs(run, group, account)
    if account.late > 0 and _is_enough(run, group):
        yield f"{account.late} throttled periods of tasks that ran less than the quota"


def _of_hogs(run: LoadRecording, group: Cgroup, account: LimitAccount) -> Iterator[str]:
    """Name what is too low for tasks that want twice the quota, in all periods."""
    if account.throttled == 0:
        yield "no throttled period of tasks that want twice the quota"
    # Throttled time counts when it ends: when the later periods have paid what the CPUs owe.
    paid_ms = account.throttled * group.quota_ms
    if account.throttled_us == 0 and paid_ms > _OWED_MS * run.topology.cpu_count:
        yield f"0 us throttled in {account.throttled} throttled periods"
    passed = run.window.length_ns / MS / group.period_ms
    if 0 < account.periods < _FEWEST_PERIODS * passed:
        yield f"{account.periods} periods where {passed:.0f} passed"


def _must_be_throttled(run: LoadRecording, group: Cgroup) -> bool:
    """Whether hogs without competitors want twice the quota."""
    load, places = run.load, run.load.places_in(group)
    fair = not any(load.parts[place].is_real_time for place in places)
    long = run.window.length_ns / MS >= _PERIODS * group.period_ms
    wanted = wanted_alone(load, group) * group.period_ms
    return load.is_steady and fair and long and wanted >= 2 * group.quota_ms


def _is_enough(run: LoadRecording, group: Cgroup) -> bool:
    """Whether tasks ran less in any two periods than one quota without a slice of each CPU.

    By the trace: in mode icount, work takes longer where more CPUs are busy.
    """
    load, places = run.load, run.load.places_in(group)
    if not load.is_steady or any(load.parts[place].is_real_time for place in places):
        return False
    period_ns, end_ns = group.period_ms * MS, run.window.end_ns
    # Another quota below would throttle the same tasks.
    if any(load.group_of[name].quota_ms for name in load.names_in(group) - {group.name}):
        return False
    most_ns = max(
        sum(run.time_on(place, Window(at, min(at + 2 * period_ns, end_ns)))["ns"].sum()
            for place in places)
        for at in range(run.window.start_ns, end_ns, period_ns)
    )  # fmt: skip
    return most_ns / MS + _SLICE_MS * run.topology.cpu_count < group.quota_ms
