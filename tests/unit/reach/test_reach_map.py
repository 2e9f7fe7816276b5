"""The choice of cells for a patch, and what unreached lines need."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.reach.line_table import LineTable, TableLine
from numalab.reach.lines import LineCode
from numalab.reach.model import CodeChange, LineState
from numalab.reach.reach_map import (
    UNKNOWN,
    CellReach,
    MissedLine,
    coverage,
    needed_feature,
    select_cells,
)

FAIR, DEADLINE = "kernel/sched/fair.c", "kernel/sched/deadline.c"


def cell(name: str, *lines: int, seconds: float = 1.0, count: int = 1) -> CellReach:
    counts = {FAIR: dict.fromkeys(lines, count)}
    return CellReach(topology="ring-4", workload=name, seconds=seconds, lines=counts)


def table(*lines: int, file: str = FAIR, function: str = "pick") -> LineTable:
    code = LineCode((((1,),),), (), (function,))
    rows = tuple(
        TableLine(file, line, "removed", "", code, state=LineState.NOT_REACHED) for line in lines
    )
    return LineTable("x", "k", "baseline", CodeChange.LINES, rows, (), 0, 250)


def test_the_smallest_set_of_cells_reaches_every_line() -> None:
    cells = (cell("a", 1, 2), cell("b", 2, 3), cell("c", 1, 2, 3), cell("d", 4, count=90))
    choice = select_cells(cells, table(1, 2, 3, 4, 5))
    assert choice.cells == ("ring-4, c", "ring-4, d")
    assert choice.most[0] == "ring-4, d"
    assert choice.reached == 4
    assert [line.number for line in choice.missed] == [5]


def test_of_equal_cells_the_faster_one_is_chosen() -> None:
    choice = select_cells((cell("slow", 1, seconds=9), cell("fast", 1)), table(1))
    assert choice.cells == ("ring-4, fast",)


@given(st.lists(st.sets(st.integers(1, 12)), min_size=1, max_size=6), st.sets(st.integers(1, 12)))
def test_the_chosen_cells_reach_what_all_cells_reach(
    reached: list[set[int]], wanted: set[int]
) -> None:
    cells = tuple(cell(str(number), *lines) for number, lines in enumerate(reached))
    choice = select_cells(cells, table(*wanted))
    chosen = [own for own in cells if own.label in choice.cells]
    union = {line for own in chosen for line in own.lines[FAIR]}
    assert wanted & union == wanted & set().union(*reached)
    assert len(choice.missed) == len(wanted - union)


def test_a_missed_line_has_the_feature_that_it_needs() -> None:
    choice = select_cells((cell("a", 1),), table(7, file=DEADLINE, function="task_tick_dl"))
    assert choice.missed == (MissedLine(DEADLINE, 7, "task_tick_dl", "deadline tasks"),)
    assert choice.cells == choice.most == ()


@pytest.mark.parametrize(
    ("function", "feature"),
    [
        ("throttle_cfs_rq", "a cgroup with a CPU limit (cpu.max)"),
        ("select_idle_smt", "SMT, or CPUs of different capacity"),
        ("uclamp_rq_inc", "uclamp"),
        ("sched_cpu_dying", "CPU hotplug"),
        ("task_numa_migrate", "tasks with memory on several nodes (NUMA balancing)"),
        ("pick_eevdf", UNKNOWN),
    ],
)
def test_needed_feature(function: str, feature: str) -> None:
    assert needed_feature(FAIR, function) == feature


def test_coverage_counts_lines_of_all_cells() -> None:
    assert coverage((cell("a", 1, 2), cell("b", 2)), table(1, 2, 3)) == {FAIR: (2, 3)}
