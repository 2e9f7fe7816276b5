"""Experiments that show why a claim does not come out: each can be run, and has its numbers."""

import csv
import re
from pathlib import Path
from statistics import mean

import pytest

from numalab.study.plan import plan_study

ROOT = Path(__file__).parents[3]
BOUND = (1, 2, 4, 6)  # threads
FILES = sorted((ROOT / "studies/experiments").glob("*.toml"))


def measured(name: str) -> list[dict[str, str]]:
    """Return the stored runs of an experiment, a row each."""
    path = ROOT / "studies/experiments" / name / "measures.csv"
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_there_are_experiments() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_stored_runs_are_those_of_its_plan(path: Path) -> None:
    stored = {row["run"] for row in measured(path.stem)}
    assert stored == {run.id for run in plan_study(path).runs}


def throughputs(name: str, threads: tuple[int, ...]) -> list[tuple[float, float]]:
    """Return the means of the runs before and after, for each number of threads."""
    rows = measured(name)
    return [
        (
            mean(float(row["throughput"]) for row in rows if f"-{count}_before_" in row["run"]),
            mean(float(row["throughput"]) for row in rows if f"-{count}_after_" in row["run"]),
        )
        for count in threads
    ]


def test_the_page_has_the_means_of_the_cached_warehouses() -> None:
    page = (ROOT / "docs/results/group-construction.md").read_text(encoding="utf-8")
    for before, after in throughputs("group-construction-cached", (1, 8, 32, 48)):
        assert f"| {before:,.0f} | {after:,.0f} |" in page


def test_the_page_has_the_means_of_the_bound_warehouses() -> None:
    page = (ROOT / "docs/results/group-construction.md").read_text(encoding="utf-8")
    small = throughputs("group-construction-bound", BOUND)
    large = throughputs("group-construction-bound-memory", BOUND)
    for count, (before, after), (early, late) in zip(BOUND, small, large, strict=True):
        (row,) = re.findall(rf"^\| {count} \| {before:,.0f} \| {after:,.0f}.*$", page, re.MULTILINE)
        assert f"| {early:,.0f} | {late:,.0f} |" in row


@pytest.mark.parametrize("name", ["group-construction-bound", "group-construction-bound-memory"])
def test_bound_threads_stayed_on_one_node_before(name: str) -> None:
    runs = [row for row in measured(name) if "_before_" in row["run"]]
    assert len(runs) == 20
    shares = [{row["task_time_share_node1"], row["task_time_share_node4"]} for row in runs]
    assert all(share == {"0.0", "100.0"} for share in shares)


@pytest.mark.parametrize(
    ("name", "machine", "node"),
    [("group-construction-period", "ring-4", 3), ("group-construction-period-mesh", "mesh-8", 4)],
)
def test_the_page_has_the_shares_on_the_kernel_of_the_post(
    name: str, machine: str, node: int
) -> None:
    rows = {row["run"]: row for row in measured(name)}
    page = (ROOT / "docs/results/group-construction.md").read_text(encoding="utf-8")
    for title, measure in (
        (f"CPU time on node {node}", f"task_time_share_node{node}"),
        ("idle while overloaded", "idle_while_overloaded"),
    ):
        shown = " | ".join(
            ", ".join(
                f"{float(rows[f'{machine}_bound-hogs_{variant}_{seed}'][measure]):.0f}"
                for seed in range(1, 6)
            )
            for variant in ("before", "post", "today")
        )
        assert f"| {machine}, {title}, % | {shown} |" in page


def test_the_page_has_the_rates_on_the_kernel_of_the_post() -> None:
    rows = {
        row["run"]: float(row["throughput"]) for row in measured("group-construction-period-table")
    }
    page = (ROOT / "docs/results/group-construction.md").read_text(encoding="utf-8")
    for count in (1, 8, 32, 48):
        cells = []
        for machine in ("mesh-8x4", "ring-4x8"):
            before, post = (
                mean(rows[f"{machine}_threads-{count}_{variant}_{seed}"] for seed in range(1, 7))
                for variant in ("before", "post")
            )
            cells.append(f"{before:,.0f} | {post:,.0f} ({(post / before - 1) * 100:+.1f} %)")
        assert f" % | {' | '.join(cells)} |" in page


@pytest.mark.parametrize(
    ("name", "workload"),
    [("numa-fixes-2018-period", "numa05"), ("numa-fixes-2018-period-numa01", "numa01")],
)
def test_the_page_has_the_runs_of_the_fixes_on_the_kernel_of_the_post(
    name: str, workload: str
) -> None:
    rows = {row["run"]: row for row in measured(name)}
    page = (ROOT / "docs/results/numa-fixes-2018.md").read_text(encoding="utf-8")
    for title, measure, digits in (
        ("`sched_move_numa`", "sched_move_numa", 0),
        ("`sched_swap_numa`", "sched_swap_numa", 0),
        ("moves or swaps that fail", "numa_sticks_failed", 0),
        ("migrations of tasks", "perf_cpu_migrations", 0),
        ("hinting faults", "vmstat_numa_hint_faults", 0),
        ("of them local, %", "numa_local_faults", 1),
        ("pages migrated", "vmstat_numa_pages_migrated", 0),
        ("local share of the lines, %", "memory_local_share", 1),
        ("elapsed time, s", "elapsed_time", 1),
    ):
        shown = " | ".join(
            ", ".join(
                f"{float(rows[f'pairs-4_{workload}_{variant}_{seed}'][measure]):,.{digits}f}"
                for seed in range(1, 7)
            )
            for variant in ("before", "after")
        )
        row = rf"^\| {re.escape(title)} \| [^|]*\| {re.escape(shown)} \| "
        assert len(re.findall(row, page, re.MULTILINE)) == 1, title


def test_the_page_has_the_rates_of_long_streams() -> None:
    rows = {row["run"]: row["triad_rate"] for row in measured("less-busy-nodes-long")}
    page = (ROOT / "docs/results/less-busy-nodes.md").read_text(encoding="utf-8")
    for cell in ("stream", "stream-half"):
        shown = [
            ", ".join(rows[f"full-4_{cell}_{variant}_{seed}"] for seed in (1, 2, 3))
            for variant in ("with", "off")
        ]
        assert f"| {shown[0]} | {shown[1]} |" in page
