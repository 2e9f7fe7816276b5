"""Who may not wait beside an idle CPU, nor run where its mask does not let it: by hand."""

from dataclasses import replace

import pytest

from numalab.hunt.loads.driver_output import parse_output
from numalab.hunt.properties.balance import affinity, reachability, work_conservation
from numalab.hunt.property import PROPERTIES
from numalab.hunt.recording import LoadRecording
from unit.hunt.recordings import Row, recording

# Nodes 0 and 1 have CPUs 0 and 1, and 2 and 3.
HOGS = "time ms=1000;hog n=3 cpus=0-3"


def two_share_a_cpu(*more: Row) -> LoadRecording:
    """Hogs 0 and 1 on CPU 0, of which hog 1 waits all the time, and hog 2 on CPU 1."""
    rows: list[Row] = [(1, "hog0.0", 0, 0, 1000), (2, "-hog0.1", 0, 0, 1000)]
    return recording(HOGS, [*rows, (3, "hog0.2", 1, 0, 1000), *more])


def test_a_node_that_idles_while_a_hog_waits_was_not_reached() -> None:
    near, far = reachability(two_share_a_cpu())
    assert (near.value, far.value) == (0.0, 1.0)
    assert not near.violated and far.violated
    assert "node 1 (CPUs 2-3)" in far.text
    assert far.with_unit(far.most) == "0.5 of the time"
    assert far.weak, "three hogs are no more than four CPUs"


def test_each_limit_has_a_unit() -> None:
    entries = [entry for entry in PROPERTIES.built_in().values() if not entry.differential]
    assert len(entries) > 20
    assert [entry.name for entry in entries if not entry.unit] == []


def test_a_node_counts_by_the_cpu_that_idled_the_least() -> None:
    """Another part keeps CPU 2 busy for a quarter of the later half, and CPU 3 for all of it."""
    load = HOGS + ";sleeper n=2 cpus=2-3"
    rows: list[Row] = [(1, "hog0.0", 0, 0, 1000), (2, "-hog0.1", 0, 0, 1000)]
    rows += [(3, "hog0.2", 1, 0, 1000)]
    quarter = recording(load, [*rows, (4, "sleeper1.0", 2, 875, 1000)])
    settled_ms = quarter.settled.length_ns / 1e6
    (_, far) = reachability(quarter)
    assert far.value == pytest.approx(1 - 125 / settled_ms, abs=1e-3)
    both = [*rows, (4, "sleeper1.0", 2, 0, 1000), (5, "sleeper1.1", 3, 0, 1000)]
    (_, far) = reachability(recording(load, both))
    assert far.value == 0.0


def test_one_turn_on_a_node_is_enough_to_have_reached_it() -> None:
    (_, far) = reachability(two_share_a_cpu((2, "hog0.1", 3, 990, 1000)))
    assert far.value == 0.0


@pytest.mark.parametrize(
    "load",
    [
        "time ms=1000;hog n=1 cpus=0-3",
        "time ms=1000;sleeper n=3 cpus=0-3",
        "time ms=1000;group name=a quota=50;hog n=3 cpus=0-3 group=a",
        HOGS + ";change at=900 part=0 cpus=0-1",
    ],
)
def test_reachability_is_asked_of_several_hogs_that_may_run(load: str) -> None:
    assert not list(reachability(recording(load, [(1, "hog0.0", 0, 0, 1000)])))


@pytest.mark.parametrize(
    ("change", "nodes"),
    [
        ("hog n=3 cpus=0-3 later=0-1", [0]),
        ("hog n=3 cpus=0-3;hotplug cpu=3 off=100 on=200", [0, 1]),
        ("hog n=3 cpus=0-3;cpuset from=0-3 to=0-1 at=500", [0]),
        ("hog n=3 cpus=0-3;change at=200 part=0 cpus=2-3", [1]),
    ],
)
def test_reachability_is_asked_of_the_cpus_that_are_left_in_the_end(
    change: str, nodes: list[int]
) -> None:
    findings = list(reachability(recording("time ms=1000;" + change, [(1, "hog0.0", 0, 0, 1000)])))
    assert [f"node {node} " in finding.text for node, finding in zip(nodes, findings, strict=True)]


def test_the_longest_wait_beside_an_idle_cpu_is_told_with_its_moment() -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 0, 1000), (3, "hog0.2", 1, 0, 1000)]
    rows += [(2, "-hog0.1", 0, 100, 150), (2, "hog0.1", 2, 150, 400)]
    rows += [(2, "-hog0.1", 0, 400, 600), (2, "hog0.1", 2, 600, 1000)]
    (result,) = work_conservation(recording(HOGS, rows))
    assert result.value == 200.0
    assert "200.0 ms" in result.text and "from 400.0 ms after the begin" in result.text


def test_a_wait_beside_a_cpu_that_the_mask_lacks_is_none() -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 0, 1000), (2, "-hog0.1", 0, 0, 1000)]
    alone = recording("time ms=1000;hog n=2 cpus=0", rows)
    (result,) = work_conservation(alone)
    assert result.value == 0.0 and not result.violated


def test_a_turn_outside_of_the_mask_is_the_longest_one() -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 0, 900), (1, "hog0.0", 2, 900, 905)]
    rows += [(1, "hog0.0", 3, 905, 1000), (2, "hog0.1", 1, 0, 1000)]
    (result,) = affinity(recording("time ms=1000;hog n=2 cpus=0-1", rows))
    assert result.value == 95.0 and result.violated
    assert result.text == "hog 0, which may run on CPUs 0-1, ran on CPU 3 for 95.00 ms"


def test_masks_that_change_count_from_their_moment_on() -> None:
    load = "time ms=1000;hog n=1 cpus=0-1 later=2-3"
    kept = recording(load, [(1, "hog0.0", 0, 0, 500), (1, "hog0.0", 2, 500, 1000)])
    (result,) = affinity(kept)
    assert result.value == 0.0
    (result,) = affinity(recording(load, [(1, "hog0.0", 0, 0, 1000)]))
    assert result.violated and "may run on CPUs 2-3, ran on CPU 0" in result.text


@pytest.mark.parametrize(("cpu", "ms"), [(2, 0.0), (1, 250.0)], ids=["its cpuset", "elsewhere"])
def test_a_task_whose_cpu_goes_belongs_on_its_cpuset_from_then_on(cpu: int, ms: float) -> None:
    load = "time ms=1000;group name=a cpus=2-3;hog n=1 cpus=3 group=a;hotplug cpu=3 off=100 on=400"
    (result,) = affinity(recording(load, [(1, "hog0.0", 3, 0, 100), (1, "hog0.0", cpu, 100, 400)]))
    assert result.value == pytest.approx(150 if ms else 0)
    (result,) = affinity(recording(load, [(1, "hog0.0", cpu, 750, 1000)]))
    assert result.value == pytest.approx(ms), "its mask is not restored"


def test_without_a_cpuset_a_task_whose_cpu_goes_is_not_judged() -> None:
    load = "time ms=1000;hog n=1 cpus=3;hotplug cpu=3 off=100 on=400"
    (result,) = affinity(recording(load, [(1, "hog0.0", 0, 250, 1000)]))
    assert result.value == 0


@pytest.mark.parametrize(
    ("counted", "values"), [("refused 0", [1000.0]), ("refused 3", []), ("denied 1", [])]
)
def test_beside_a_partition_masks_are_known_only_if_no_call_was_refused(
    counted: str, values: list[float]
) -> None:
    load = "time ms=1000;group name=a cpus=1-3 partition=1;hog n=1 cpus=0-3 group=a"
    printed = parse_output(f"load 0 end {counted}\n")[0]
    run = replace(recording(load, [(1, "hog0.0", 0, 0, 1000)]), printed=printed)
    assert [result.value for result in affinity(run)] == values
