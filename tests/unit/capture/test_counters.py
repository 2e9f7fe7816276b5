"""Counters of the kernel, and texts of a guest that are not what they should be."""

import pytest

from numalab.capture.counters import (
    BufferStats,
    CpuSchedstat,
    describe_schedstat,
    difference,
    parse_numastat,
    parse_schedstat,
    parse_trace_stats,
    parse_vmstat,
)

STATS = """\
cpu0
entries: 204
overrun: 3
commit overrun: 2
bytes: 1380
oldest event ts:     0.904006
now ts:     0.966426
dropped events: 1
read events: 0
cpu1
entries: 13
overrun: 0
commit overrun: 0
dropped events: 0
"""
SCHEDSTAT = """\
version 16
timestamp 4294895068
cpu0 0 0 0 0 0 0 7168102886 336842198 601
domain0 03 0 0 0 0
cpu1 0 0 0 0 0 0 12 34 5
"""


def test_vmstat_is_parsed_and_its_growth_taken() -> None:
    before = parse_vmstat("numa_hit 10\nnuma_miss 0\nold 1\n")
    after = parse_vmstat("numa_hit 25\nnuma_miss 0\nnew 7\n")
    assert difference(before, after) == {"numa_hit": 15, "numa_miss": 0}


@pytest.mark.parametrize("text", ["", "numa_hit\n", "numa_hit x\n", "numa_hit -1\n", "\0" * 99])
def test_a_vmstat_that_is_none_gives_no_counter(text: str) -> None:
    assert parse_vmstat(text) == {}


def test_numastat_gives_each_node_its_counters() -> None:
    path = "/sys/devices/system/node/node1/numastat"
    text = f"{path}:numa_hit 5\n{path}:numa_miss -1\n{path}\nnode2:numa_hit 7\n{path}:a b 3\n"
    assert parse_numastat(text) == {1: {"numa_hit": 5}}


def test_schedstat_gives_each_cpu_its_times() -> None:
    assert parse_schedstat(SCHEDSTAT) == (
        CpuSchedstat(0, 7168102886, 336842198, 601),
        CpuSchedstat(1, 12, 34, 5),
    )


@pytest.mark.parametrize("version", [15, 16, 17])
def test_versions_of_schedstat_have_the_same_lines_of_cpus(version: int) -> None:
    text = SCHEDSTAT.replace("version 16", f"version {version}")
    assert parse_schedstat(text) == parse_schedstat(SCHEDSTAT)
    assert describe_schedstat(text) == describe_schedstat("") == ()


@pytest.mark.parametrize(
    "text",
    [
        "version 14\ncpu0 0 0 0 0 0 0 1 2 3\n",
        "version 15\ncpu0 1 2\ncpux 1\n",
        "version 18\ncpu0 0 0 0 0 0 0 77 100 200\n",
        "version 17\ncpu0 0 0 0 0 0 0 77 100 200 3\n",
    ],
)
def test_a_schedstat_that_is_not_understood_is_empty(text: str) -> None:
    """A patch that adds a field in the line of a CPU, as "Track efficiency of SIS" did."""
    assert parse_schedstat(text) == ()
    (problem,) = describe_schedstat(text)
    assert problem == (
        "/proc/schedstat has not the layout of versions 15 to 17: nothing is measured by it"
    )


def test_the_ring_buffers_statistics_say_what_was_lost() -> None:
    first, second = parse_trace_stats(STATS)
    assert first == BufferStats(cpu=0, entries=204, overrun=3, commit_overrun=2, dropped=1, read=0)
    assert (first.lost, second.lost) == (6, 0)


def test_the_form_in_a_trace_dat_is_understood_too() -> None:
    assert parse_trace_stats("CPU: 3\nentries: 9\noverrun: 4\n") == (BufferStats(3, 9, 4, 0, 0),)


def test_statistics_without_a_cpu_are_left_out() -> None:
    assert parse_trace_stats("entries: 9\ncpu1\nnonsense\n") == ()
