"""How tasks share CPUs, change them, and wait: values worked out by hand."""

from collections.abc import Callable

import pytest

from numalab.hunt.finding import Finding
from numalab.hunt.properties.balance import lost_time, neighbours
from numalab.hunt.properties.moving import ping_pong, wandering
from numalab.hunt.properties.sharing import fairness, lag, proportion
from numalab.hunt.properties.waking import latency, response
from numalab.hunt.recording import LoadRecording
from unit.hunt.recordings import Row, recording

Property = Callable[[LoadRecording], list[Finding]]


def finding_of(prop: Property, run: LoadRecording) -> Finding:
    (result,) = prop(run)
    return result


def turns(pids: tuple[int, ...], names: tuple[str, ...], shares: tuple[int, ...]) -> list[Row]:
    """Tasks that take turns on CPU 0 for a second, each with so many ms of 10."""
    rows: list[Row] = []
    for begin in range(0, 1000, 10):
        at = begin
        for pid, name, share in zip(pids, names, shares, strict=True):
            rows.append((pid, name, 0, at, at + share))
            at += share
    return rows


def waiting(rows: list[Row], pid: int, name: str) -> list[Row]:
    """The same, and a task was on CPU 0 all the time, whether it ran or not."""
    return [*rows, (pid, f"-{name}", 0, 0, 1000)]


def test_equal_hogs_have_equal_parts() -> None:
    load = "time ms=1000;hog n=2 cpus=0"
    fair = recording(load, turns((1, 2), ("hog0.0", "hog0.1"), (5, 5)))
    assert finding_of(fairness, fair).value == 1.0
    unfair = recording(load, turns((1, 2), ("hog0.0", "hog0.1"), (9, 1)))
    assert finding_of(fairness, unfair).value == 5.0
    assert finding_of(fairness, unfair).violated


def test_an_even_share_is_what_masks_leave() -> None:
    rows = turns((1, 2, 3), ("hog0.0", "hog0.1", "hog0.2"), (4, 4, 2))
    rows += [(4, "hog1.0", 1, 0, 1000)]
    run = recording("time ms=1000;hog n=3 cpus=0;hog n=1 cpus=0-3", rows)
    result = finding_of(fairness, run)
    assert result.value == pytest.approx(1 / 3 / 0.2, abs=0.01), (
        "three on one CPU, not four on four"
    )
    assert result.weak


@pytest.mark.parametrize(("shares", "value"), [((7, 3), 1.0), ((5, 5), 1.5), ((10, 0), 250.0)])
def test_a_cpu_is_shared_by_weight(shares: tuple[int, int], value: float) -> None:
    names = ("hog0.0", "hog1.0")
    rows = waiting(waiting(turns((1, 2), names, shares), 1, names[0]), 2, names[1])
    run = recording("time ms=1000;hog n=1 cpus=0 nice=-5;hog n=1 cpus=0", rows)
    # 1.25 ** 5 = 3.05: 75 % and 25 % are due.
    assert finding_of(proportion, run).value == pytest.approx(value, rel=0.08)


def test_hogs_that_are_together_for_a_short_time_say_nothing_about_weights() -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 0, 1000), (2, "-hog0.1", 0, 0, 290)]
    rows += [(2, "hog0.1", 1, 290, 1000)]
    assert finding_of(proportion, recording("time ms=1000;hog n=2 cpus=0-1", rows)).value == 1.0


def both_on_cpu_0(rows: list[Row]) -> list[Row]:
    return waiting(waiting(rows, 1, "hog0.0"), 2, "hog0.1")


def test_the_lag_is_what_is_due_less_what_ran() -> None:
    load = "time ms=1000;hog n=2 cpus=0"
    names = ("hog0.0", "hog0.1")
    fair = recording(load, both_on_cpu_0(turns((1, 2), names, (5, 5))))
    assert finding_of(lag, fair).value == pytest.approx(2.5)  # half of a turn
    late = turns((1, 2), names, (5, 5))[:100]
    late += [(1, "hog0.0", 0, 500, 750), (2, "hog0.1", 0, 750, 1000)]
    assert finding_of(lag, recording(load, both_on_cpu_0(late))).value == pytest.approx(125)


def test_the_lag_counts_neither_weights_nor_the_time_of_a_task_beside() -> None:
    load = "time ms=1000;hog n=1 cpus=0;hog n=1 cpus=0 nice=5"
    names = ("hog0.0", "hog1.0", "kworker")
    rows = turns((1, 2, 3), names, (6, 2, 2))  # 1.25 ** 5 is 3.05
    run = recording(load, waiting(waiting(rows, 1, "hog0.0"), 2, "hog1.0"))
    assert finding_of(lag, run).value < 5


def test_changes_of_node_and_cpu_are_counted_when_settled() -> None:
    # Node 0 has CPUs 0 and 1. Before half of the time changes do not count.
    cpus = [0, 2, 0, 2, 0, 1, 2, 3, 0, 0]
    rows = [(1, "hog0.0", cpu, at * 100.0, at * 100.0 + 100) for at, cpu in enumerate(cpus)]
    run = recording("time ms=1000;hog n=1 cpus=0-3", rows)
    assert finding_of(ping_pong, run).value == 4.0
    assert finding_of(wandering, run).value == 6.0
    assert not finding_of(ping_pong, run).weak
    assert finding_of(wandering, run).weak


def sleeper(waits_ms: float, other: int) -> LoadRecording:
    """30 turns of a sleeper, each of which waits on CPU 0, while a hog has CPU 0 and `other`."""
    rows: list[Row] = []
    for at in range(0, 900, 30):
        rows += [
            (1, "-sleeper0.0", 0, at, at + waits_ms),
            (1, "sleeper0.0", 0, at + waits_ms, at + 20),
        ]
    rows += [(2, "hog1.0", other, 0, 1000), (3, "hog1.1", 0, 0, 1000)]
    return recording("time ms=1000;sleeper n=1 cpus=0-1;hog n=2 cpus=0-1", rows)


def test_waits_beside_an_idle_cpu_and_behind_busy_ones() -> None:
    beside = sleeper(8, other=2)  # CPU 1 is idle
    assert finding_of(latency, beside).value == 8.0
    assert finding_of(response, beside).value == 8.0
    behind = sleeper(8, other=1)
    assert finding_of(latency, behind).value == 0.0
    assert finding_of(response, behind).value == 8.0


def test_lost_time_is_what_was_waited_beside_an_idle_cpu() -> None:
    (first, _) = lost_time(sleeper(8, other=2))
    assert first.value == 0.4
    assert first.weak, "beside hogs"
    (first, _) = lost_time(sleeper(8, other=1))
    assert first.value == 0.0


def test_a_task_alone_on_a_cpu_waits_for_the_emulator_only() -> None:
    rows: list[Row] = []
    for at in range(0, 900, 30):
        rows += [(1, "-sleeper0.0", 0, at, at + 8), (1, "sleeper0.0", 0, at + 8, at + 20)]
    run = recording("time ms=1000;sleeper n=1 cpus=0-1", rows)
    assert finding_of(latency, run).value == 0.0
    assert finding_of(neighbours, run).value == 0.0
    assert finding_of(lost_time, run).value == 0.0
    assert finding_of(response, run).value == 8.0


def test_idle_neighbours_are_of_the_node() -> None:
    assert finding_of(neighbours, sleeper(8, other=2)).value == 8.0
    rows: list[Row] = [(1, "hog0.0", 0, 0, 1000), (2, "-hog0.1", 0, 100, 400)]
    far = recording("time ms=1000;hog n=2 cpus=0,2", rows)
    assert finding_of(neighbours, far).value == 0.0, "CPU 2 is of the other node"
    near = recording("time ms=1000;hog n=2 cpus=0-1", rows)
    assert finding_of(neighbours, near).value == 300.0


def test_a_load_without_time_after_its_last_change_has_no_waits() -> None:
    load = "time ms=1000;sleeper n=1 cpus=0;hotplug cpu=1 off=100 on=990"
    run = recording(load, [(11, "sleeper0.0", 1, 100, 900)])
    assert not run.judged.length_ns
    assert [list(response(run)), list(latency(run))] == [[], []]
