"""The kernel's account of a task, beside a trace made up step by step."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.hunt.loads.driver_output import GroupAccount, Printed, TaskAccount, parse_output
from numalab.hunt.properties.accounts.cgroups import group_account, group_load, group_settings
from numalab.hunt.properties.accounts.root_domains import deadline_bandwidth
from numalab.hunt.properties.accounts.tasks import account
from numalab.hunt.property import judge_load
from numalab.hunt.recording import MS, LoadRecording
from unit.hunt.recordings import Row, recording

HOG = "time ms=1000;hog n=1 cpus=0-3"
ROWS = [(11, "hog0.0", 0, 0.0, 1000.0)]
RUNNING, PREEMPTED, SLEEPING = 0, 0x100, 1
Step = tuple[int, str, int | None, int | None, int | None, int | None]


def recorded(steps: Sequence[Step], *, stopped_ms: int = 1000) -> LoadRecording:
    """Return a recording of these steps: ms, event, previous task and state, next task, subject."""
    table = pl.DataFrame(
        [(at * MS, *rest) for at, *rest in steps],
        schema={
            "time_ns": pl.Int64, "event": pl.String, "prev_pid": pl.Int32, "prev_state": pl.Int64,
            "next_pid": pl.Int32, "event_pid": pl.Int32,
        },
        orient="row",
    )  # fmt: skip
    return replace(recording(HOG, ROWS), table=table, stopped_ns=stopped_ms * MS)


STEPS: list[Step] = [
    (90, "sched_wakeup_new", None, None, None, 11),
    (100, "sched_switch", 0, RUNNING, 11, None),
    (200, "sched_switch", 11, PREEMPTED, 12, None),  # it waits from here on
    (250, "sched_migrate_task", None, None, None, 11),
    (260, "sched_switch", 0, RUNNING, 11, None),
    (300, "sched_wakeup", None, None, None, 11),  # of a task that runs: no wait begins
    (400, "sched_switch", 11, SLEEPING, 0, None),
    (500, "sched_wakeup", None, None, None, 11),
    (505, "sched_switch", 0, RUNNING, 11, None),
    (900, "sched_switch", 11, SLEEPING, 0, None),
    (1001, "sched_wakeup", None, None, None, 11),  # when it goes on
    (1002, "sched_switch", 0, RUNNING, 11, None),
]
TRUE = TaskAccount((100 + 140 + 395) * MS, (10 + 60 + 5) * MS, 3, 1)


def judged(kernels: TaskAccount) -> tuple[float, str]:
    run = replace(recorded(STEPS), printed=Printed(accounts={11: kernels}))
    (finding,) = account(run)
    return finding.value, finding.text


def test_the_account_of_a_task_is_what_the_trace_shows() -> None:
    assert judged(TRUE)[0] == 0


def test_each_wrong_figure_is_named_with_what_the_trace_shows() -> None:
    wrong = {"ran_ns": 2 * TRUE.ran_ns, "waited_ns": 0, "switches": 9, "migrations": 0}
    assert [judged(replace(TRUE, **{name: value})) for name, value in wrong.items()] == [
        (75.9115, "a hog has 635 ms on CPUs, and 1270 in the kernel's account"),
        (27.1248, "a hog has 75 ms in run queues, and 0 in the kernel's account"),
        (46.1538, "a hog has 3 context switches, and 9 in the kernel's account"),
        (9.0909, "a hog has 1 migrations, and 0 in the kernel's account"),
    ]


def test_the_rest_of_a_sleep_after_a_move_may_count_as_waiting_but_no_more() -> None:
    """The dequeue of the task is delayed when it moves: from then on it waits for the kernel."""
    steps: list[Step] = [
        *STEPS[:7],
        (450, "sched_migrate_task", None, None, None, 11),
        (480, "sched_migrate_task", None, None, None, 11),
        *STEPS[7:],
    ]
    counted = {}
    for more in (0, 50, 150):
        kernels = replace(TRUE, waited_ns=TRUE.waited_ns + more * MS, migrations=3)
        run = replace(recorded(steps), printed=Printed(accounts={11: kernels}))
        counted[more] = next(finding.value for finding in account(run))
    assert counted == {0: 0, 50: 0, 150: pytest.approx(100 * 100 / (125 + 201.5), rel=1e-4)}


def test_a_wait_that_lasts_may_be_counted_but_no_more() -> None:
    """A throttled task waits for a second; the kernel adds it when the task changes queues."""
    steps: list[Step] = [*STEPS[:6], (400, "sched_switch", 11, PREEMPTED, 0, None)]
    counted = {}
    for waited in (70, 370, 670, 970):
        kernels = TaskAccount((100 + 140) * MS, waited * MS, 2, 1)
        (finding,) = account(replace(recorded(steps), printed=Printed(accounts={11: kernels})))
        counted[waited] = finding.value
    assert counted == {70: 0, 370: 0, 670: 0, 970: 34.4432}


def test_a_load_without_accounts_or_events_has_no_value() -> None:
    assert judge_load(recorded(STEPS), {"account"}) == ((), {})
    nothing = replace(recorded([]), printed=Printed(accounts={11: TRUE}))
    assert judge_load(nothing, {"account"}) == ((), {})


def test_the_drivers_line_is_read() -> None:
    line = "load 3 pid 11 ran_ns 7 waited_ns 5 switches 2 migrations 1\n"
    (printed,) = parse_output(line + line.replace("ran_ns 7", "ran_ns seven")).values()
    assert printed.accounts == {11: TaskAccount(7, 5, 2, 1)}


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50), st.booleans()), max_size=12))
def test_any_turns_add_up(turns: list[tuple[int, int, bool]]) -> None:
    """Each turn: how long the task runs, how long it then waits, and whether it sleeps before."""
    steps: list[Step] = [(1, "sched_wakeup_new", None, None, None, 11)]
    now = 1
    for runs, waits, sleeps in [*turns, (3, 0, True)]:
        steps.append((now, "sched_switch", 0, RUNNING, 11, None))
        now += runs
        steps.append((now, "sched_switch", 11, SLEEPING if sleeps else PREEMPTED, 0, None))
        if sleeps:
            now += 7
            steps.append((now, "sched_wakeup", None, None, None, 11))
        now += waits
    expected = TaskAccount(
        sum(runs for runs, _, _ in turns) * MS + 3 * MS, sum(w for _, w, _ in turns) * MS,
        len(turns) + 1, 0,
    )  # fmt: skip
    run = recorded(steps, stopped_ms=now + 1)
    run = replace(run, printed=Printed(accounts={11: expected}))
    (finding,) = account(run)
    assert finding.value == 0


GROUPS = (
    "time ms=1000;group name=a;group name=b parent=a;group name=c;"
    "hog n=1 cpus=0 policy=fifo priority=9 group=b;sleeper n=1 cpus=0-3 group=c"
)
RAN: list[Row] = [(11, "hog0.0", 0, 100, 900), (12, "sleeper1.0", 1, 950, 1020)]


def of_groups(load: str, **used_us: int) -> dict[str, float]:
    groups = {name: GroupAccount(us, 0, 0) for name, us in used_us.items()}
    run = replace(recording(load, RAN), stopped_ns=1010 * MS, printed=Printed(groups=groups))
    return {finding.text: finding.value for finding in group_account(run)}


def test_the_account_of_a_group_is_what_its_tasks_ran_until_they_were_stopped() -> None:
    assert of_groups(GROUPS, a=800_000, b=0, c=60_000) == {
        "the tasks of group a have 800 ms on CPUs, and 800 in the kernel's account": 0,
        "the tasks of group b have 800 ms on CPUs, and 0 in the kernel's account": 79.96,
        "the tasks of group c have 60 ms on CPUs, and 60 in the kernel's account": 0,
    }


def test_a_reading_long_before_the_begin_is_no_account() -> None:
    groups = {"a": GroupAccount(9_000_000, 0, 0, delay_us=20_000)}
    run = replace(recording(GROUPS, RAN), stopped_ns=1010 * MS, printed=Printed(groups=groups))
    assert not group_account(run)
    near = replace(groups["a"], delay_us=900)
    assert list(group_account(replace(run, printed=Printed(groups={"a": near}))))


def test_a_group_that_tasks_leave_or_enter_has_no_account() -> None:
    moving = f"{GROUPS};group name=d;change at=100 part=1 into=d"
    texts = " ".join(of_groups(moving, a=800_000, b=800_000, c=9_000_000, d=9_000_000))
    assert "group a" in texts
    assert "group c" not in texts
    assert "group d" not in texts
    assert not of_groups(GROUPS), "an old kernel prints no account"


def test_a_group_below_which_tasks_move_has_no_account() -> None:
    load = (
        "time ms=1000;group name=a;group name=c parent=a;group name=b;"
        "hog n=1 cpus=0 group=a;hog n=1 cpus=1 group=b;change at=100 part=1 into=c"
    )
    assert not of_groups(load, a=900_000, b=1, c=1)


def test_the_drivers_line_about_a_group_is_read() -> None:
    line = "load 3 group a used_us 7 load 6 listed 5 wrong 1 delay_us 9\n"
    (printed,) = parse_output(line + line.replace("a", "A")).values()
    assert printed.groups == {"a": GroupAccount(7, 6, 5, 1, 9)}
    (printed,) = parse_output(
        "load 3 group a used_us -7 load -6 listed -1 wrong 0 delay_us 9\n"
    ).values()
    assert printed.groups == {"a": GroupAccount(-7, -6, -1, 0, 9)}


def test_load_that_is_not_updated_is_of_groups_without_quota() -> None:
    load = (
        "time ms=1000;group name=a quota=50;group name=b parent=a;group name=c;group name=d;"
        "hog n=1 cpus=0 group=b;hog n=1 cpus=0 group=c"
    )
    groups = {name: GroupAccount(0, 900, 400) for name in "abc"}
    run = replace(recording(load, RAN), printed=Printed(groups=groups))
    (observation,) = group_load(run)
    assert observation.value == 50.0
    assert observation.text == (
        "of the load of group c, 900, 500 is of queues that the kernel no longer updates"
    )


@pytest.mark.parametrize(
    ("load", "listed", "value"),
    [(-900, 100, 90.0), (900, 1000, 0.0), (900, -1, None), (900, -100, 100.0), (900, 801, 0.0)],
)
def test_a_negative_load_is_lost_and_one_of_no_queue_is_unknown(
    load: int, listed: int, value: float | None
) -> None:
    run = recording("time ms=1000;group name=c;hog n=1 cpus=0 group=c", RAN)
    run = replace(run, printed=Printed(groups={"c": GroupAccount(0, load, listed)}))
    assert [finding.value for finding in group_load(run)] == ([] if value is None else [value])


def test_files_of_a_group_that_read_other_than_was_written_are_counted() -> None:
    groups = {"a": GroupAccount(0, 0, 0), "b": GroupAccount(0, 0, 0, 2)}
    run = replace(recording(GROUPS, RAN), printed=Printed(groups=groups))
    assert [(finding.value, finding.text) for finding in group_settings(run)] == [
        (0.0, "0 of the files of group a read other than was written"),
        (2.0, "2 of the files of group b read other than was written"),
    ]


def test_bandwidth_that_stays_admitted_is_that_of_one_root_domain() -> None:
    load = "time ms=1000;hog n=1 cpus=0-3 policy=deadline runtime=1000 period=9000"
    printed = Printed(counters={"end": {"admitted_left": 4 * (1 << 19)}})
    (leak,) = deadline_bandwidth(replace(recording(load, RAN), printed=printed))
    assert (leak.value, leak.text) == (50.0, "50 % of a CPU is admitted for tasks that are gone")
    less = Printed(counters={"end": {"admitted_left": -(1 << 20)}})
    (leak,) = deadline_bandwidth(replace(recording(load, RAN), printed=less))
    assert leak.text == "25 % of a CPU less is admitted than before the tasks came"
    away = replace(recording(f"{load};hotplug cpu=1 off=9 on=99", RAN), printed=printed)
    assert not deadline_bandwidth(away)
    assert not deadline_bandwidth(recording(load, RAN))
