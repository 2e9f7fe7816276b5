"""The choice of cells for a patch, and what unreached lines need."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.reach.kernel_code_artifact import KernelCode
from numalab.reach.line_table import LineTable, TableLine
from numalab.reach.lines import Jump, LineCode
from numalab.reach.model import CodeChange, LineState
from numalab.reach.reach_map import (
    UNKNOWN,
    CellReach,
    MissedLine,
    branch_table,
    choice_lines,
    coverage,
    feature_text,
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


def test_changed_lines_are_counted_apart_and_files_outside_of_the_map_are_named() -> None:
    changed, beside = table(1, 2), table(3, 4, function="")
    rows = tuple(replace(line, kind="context") for line in beside.lines)
    outside = table(9, file="kernel/time/timer.c").lines
    choice = select_cells(
        (cell("a", 1, 3),), replace(changed, lines=changed.lines + rows + outside)
    )
    assert list(choice_lines(choice)) == [
        "1 of 2 changed lines and 1 of 2 lines beside changes are reached by 1 cell",
        "  ring-4, a",
        "most executions: ring-4, a",
        f"not reached: {FAIR}:2 pick()",
        f"not reached: {FAIR}:4",
        "not in the map: kernel/time/timer.c",
    ]
    choice = select_cells((cell("a", 1),), replace(changed, lines=outside))
    assert next(choice_lines(choice)) == "0 of 0 changed lines are reached by 0 cells"


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


@pytest.mark.parametrize(
    ("place", "feature"),
    [
        ("kernel/sched/debug.c:numa_reset_write", "a write to its file in debugfs"),
        ("kernel/sched/debug.c:sched_show_numa", "a reader of its file"),
        ("kernel/sched/debug.c:dirty_sched_domain_sysctl", UNKNOWN),
        ("kernel/sched/core.c:sysctl_numa_balancing", "a reader or writer of its sysctl"),
        ("kernel/sched/rt.c:sched_rt_handler", "a reader or writer of its sysctl"),
        ("mm/memory.c:numa_migrate_check", "tasks with memory on several nodes (NUMA balancing)"),
    ],
)
def test_a_file_operation_needs_its_reader_or_writer(place: str, feature: str) -> None:
    file, _, function = place.partition(":")
    assert needed_feature(file, function) == feature


def test_a_feature_is_a_guess() -> None:
    assert feature_text("uclamp") == "perhaps needs uclamp"
    assert feature_text(UNKNOWN) == ""


def test_coverage_counts_lines_of_all_cells() -> None:
    assert coverage((cell("a", 1, 2), cell("b", 2)), table(1, 2, 3)) == {FAIR: (2, 3)}


@dataclass
class KnownLines:
    """The code of an object whose lines have a jump each, or none."""

    lines: dict[tuple[str, int], bool] = field(default_factory=dict)

    def places(self) -> list[tuple[str, int]]:
        return list(self.lines)

    def line(self, place: tuple[str, int]) -> LineCode | None:
        if place not in self.lines:
            return None
        jump = Jump(place[1], place[1] + 2, place[1] + 9, False, place[1] + 1, 0)
        return LineCode((((place[1],),),), (jump,) if self.lines[place] else (), ("pick",))


def test_the_branches_of_the_scheduler_are_counted_and_no_other_lines() -> None:
    fair = KnownLines({(FAIR, 8): True, (FAIR, 3): True, (FAIR, 4): False})
    deadline = KnownLines({("include/linux/list.h", 8): True, (DEADLINE, 5): True, (FAIR, 3): True})
    objects = [SimpleNamespace(code=code, reason="") for code in (fair, deadline)]
    objects.append(SimpleNamespace(code=KnownLines({(FAIR, 99): True}), reason="unknown"))
    code = cast(KernelCode, SimpleNamespace(objects=objects, jiffies=4096))
    counted = branch_table("debian-6.12", code, 250)
    assert [(line.file, line.number) for line in counted.lines] == [
        (DEADLINE, 5),
        (FAIR, 3),
        (FAIR, 8),
    ]
    assert len(list(counted.jumps)) == 4, "a line of two objects has the jumps of both"
    assert (counted.jiffies, counted.hz) == (4096, 250)
