"""The settings of tasks and of children that the driver prints, beside those of the load."""

from dataclasses import replace

import pytest

from numalab.hunt.loads.driver_output import Printed, parse_output
from numalab.hunt.loads.settings_output import PrintedSettings, TaskSettings
from numalab.hunt.properties.accounts.settings import inherited, task_settings
from numalab.hunt.property import judge_load
from unit.hunt.recordings import recording

FAIR = {
    "policy": 0, "nice": 0, "priority": 0, "flags": 0, "runtime": 2_100_000, "deadline": 0,
    "period": 0, "weight": 1 << 20, "rank": 20, "cpus": "0-3",
}  # fmt: skip
RR: dict[str, int | str] = {"policy": 2, "priority": 7, "runtime": 0, "rank": -8}
DEADLINE: dict[str, int | str] = {
    "policy": 6, "runtime": 2_000_000, "deadline": 5_000_000, "period": 10_000_000, "rank": -101,
}  # fmt: skip
TIMES = "policy=deadline runtime=2000 period=10000 deadline=5000"


def line(*, wakee: int = 0, **differing: int | str) -> str:
    words = " ".join(f"{name} {value}" for name, value in {**FAIR, **differing}.items())
    return f"load 0 part 0 wakee {wakee} {words}\n"


def judged(load: str, printed: str) -> tuple[float, str]:
    run = recording(f"time ms=1000;{load}", [])
    (finding,) = task_settings(replace(run, printed=parse_output(printed)[0]))
    return finding.value, finding.text


RIGHT: tuple[tuple[str, dict[str, int | str]], ...] = (
    ("hog cpus=0-3", {}),
    ("hog cpus=0-3 nice=5", {"nice": 5, "weight": 335 << 10, "rank": 25}),
    ("hog cpus=0-3 nice=-20", {"nice": -20, "weight": 88761 << 10, "rank": 0}),
    ("hog cpus=0-3 nice=19", {"nice": 19, "weight": 15 << 10, "rank": 39}),
    ("hog cpus=0-3 policy=batch slice=20000", {"policy": 3, "runtime": 20_000_000}),
    ("hog cpus=0-3 slice=50", {"runtime": 100_000}),
    ("hog cpus=0-3 slice=50", {"runtime": 0}),  # before 6.12
    ("hog cpus=0-3 policy=idle slice=50",
     {"policy": 5, "weight": 3 << 10, "runtime": 2_800_000}),
    ("hog cpus=0-3", {"weight": -1}),  # without CONFIG_SCHED_DEBUG
    ("hog cpus=0-3 policy=idle nice=3", {"policy": 5, "nice": 3, "weight": 3 << 10, "rank": 23}),
    ("hog cpus=0-3 nice=5;change part=0 at=5 policy=idle",
     {"policy": 5, "nice": 5, "weight": 3 << 10, "rank": 20}),
    ("hog cpus=0-3 policy=rr priority=7", RR),
    ("locker cpus=0-3 policy=rr priority=7", {**RR, "rank": -51}),  # a waiter's
    (f"hog cpus=0-3 {TIMES} reclaim=1 resets=1", {**DEADLINE, "flags": 3}),
    ("hog cpus=0-3 policy=rr priority=7 nice=5;change part=0 at=5 policy=batch", {"policy": 3}),
    ("hog cpus=0-3 slice=5000 nice=5 resets=1;change part=0 at=5 policy=rr priority=7;"
     "change part=0 at=9 nice=-5", {**RR, "nice": -5, "weight": 3121 << 10}),
    ("hog cpus=0-3;change part=0 at=5 cpus=1", {"cpus": "1"}),
    ("hog cpus=0-3 start=0 later=1,3", {"cpus": "1,3"}),
    ("hog cpus=0-1;cpuset from=0 to=1-3 at=400", {"cpus": "1"}),
    ("hog cpus=1;cpuset from=1 to=0 at=400", {"cpus": "0"}),
    ("group name=a cpus=0-1;group name=b;hog cpus=1-2 group=a;change part=0 at=5 into=b",
     {"cpus": "1-2"}),
    ("hog cpus=0-3;hotplug cpu=3 off=5 on=9", {}),
)  # fmt: skip


@pytest.mark.parametrize(("load", "differing"), RIGHT)
def test_settings_that_the_load_asked_for_are_right(load: str, differing: dict[str, int]) -> None:
    assert judged(load, line(**differing))[0] == 0


@pytest.mark.parametrize(
    ("load", "differing", "text"),
    [
        ("hog cpus=0-1", {"cpus": "0-2"}, "the mask 0-2, not 0-1"),
        ("hog cpus=0-1;cpuset from=1 to=0-3 at=400", {}, "the mask 0-3, not 0-1"),
        ("hog cpus=0-3;cpuset from=1 to=0-3 at=400", {"cpus": "1"}, "the mask 1, not 0-3"),
        ("hog cpus=0-3 policy=batch", {}, "the policy fair, not batch"),
        ("hog cpus=0-3 nice=5", {"rank": 25}, "the nice level 0, not 5"),
        ("hog cpus=0-3 policy=rr priority=9", RR, "the priority 7, not 9"),
        (f"hog cpus=0-3 {TIMES} reclaim=1", DEADLINE, "the flags 0, not 2"),
        (f"hog cpus=0-3 {TIMES}", {**DEADLINE, "runtime": 0},
         "the runtime or slice 0, not 2000000"),
        (f"hog cpus=0-3 {TIMES}", {**DEADLINE, "period": 5_000_000},
         "the period 5000000, not 10000000"),
        ("hog cpus=0-3 slice=5000", {}, "the runtime or slice 2100000, not 5000000"),
        ("hog cpus=0-3 policy=rr priority=7;change part=0 at=5 policy=fair", {"rank": -8},
         "the priority of /proc/PID/stat -8, not 20"),
        ("hog cpus=0-3 nice=1", {"nice": 1, "rank": 21}, "the load weight 1048576, not 838861"),
        ("hog cpus=1;hotplug cpu=3 off=1 on=9;change part=0 at=10 cpus=0-2", {},
         "the mask 0-3, not 0-2"),
        ("hog cpus=0-3", {"weight": -5}, "the load weight -5, not 1048576"),
        ("hog cpus=0-3", {"rank": 1020}, "the priority of /proc/PID/stat 1020, not 20"),
        ("hog cpus=0-3", {"nice": 119}, "the nice level 119, not 0"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(load: str, differing: dict[str, int], text: str) -> None:
    assert judged(load, line(**differing)) == (1, f"a hog has {text}")


def test_wakees_with_a_mask_of_their_own_have_it() -> None:
    run = recording("time ms=1000;waker cpus=0-3 wakee=2", [])
    run = replace(run, printed=parse_output(line() + line(wakee=1, cpus="2-3"))[0])
    assert [(finding.value, finding.text) for finding in task_settings(run)] == [
        (0, "each waker has its settings"), (1, "a wakee has the mask 2-3, not 2"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "load",
    [
        "hog cpus=3;hotplug cpu=3 off=5 on=9",  # its cpuset's, and not restored
        "group name=a cpus=0-1 partition=1;hog cpus=0-3;hog cpus=0-1 group=a",
        "hog cpus=0 later=1;change part=0 at=500 cpus=2",
        "hog cpus=0;hotplug cpu=3 off=100 on=900;change part=0 at=700 cpus=0-3",
        "hog cpus=0 later=0-3;hotplug cpu=3 off=100 on=900",
    ],
)
def test_a_mask_that_depends_on_more_than_the_load_is_not_judged(load: str) -> None:
    assert judged(load, line(cpus="1-2"))[0] == 0


def test_a_load_in_which_a_call_was_refused_is_not_judged() -> None:
    run = recording("time ms=1000;hog cpus=0", [])
    printed = parse_output(line() + "load 0 end refused 1\n")[0]
    assert judge_load(replace(run, printed=printed), {"task-settings"}) == ((), {})
    refused = line() + "load 0 end refused 0\n"
    assert judged("hog cpus=0", refused)[0] == 1


def test_each_refusal_counts_beside_a_reference_kernel() -> None:
    run = recording("time ms=1000;hog cpus=0", [])
    for refused, denied in ((0, 0), (2, 0), (0, 3)):
        text = f"load 0 end refused {refused}\nload 0 end denied {denied}\n"
        printed = parse_output(text)[0]
        ((finding,), _) = judge_load(replace(run, printed=printed), {"refusals"})
        assert (finding.value, finding.weak) == (refused + denied, True)
        assert finding.violated == (refused + denied > 0)
    without = parse_output("load 0 end refused 1\n")[0]
    assert judge_load(replace(run, printed=without), {"refusals"}) == ((), {})


def test_children_that_differ_are_counted_by_setting() -> None:
    run = recording("time ms=1000;forker cpus=0-3", [])
    text = "load 0 part 0 children 57 mask 2 policy 0 weight 1\n"
    run = replace(run, printed=parse_output(text)[0])
    assert [(finding.value, finding.text[33:]) for finding in inherited(run)] == [
        (2, "part 0 with their parents 2 differ in the mask"),
        (0, "part 0 with their parents 0 differ in the policy"),
        (1, "part 0 with their parents 1 differ in the weight"),
    ]


@pytest.mark.parametrize(
    ("printed", "value", "text"),
    [
        ("calls 83 wrong 0 nothing 0", 0, "0 of 83 system calls return other than they must"),
        ("calls 83 wrong 2 fifo-100 -22", 2,
         "2 of 83 system calls return other than they must, first fifo-100 in"
         " workloads/hunt: EINVAL"),
    ],
)  # fmt: skip
def test_system_calls_that_return_something_else_are_counted(
    printed: str, value: int, text: str
) -> None:
    run = recording("time ms=1000;hog cpus=0", [])
    run = replace(run, printed=parse_output(f"load 0 {printed}\n")[0])
    ((finding,), _) = judge_load(run, {"system-calls"})
    assert (finding.value, finding.text) == (value, text)


def test_lines_of_another_form_are_left_out() -> None:
    wrong = (
        line(cpus="3-1"), line(cpus=""), line(nice="many"), line().replace("part 0", "part 100"),
        line(weight="1" * 21), "load 0 part 0 children 57\n",
        "load 0 calls 83 wrong 1 fifo_100 -22\n", "load 0 calls 83 wrong many nothing 0\n",
    )  # fmt: skip
    assert parse_output("".join(wrong)) == {}
    settings = TaskSettings(frozenset({0, 1, 2, 3}), 0, 0, 0, 0, 2_100_000, 0, 0, 1 << 20, 20)
    parsed = parse_output(line() + "load 0 part 1 children 5 mask 1\n")
    assert parsed[0].settings == PrintedSettings({(0, False): [settings]}, {1: 5}, {1: {"mask": 1}})
    assert parse_output("load 1 end refused 0")[1].settings == Printed().settings
