"""Groups whose limits change: their text, when quotas are judged, and the kernel's account."""

import random
from dataclasses import replace

import pytest

from numalab.hunt.generate import changes, group_changes, groups
from numalab.hunt.generate.draw import Family
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.loads.driver_output import GroupLeft, LimitAccount, Printed, parse_output
from numalab.hunt.loads.load import Load, LoadChange
from numalab.hunt.loads.load_text import parse_loads, render_load
from numalab.hunt.properties.accounts.limits import left_in_groups, limit_account
from numalab.hunt.properties.groups import quota
from unit.hunt.recordings import Row, recording

CHANGED = (
    "time ms=1000;group name=a quota=20 burst=10;hog n=2 cpus=0-3 group=a"
    ";change at=100 group=a quota=0;change at=200 group=a quota=40 period=50 burst=0 idle=1"
    ";change at=300 group=a idle=0"
)
LIMITED = "time ms=1000;group name=a quota=50;hog n=2 cpus=0-3 group=a"
# They run 10 ms in 100 ms, and each of 4 CPUs keeps 6 ms.
LOOSE = "time ms=1000;group name=a quota=60;sleeper n=2 cpus=0-3 run=1000 sleep=9000 group=a"
ROWS: list[Row] = [(11, "hog0.0", 0, 0, 1000)]
BRIEF: list[Row] = [(11, "sleeper0.0", 0, at, at + 10) for at in range(0, 1000, 100)]
RIGHT = LimitAccount(1_100_000, 500_000, 300_000, 199_999, 11, 11, 1_500_000, 0, 0, 11)


def parsed(text: str) -> Load:
    (load,) = parse_loads(text)
    return load


def drawn(family: Family) -> list[Load]:
    loads = []
    for number in range(40):
        rng = random.Random(number)
        loads.append(family(rng, draw_machine(rng)))
    return [load for load in loads if load is not None]


def test_a_change_removes_a_limit_or_sets_another() -> None:
    load = parsed(CHANGED)
    assert load.changes[0] == LoadChange(100, group="a", quota_ms=0)
    assert parsed(render_load(load)) == load
    limits = [
        (limit.quota_ms, limit.period_ms, limit.burst_ms)
        for limit in load.limits_of(load.groups[0])
    ]
    assert limits == [(20, 100, 10), (0, 100, 10), (40, 50, 0), (40, 50, 0)]
    of_policy = parsed("hog n=1 cpus=0;change at=1 part=0 policy=deadline runtime=50 period=9000")
    assert of_policy.changes[0].period_us == 9000


@pytest.mark.parametrize("word", ["quota=0", "burst=0", "idle=0"])
def test_a_change_of_tasks_has_no_limit(word: str) -> None:
    with pytest.raises(ValueError, match="quota=, burst= and idle= are of a change of a group"):
        parsed(f"hog n=1 cpus=0;change at=1 part=0 {word}")


def test_limits_change_go_with_hotplug_and_are_of_groups_that_tasks_enter() -> None:
    of_limits = [change for load in drawn(group_changes.limits_in_turn) for change in load.changes]
    assert any(change.quota_ms == 0 for change in of_limits)
    assert any(change.period_ms for change in of_limits)
    assert any(change.burst_ms for change in of_limits)
    of_idle = [change for load in drawn(group_changes.idle_in_turn) for change in load.changes]
    assert {change.idle for change in of_idle} == {True, False}
    after = drawn(groups.groups_after_hotplug)
    assert any(load.groups[0].quota_ms and load.hotplug for load in after)
    moving = [load for load in drawn(changes.groups_in_turn) if load.changes[0].into]
    limited = sum(load.groups[1].quota_ms > 0 for load in moving)
    assert len(moving) / 8 < limited < 7 * len(moving) / 8
    elsewhere = [load for load in moving if load.changes[0].cpus]
    assert elsewhere and all(load.parts[1].cpus == load.changes[0].cpus for load in elsewhere)
    for load in [*drawn(group_changes.limits_in_turn), *drawn(group_changes.idle_in_turn)]:
        assert parsed(render_load(load)) == load


def test_a_loose_quota_is_enough() -> None:
    right = replace(RIGHT, throttled=1, late=1)
    for load in drawn(groups.loose_quotas):
        mine = [part for part in load.parts if part.group]
        alone = render_load(replace(load, parts=tuple(mine)))
        run = recording(alone, BRIEF, cpus=(max(mine[0].cpus) + 1, 1))
        (finding,) = limit_account(replace(run, printed=Printed(limits={"a": right})))
        assert finding.value == 1


def quota_of(text: str, *, hogs: int = 1) -> list[float]:
    rows: list[Row] = [(11 + n, f"hog0.{n}", n, 0, 1000) for n in range(hogs)]
    return [finding.value for finding in quota(recording(text, rows))]


def test_a_quota_is_judged_after_the_last_change() -> None:
    """Each of the hogs runs all the time."""
    away = f"{LIMITED};hotplug cpu=1 off=100 on=200"
    assert quota_of(away, hogs=2) == [4.0]
    more = f"{LIMITED};change at=100 group=a quota=100 period=50"
    assert quota_of(more, hogs=2) == [1.0]
    assert quota_of(f"{LIMITED};change at=100 group=a quota=0", hogs=2) == []
    assert quota_of(f"{LIMITED};change at=600 group=a quota=100") == [], "too short"
    assert quota_of(f"{LIMITED};change at=100 part=0 policy=fifo priority=9") == []
    assert quota_of(f"{LIMITED};group name=b;change at=100 part=0 into=b") == []


def wrong_in(text: str, account: LimitAccount, rows: list[Row] | None = None) -> tuple[float, str]:
    run = replace(recording(text, rows or ROWS), printed=Printed(limits={"a": account}))
    (finding,) = limit_account(run)
    return finding.value, finding.text.removeprefix("cpu.stat of group a has ")


def test_a_possible_account_of_a_quota_is_right() -> None:
    nothing = (0.0, "nothing impossible")
    assert wrong_in(LIMITED, RIGHT) == nothing
    assert wrong_in(LIMITED, replace(RIGHT, throttled=1, throttled_us=0)) == nothing
    owed = LIMITED.replace("quota=50", "quota=5")
    assert wrong_in(owed, replace(RIGHT, throttled_us=0)) == nothing
    assert wrong_in(LIMITED, replace(RIGHT, periods=5, throttled=5)) == nothing
    resting = replace(RIGHT, periods=1, throttled=1, throttled_us=0)
    assert wrong_in(LOOSE.replace("quota=60", "quota=9"), resting, BRIEF) == nothing
    saved = replace(RIGHT, bursts=3, burst_us=29_999)
    assert wrong_in(LIMITED.replace("quota=50", "quota=50 burst=10"), saved) == nothing
    assert wrong_in(f"{LIMITED};change at=9 group=a quota=5", saved) == nothing
    assert wrong_in(LOOSE.replace("quota=60", "quota=40"), RIGHT, BRIEF) == nothing
    assert wrong_in(LOOSE, RIGHT, [(11, "sleeper0.0", 0, 300, 340)]) == nothing
    before = replace(RIGHT, late=0)
    assert wrong_in(LOOSE, before, BRIEF) == nothing, "throttled before the begin only"
    never = replace(RIGHT, throttled=0)
    inner = "group name=b parent=a quota=10"
    below = LIMITED.replace(";hog", f";{inner};hog").replace("group=a", "group=b")
    assert wrong_in(below, never) == nothing
    few = LIMITED.replace("quota=50", "quota=100 cpus=1")
    assert wrong_in(few, never) == nothing
    rivals = LIMITED.replace("n=2 cpus=0-3", "n=1 cpus=1") + ";hog n=2 cpus=1 nice=-10"
    assert wrong_in(rivals, never) == nothing
    old = replace(RIGHT, user_us=-1, system_us=-1, bursts=-1, burst_us=-1)
    assert wrong_in(LIMITED, old) == nothing
    assert wrong_in("time ms=1000;group name=a;hog n=1 cpus=0 group=a", replace(
        RIGHT, periods=0, throttled=0, throttled_us=0)) == nothing  # fmt: skip


@pytest.mark.parametrize(
    ("text", "account", "words"),
    [
        (LIMITED, replace(RIGHT, throttled=13), "13 periods throttled of 11"),
        (LIMITED, replace(RIGHT, periods=14), "14 periods of 100000 us in 1100000 us"),
        (LIMITED, replace(RIGHT, throttled_us=4_700_000), "4700000 us throttled in 1100000 us"),
        (LIMITED, replace(RIGHT, system_us=9), "500000 us used, and 300009 us by user and system"),
        (LIMITED, replace(RIGHT, bursts=2, burst_us=9), "9 us of 2 bursts of 0 us"),
        (
            LIMITED.replace("quota=50", "quota=50 burst=10"),
            replace(RIGHT, bursts=2, burst_us=20_001),
            "20001 us of 2 bursts of 10000 us",
        ),
        (LIMITED, replace(RIGHT, periods=-10, throttled=-10, late=0), "periods -10; throttled -10"),
        (LIMITED, replace(RIGHT, late=-1), "late -1"),
        (
            LIMITED,
            replace(RIGHT, throttled=0),
            "no throttled period of tasks that want twice the quota",
        ),
        (
            LIMITED,
            replace(RIGHT, throttled_us=0),
            "0 us throttled in 11 throttled periods",
        ),
        (LIMITED, replace(RIGHT, periods=3, throttled=3), "3 periods where 10 passed"),
        (
            LIMITED.replace("quota=50", "quota=50 burst=10"),
            replace(RIGHT, bursts=8),
            "0 us of 8 bursts",
        ),
        (
            LIMITED.replace(" quota=50", ""),
            RIGHT,
            "periods, throttled time or bursts without a quota",
        ),
    ],
)
def test_a_figure_that_is_impossible_is_named(text: str, account: LimitAccount, words: str) -> None:
    assert wrong_in(text, account) == (1 + words.count("; "), words)


def test_what_queues_of_groups_hold_without_tasks_is_told() -> None:
    left = {"a": GroupLeft(0, "nothing"), "b": GroupLeft(3, "idle_h_nr_running")}
    run = replace(recording(LIMITED, ROWS), printed=Printed(left=left))
    assert [(finding.value, finding.text) for finding in left_in_groups(run)] == [
        (0, "the queues of group a, without tasks, hold 0 (nothing)"),
        (3, "the queues of group b, without tasks, hold 3 (idle_h_nr_running)"),
    ]


def test_tasks_that_run_less_than_the_quota_are_not_throttled() -> None:
    text = "11 throttled periods of tasks that ran less than the quota"
    assert wrong_in(LOOSE, RIGHT, BRIEF) == (1, text)


def test_the_drivers_lines_about_limits_are_read() -> None:
    line = (
        "load 3 group a since_us 1 used_us 2 user_us 3 system_us 4 periods 5 throttled 6"
        " throttled_us 7 bursts -1 burst_us -1 late 3\n"
    )
    text = line + "load 3 group b left 2 h_nr_queued\n" + line.replace("periods 5", "periods 5.5")
    (printed,) = parse_output(text).values()
    assert printed.limits == {"a": LimitAccount(1, 2, 3, 4, 5, 6, 7, -1, -1, 3)}
    assert printed.left == {"b": GroupLeft(2, "h_nr_queued")}
