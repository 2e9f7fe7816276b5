"""Properties of cgroups, and the mean difference between the fullest and the emptiest CPU."""

from dataclasses import replace

import pytest

from numalab.hunt.properties.balance import spread
from numalab.hunt.properties.groups import least_group_share, quota, shares, turns
from numalab.hunt.recording import MS
from unit.hunt.recordings import Row, recording

QUOTA = "time ms=1000;group name=a quota=50;hog n=2 cpus=0-3 group=a"


@pytest.mark.parametrize(("ran", "value"), [(125.0, 1.0), (250.0, 2.0), (50.0, 2.5)])
def test_a_quota_is_kept_and_used(ran: float, value: float) -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 500, 500 + ran), (2, "hog0.1", 1, 500, 500 + ran)]
    (finding,) = quota(recording(QUOTA, rows))
    assert finding.value == pytest.approx(value)


def test_a_quota_is_of_a_period_and_may_be_exceeded_by_what_was_saved() -> None:
    load = QUOTA.replace("quota=50", "quota=10 period=20 burst=10")
    rows: list[Row] = [(1, "hog0.0", 0, 500, 695), (2, "hog0.1", 1, 500, 585)]
    (finding,) = quota(recording(load, rows))
    assert finding.value == pytest.approx(280 / 260, abs=1e-4)
    assert "may use 260 ms of CPU time in 500 ms, used 280 ms" in finding.text
    (finding,) = quota(recording(load, [(1, "hog0.0", 0, 500, 700), (2, "hog0.1", 1, 500, 550)]))
    assert finding.value == pytest.approx(1.0), "hogs have no time to save any"


def test_a_quota_that_others_compete_for_need_not_be_used() -> None:
    load = QUOTA + ";hog n=4 cpus=0-3"
    (finding,) = quota(recording(load, [(1, "hog0.0", 0, 500, 550)]))
    assert finding.value == pytest.approx(0.2)


@pytest.mark.parametrize(
    "load",
    [
        "group name=a quota=80;hog n=1 cpus=3 group=a;hog n=3 cpus=3",
        "group name=a quota=80;hog n=1 cpus=2-3 group=a;hog n=2 start=3 cpus=0-1",
        "group name=a quota=80;group name=b parent=a quota=10;hog n=2 cpus=0-3 group=b",
        "group name=a quota=200;hog n=3 cpus=0 group=a;hog n=1 cpus=0-1 group=a",
    ],
)
def test_a_quota_need_not_be_used_by_tasks_that_something_else_stops(load: str) -> None:
    rows: list[Row] = [(1, "hog0.0", 3, 500, 550 if "parent" in load else 700)]
    findings = quota(recording(f"time ms=1000;{load}", rows))
    assert max(finding.value for finding in findings) <= 3.0
    assert findings[0].value <= (2.5 if "n=3 cpus=0 " in load else 1.0)


def test_a_quota_is_of_fair_tasks_only() -> None:
    load = QUOTA.replace(" cpus", " policy=rr priority=5 cpus")
    assert not quota(recording(load, [(1, "hog0.0", 0, 500, 1000)]))


def test_a_quota_that_changes_is_judged_by_its_last_value() -> None:
    load = QUOTA + ";change at=300 group=a quota=100"
    rows: list[Row] = [(1, "hog0.0", 0, 600, 800), (2, "hog0.1", 1, 600, 800)]
    (finding,) = quota(recording(load, rows))
    assert finding.value == pytest.approx(1.0, rel=0.05)
    late = load.replace("change at=300", "change at=900")
    assert not quota(recording(late, rows)), "too little of the load remains"


def test_hogs_of_a_quota_all_get_their_turn() -> None:
    load = "time ms=1000;group name=a quota=10 period=50;hog n=2 cpus=0-1 group=a"
    rows: list[Row] = [(1, "hog0.0", 0, 500, 600), (2, "hog0.1", 1, 600, 650)]
    (finding,) = turns(recording(load, [*rows, (2, "hog0.1", 1, 850, 900)]))
    assert (finding.value, finding.weak) == (0.8, False)
    (finding,) = turns(recording(load, [rows[0], (2, "hog0.1", 1, 100, 500)]))
    assert finding.value == 1.0
    assert finding.violated and "a hog of group a did not run for 100 %" in finding.text
    (finding,) = turns(recording(load + ";hog n=1 cpus=0", rows))
    assert finding.weak, "others compete"


@pytest.mark.parametrize(
    "load",
    [
        "group name=a quota=1 period=50;hog n=2 cpus=0-1 group=a",  # not two turns for each
        "group name=a quota=10 period=50;hog n=1 cpus=0 nice=5 group=a;hog n=1 cpus=1 group=a",
        "group name=a quota=10 period=50;sleeper n=2 cpus=0-1 group=a",
        "group name=a quota=10 period=50;hog n=2 cpus=0-1 group=a;change at=200 group=a quota=20",
        "group name=a quota=90;group name=b parent=a quota=50;hog n=2 cpus=0-1 group=b",
    ],
)
def test_turns_are_not_judged_where_a_quota_may_suffice_for_others_only(load: str) -> None:
    assert not turns(recording(f"time ms=1000;{load}", [(1, "hog0.0", 0, 500, 1000)]))


def test_weights_decide_between_groups_and_nested_groups_count_as_their_parent() -> None:
    load = (
        "time ms=1000;group name=a weight=300;group name=b parent=a;group name=c weight=100;"
        "hog n=1 cpus=0 group=b;hog n=1 cpus=0 group=c"
    )
    even: list[Row] = [(1, "hog0.0", 0, 500, 875), (2, "hog1.0", 0, 875, 1000)]
    (finding,) = shares(recording(load, even))
    assert finding.value == pytest.approx(1.0)
    wrong: list[Row] = [(1, "hog0.0", 0, 500, 750), (2, "hog1.0", 0, 750, 1000)]
    (finding,) = shares(recording(load, wrong))
    assert finding.value == pytest.approx(1.5)
    assert "group a got 50 % of the CPU time of 500 ms, where 75 % are due" in finding.text


def test_a_weight_that_changes_decides_by_its_last_value() -> None:
    load = (
        "time ms=1000;group name=a weight=300;group name=b;"
        "hog n=1 cpus=0 group=a;hog n=1 cpus=0 group=b;change at=200 group=a weight=100"
    )
    rows: list[Row] = [(1, "hog0.0", 0, 500, 875), (2, "hog1.0", 0, 875, 1000)]
    (finding,) = shares(recording(load, rows))
    assert finding.value == pytest.approx(2.0), "a queued group keeps its old weight"


def test_the_least_share_of_a_group_is_of_the_longest_time_without_changes() -> None:
    load = (
        "time ms=1000;group name=a;group name=b weight=300;hog n=1 cpus=0-1 group=a;"
        "hog n=2 cpus=0 group=b;hotplug cpu=1 off=200 on=990"
    )
    rows: list[Row] = [(1, "hog0.0", 0, 0, 700), (2, "hog1.0", 0, 700, 1000)]
    run = recording(load, rows)
    run = replace(run, done=(200 * MS, 500 * MS, 990 * MS))
    got = least_group_share(run)  # of 350 to 990 ms
    assert got == pytest.approx(1000 * (290 / 640) / 0.75, rel=0.01)
    assert least_group_share(recording(QUOTA, [(1, "hog0.0", 0, 0, 500)])) is None


def test_five_hogs_on_one_cpu_and_one_on_the_other_are_spread_badly() -> None:
    rows: list[Row] = [(n, f"-hog0.{n}", 0, 0, 1000) for n in range(5)]
    rows += [(5, "hog0.5", 1, 0, 1000)]
    (finding,) = spread(recording("time ms=1000;hog n=6 cpus=0-1", rows))
    assert finding.value == pytest.approx(4.0)
    moved: list[Row] = [*rows[:4], (4, "-hog0.4", 0, 0, 750), (4, "hog0.4", 1, 750, 1000), rows[5]]
    (finding,) = spread(recording("time ms=1000;hog n=6 cpus=0-1", moved))
    assert finding.value == pytest.approx(3.0)
