"""Properties of policies: priorities, deadlines, starvation, and a lock that lends priority."""

from dataclasses import replace

import pytest

from numalab.hunt.loads.driver_output import LockTurns, Printed
from numalab.hunt.properties.balance import affinity
from numalab.hunt.properties.policies import (
    deadline,
    lock_wait,
    priority,
    real_time_waits,
    starvation,
    tardiness,
)
from numalab.hunt.property import judge_load
from unit.hunt.recordings import Row, recording

RANKED = "time ms=1000;sleeper n=1 cpus=0-1 policy=fifo priority=50;hog n=2 cpus=0-3"


def waited_beside(cpu: int) -> list[Row]:
    """A real-time task that waits on CPU 0 from 100 to 150 ms while a fair hog has a CPU."""
    rows: list[Row] = [(1, "hog1.0", cpu, 0, 1000), (2, "-sleeper0.0", 0, 100, 150)]
    return [*rows, (2, "sleeper0.0", 0, 150, 200)]


def test_a_real_time_task_that_waits_for_a_fair_one_is_told_with_its_moment() -> None:
    (finding,) = priority(recording(RANKED, waited_beside(0)))
    assert finding.value == 50.0
    assert "sleeper of priority 50 waited 50.0 ms, from 100.0 ms after the begin" in finding.text


def test_an_idle_cpu_counts_as_one_of_a_lower_priority() -> None:
    rows: list[Row] = [(2, "-sleeper0.0", 0, 100, 130), (2, "sleeper0.0", 0, 130, 200)]
    rows += [(1, "hog1.0", 0, 0, 100)]
    (finding,) = priority(recording(RANKED, rows))
    assert finding.value == 30.0


def test_the_waits_of_real_time_tasks_are_a_share_of_the_time_in_which_they_are_ready() -> None:
    assert real_time_waits(recording(RANKED, waited_beside(0))) == pytest.approx(50.0)
    busy: list[Row] = [(3, "sleeper2.0", 0, 0, 150), (4, "sleeper2.1", 1, 0, 150)]
    ranked = RANKED + ";sleeper n=2 cpus=0-1 policy=rr priority=60"
    assert real_time_waits(recording(ranked, [*waited_beside(3), *busy])) == 0.0
    fair = "time ms=1000;sleeper n=1 cpus=0-1;hog n=2 cpus=0-3"
    assert real_time_waits(recording(fair, waited_beside(0))) is None


def test_a_deadline_task_that_waits_for_one_of_a_longer_period_counts() -> None:
    served = "time ms=1000;sleeper n=1 cpus=0-3 policy=deadline runtime=8000 period=20000 run=500"
    load = served + " sleep=20000;hog n=1 cpus=0-3 policy=deadline runtime=9000 period=90000"
    rows: list[Row] = [(1, "hog1.0", 0, 0, 1000), (2, "-sleeper0.0", 0, 100, 150)]
    rows += [(3, "-x", 1, 0, 1000), (4, "-x", 2, 0, 1000), (5, "-x", 3, 0, 1000)]
    rows += [(2, "sleeper0.0", 0, 150, 200)]
    assert real_time_waits(recording(load, rows)) == pytest.approx(50.0)
    (finding,) = priority(recording(load, rows))
    assert finding.value == 0, "a deadline is not a priority"
    shorter = load.replace("period=90000", "period=10000")
    assert real_time_waits(recording(shorter, rows)) == 0.0


def test_a_cpu_outside_the_mask_or_a_higher_priority_is_no_reason() -> None:
    ranked = RANKED + ";sleeper n=2 cpus=0-1 policy=rr priority=60"
    rows = waited_beside(3)
    rows += [(3, "sleeper2.0", 0, 0, 150), (4, "sleeper2.1", 1, 0, 150)]
    first, second = priority(recording(ranked, rows))
    assert first.value == second.value == 0.0
    assert first.text == "no sleeper of priority 50 waited for a lower one"


def test_a_priority_counts_from_when_it_was_set() -> None:
    later = "time ms=1000;sleeper n=1 cpus=0-1;hog n=2 cpus=0-3"
    changed = f"{later};change at=120 part=0 policy=rr priority=7"
    rows: list[Row] = [(1, "hog1.0", 0, 0, 1000), (2, "-sleeper0.0", 0, 100, 350)]
    (finding,) = priority(recording(changed, [*rows, (2, "sleeper0.0", 0, 350, 400)]))
    assert finding.value == pytest.approx(80.0), "without the grace of 150 ms"
    assert "sleeper of priority 7 waited" in finding.text
    assert not priority(recording(later, rows))


SERVED = "time ms=1000;sleeper n=1 cpus=0-3 policy=deadline runtime=8000 period=20000 run=1000"


def test_a_deadline_task_that_is_never_throttled_goes_before_fair_ones() -> None:
    rows: list[Row] = [(2, "hog1.0", 0, 0, 1000), (1, "-sleeper0.0", 0, 100, 150)]
    rows += [(1, "sleeper0.0", 0, 150, 151)]
    (finding,) = priority(recording(f"{SERVED} sleep=20000;hog n=1 cpus=0-3", rows))
    assert finding.value == 50.0 and finding.text.startswith("a deadline sleeper waited")
    assert not priority(recording(f"{SERVED} sleep=1000;hog n=1 cpus=0-3", rows))


def test_the_slowest_turns_of_a_deadline_task_count() -> None:
    rows: list[Row] = []
    for turn in range(40):
        begin, wait = 25.0 * turn, 9.0 if turn % 10 == 0 else 0.0
        rows += [(1, "-sleeper0.0", 0, begin, begin + wait)] if wait else []
        rows += [(1, "sleeper0.0", 0, begin + wait, begin + wait + 1)]
    (finding,) = tardiness(recording(f"{SERVED} sleep=20000", rows))
    assert finding.value == pytest.approx(0.5)
    assert "took 10.0 ms or longer; their period is 20 ms" in finding.text
    assert not tardiness(recording(f"{SERVED} sleep=20000", rows[:10]))
    rows = [(1, "-sleeper0.0", 0, 0, 900), (1, "sleeper0.0", 0, 900, 901)]
    (finding,) = tardiness(recording(f"{SERVED} sleep=20000", rows))
    assert finding.value == pytest.approx(45.05), "few turns, because they are long"


@pytest.mark.parametrize(("ran", "value"), [(100.0, 1.0), (50.0, 2.0), (200.0, 2.0), (0.0, 100.0)])
def test_a_deadline_task_gets_its_runtime_and_not_more(ran: float, value: float) -> None:
    load = "time ms=1000;hog n=1 cpus=0-3 policy=deadline runtime=2000 period=10000"
    rows: list[Row] = [(1, "-hog0.0", 0, 0, 1000), (1, "hog0.0", 0, 600, 600 + ran)]
    (finding,) = deadline(recording(load, rows))
    assert finding.value == pytest.approx(value)


@pytest.mark.parametrize(("ran", "value"), [(0.0, 0.0), (218.0, 1.0), (436.0, 2.0)])
def test_a_deadline_task_that_sleeps_may_have_less_but_not_more(ran: float, value: float) -> None:
    load = f"{SERVED} sleep=1000"
    rows: list[Row] = [(1, "sleeper0.0", 0, 0, 100), (1, "sleeper0.0", 0, 510, 510 + ran)]
    (finding,) = deadline(recording(load, rows))
    assert finding.value == pytest.approx(value) and "at most 218 ms were due" in finding.text
    assert not deadline(recording(f"{load};change at=10 part=0 policy=fair", rows))


def test_tasks_whose_policy_was_refused_are_fair() -> None:
    load = f"{SERVED} sleep=20000;hog n=1 cpus=0-3 policy=deadline runtime=2000 period=10000"
    rows: list[Row] = [(2, "hog1.0", 0, 0, 1000), (1, "-sleeper0.0", 1, 100, 150)]
    for turn in range(40):
        rows.append((1, "sleeper0.0", 1, 150 + 20 * turn, 151 + 20 * turn))
    names = {"deadline", "priority", "tardiness"}
    for refused, judged in ((0, names), (1, set())):
        printed = Printed(counters={"end": {"refused": refused}})
        findings, failures = judge_load(replace(recording(load, rows), printed=printed), names)
        assert ({finding.prop for finding in findings}, failures) == (judged, {})


def test_the_longest_wait_of_a_fair_task_is_found() -> None:
    load = "time ms=1000;hog n=2 cpus=0;hog n=1 cpus=1 policy=idle"
    rows: list[Row] = [(1, "hog0.0", 0, 0, 400), (2, "-hog0.1", 0, 0, 400)]
    rows += [(2, "hog0.1", 0, 400, 1000), (1, "-hog0.0", 0, 400, 1000)]
    rows += [(3, "-hog1.0", 1, 0, 1000)]
    (finding,) = starvation(recording(load, rows))
    assert (finding.value, finding.text) == (600.0, "a hog waited 600 ms for a CPU")
    ranked = load + ";sleeper n=1 cpus=0 policy=fifo priority=5"
    assert not starvation(recording(ranked, rows)), "which may take all of a CPU"
    weighted = load.replace("hog n=2 cpus=0", "hog n=2 cpus=0 nice=5")
    (finding,) = starvation(recording(weighted, rows))
    assert finding.value == 0.0
    for change, value in (
        ("part=0 policy=idle", 0.0),
        ("part=0 nice=5", 0.0),
        ("part=0 go=1", 600),
    ):
        (finding,) = starvation(recording(f"{load};change at=100 {change}", rows))
        assert finding.value == value, change
    assert not starvation(recording(f"{load};change at=100 part=0 policy=rr priority=3", rows))


def test_a_child_without_a_name_of_its_own_is_no_forker() -> None:
    """It has its parent's name until it runs, and is fair where the policy is reset on fork."""
    load = "time ms=1000;forker n=1 cpus=0-1 policy=rr priority=20 resets=1;hog n=2 cpus=0-1"
    rows: list[Row] = [(1, "forker0.0", 0, 0, 10), (7, "-forker0.0", 0, 10, 600)]
    rows += [(2, "hog1.0", 0, 10, 1000), (3, "hog1.1", 1, 0, 1000)]
    run = recording(load, rows)
    assert [(task.pid, task.kind) for task in run.load_tasks.values() if task.part == 0] == [
        (1, "forker"), (7, "child")
    ]  # fmt: skip
    (finding,) = priority(run)
    assert finding.value == 0.0


def test_children_from_before_the_begin_keep_the_mask_of_the_start() -> None:
    load = "time ms=1000;forker n=1 cpus=0-1 start=3"
    before: list[Row] = [(1, "forker0.0", 0, 0, 10), (7, "child0.0", 3, 0, 90)]
    (finding,) = affinity(recording(load, before))
    assert finding.value == 0.0
    (finding,) = affinity(recording(load, [*before, (8, "child0.1", 3, 20, 50)]))
    assert (finding.value, finding.text[:7]) == (30.0, "child 1")
    (finding,) = affinity(recording("time ms=1000;forker n=1 cpus=0-1", before))
    assert finding.value == 90.0


def test_the_lockers_of_the_highest_priority_count() -> None:
    load = "time ms=1000;locker n=1 cpus=0 policy=fifo priority=50;locker n=2 cpus=0;hog n=1 cpus=0"
    run = recording(load, [(1, "hog2.0", 0, 0, 1000)])
    locks = {(0, 0): LockTurns(9, 2500), (1, 0): LockTurns(3, 90_000), (1, 1): LockTurns(1, 5)}
    (finding,) = lock_wait(replace(run, printed=Printed(locks=locks)))
    assert (finding.value, finding.weak) == (2.5, False)
    one_part = recording("time ms=1000;locker n=2 cpus=0", [(1, "locker0.0", 0, 0, 1000)])
    assert not lock_wait(one_part)


def test_a_change_counts_from_when_the_driver_had_made_it() -> None:
    """It is a fair task, and may be 300 ms late on a busy machine."""
    load = "time ms=1000;hog n=1 cpus=0-1;change at=100 part=0 cpus=1"
    rows: list[Row] = [(1, "hog0.0", 0, 0, 390), (1, "hog0.0", 1, 390, 1000)]
    run = recording(load, rows)
    assert affinity(run)[0].value == 290.0
    late = replace(run, done=(400_000_000, 500_000_000))
    assert affinity(late)[0].value == 0.0
    assert late.settled.start_ns == 700_000_000
