"""What the guest's sampler wrote, hostile lines included."""

import polars as pl
import pytest

from numalab.analysis.measures.numa_balancing import autonuma_cost, local_percent
from numalab.analysis.series import fault_series, page_series
from numalab.capture import samples
from numalab.capture.samples import parse_samples
from numalab.recording.window import Window

TEXT = """\
@ 1000000000
vmstat numa_hint_faults 100
vmstat numa_hint_faults_local 40
vmstat numa_pages_migrated 5
schedstat version 16
schedstat cpu1 0 0 0 0 0 0 700 80 9
task 120 126 3 126 74687265616420302f30 0:0:1:2:3 3:1:0:1:0
task 120 127 -1 0 3c623e0a 0:0:0:0:0
pages 120 0:4 2:2048
@ 2000000000
vmstat numa_hint_faults 200
vmstat numa_hint_faults_local 100
vmstat numa_pages_migrated 25
pages 120 0:1024
pages 121 0:1024 1:512
@ 3000000000
vmstat numa_hint_faults 200
vmstat numa_hint_faults_local 100
vmstat numa_pages_migrated 25
"""


def test_every_value_has_a_row() -> None:
    samples = parse_samples(TEXT)
    assert samples.vmstat.height == 9
    assert samples.schedstat.rows() == [(10**9, 1, 700, 80, 9)]
    assert samples.tasks.rows() == [
        (10**9, 120, 126, "thread 0/0", 3, 126),
        (10**9, 120, 127, "<b>\n", -1, 0),
    ]
    assert samples.faults.row(1) == (10**9, 126, 3, 1, 0, 1, 0)
    assert samples.pages.filter(pl.col("tgid") == 120).height == 3


@pytest.mark.parametrize(("version", "rows"), [(15, 2), (17, 2), (18, 0)])
def test_counters_of_another_layout_of_schedstat_are_left_out(version: int, rows: int) -> None:
    text = f"schedstat version {version}\nschedstat cpu1 0 0 0 0 0 0 700 80 9\n"
    samples = parse_samples(f"@ 5\n{text}@ 6\n{text}vmstat numa_hit 7\n")
    assert (samples.schedstat.height, samples.vmstat.height) == (rows, 1)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "@",
        "@ soon",
        "vmstat numa_hit",
        "vmstat numa_hit 1 2",
        "vmstat numa_hit -1e9",
        "schedstat cpu1 1 2 3",
        "schedstat cpu1 0 0 0 0 0 0 1 700 80 9",
        "schedstat cpuX 1 2 3 4 5 6 7 8 9",
        "task 1 2",
        "task a b c d",
        "pages x 0:1",
        "pages 1 0:99999999999999999999999",
        "nonsense " * 2000,
    ],
)
def test_a_line_that_is_not_understood_is_left_out(line: str) -> None:
    samples = parse_samples(f"@ 5\n{line}\nvmstat numa_hit 7\n")
    assert samples.vmstat.rows() == [(5, "numa_hit", 7)]
    assert all(
        table.is_empty()
        for table in (samples.schedstat, samples.tasks, samples.faults, samples.pages)
    )


def test_the_cpus_of_a_task_are_a_cpulist() -> None:
    text = (
        "@ 5\ntask 1 2 0 0 61 0:1:1:1:1 cpus=0-3,8\ntask 1 3 0 0 cpus=7\ntask 1 4 0 0 62 cpus=x\n"
    )
    samples = parse_samples(text)
    assert samples.masks.rows() == [(5, 2, "0-3,8"), (5, 3, "7")]
    assert samples.tasks["comm"].to_list() == ["a", "", "b"]
    assert samples.faults.height == 1


def test_a_task_with_a_name_of_no_letters_still_counts() -> None:
    tasks = parse_samples("@ 5\ntask 1 2 0 0\ntask 1 3 0 0 zz 0:1:1:1:1\n").tasks
    assert tasks.select("pid", "comm").rows() == [(2, ""), (3, "")]


def test_the_local_share_is_that_between_two_samples() -> None:
    window = Window(10**9, 3 * 10**9)
    local, migrated = fault_series(parse_samples(TEXT).vmstat, window)
    assert [*zip(local.at_ms, local.values, strict=True)] == [
        (1000, 60),
        (2000, None),
    ]  # 60 of 100; then no fault
    assert list(migrated.values) == [20, 0]
    assert not fault_series(parse_samples(TEXT).vmstat, Window(0, 10))


def test_pages_are_summed_over_processes_by_node() -> None:
    series = page_series(parse_samples(TEXT).pages, Window(10**9, 3 * 10**9), (0, 1, 2))
    assert [curve.label for curve in series] == ["node 0", "node 1", "node 2"]
    assert [curve.values for curve in series] == [(4 / 1024, 2), (0, 0.5), (2, 0)]
    assert series[0].at_ms == (0, 1000)


def test_the_cost_of_numa_balancing_is_mmtests() -> None:
    counters = {"numa_pte_updates": 10**6, "numa_hint_faults": 1000, "numa_pages_migrated": 10**5}
    assert autonuma_cost(counters) == pytest.approx((7e6 + 5e6 + 1.9e6) / 1e6)
    assert local_percent({"numa_hint_faults": 0, "numa_hint_faults_local": 0}) is None


def test_lines_of_very_many_values_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of a kilobyte has 400 rows, which take a hundred times as much memory."""
    monkeypatch.setattr(samples, "MAX_ROWS", 1000)
    text = "@ 1\n" + f"pages 120 {'0:1 ' * 399}\n" * 100
    result = parse_samples(text)
    assert result.pages.height == 1000
