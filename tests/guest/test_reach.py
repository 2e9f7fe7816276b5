"""Counting in a guest: nothing of the run changes, and the counts agree with each other."""

from pathlib import Path

from numalab.kernel.kernel_build import BuiltKernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.reach.counting import counting, read_reach
from numalab.reach.kernel_code_artifact import kernel_code
from numalab.reach.line_table import LineTable, TableLine, line_code
from numalab.reach.model import CodeChange, LineState, RunReach
from numalab.run_dir import RunDir
from support.guest_types import Boot, MakeMachine

FAIR = "kernel/sched/fair.c"
EVENTS = ("sched:sched_switch", "sched:sched_wakeup", "sched:sched_migrate_task")
LOAD = "for i in 1 2 3 4 5 6; do (for j in 1 2 3; do :; done) & done; wait"


def lines_of(kernel: BuiltKernel, functions: set[str]) -> LineTable:
    """Return a table of every line in some functions of fair.c."""
    code = kernel_code(find_kernel("debian-6.12"), kernel, [FAIR])
    codes = [item.code for item in code.objects]
    lines = []
    for place in sorted({place for own in codes for place in own.places()}):
        own_code = line_code(place, codes)
        if place[0] == FAIR and own_code and functions & set(own_code.functions):
            lines.append(
                TableLine(FAIR, place[1], "added", "", own_code, state=LineState.NOT_REACHED)
            )
    change = CodeChange.LINES
    return LineTable("x", kernel.spec_name, "patched", change, tuple(lines), (), code.jiffies, 250)


def most_executions(reach: RunReach, function: str) -> int:
    """Return the count of the most frequent line that only this function has."""
    return max(line.executions for line in reach.lines if line.functions == (function,))


def test_counting_does_not_change_the_run(
    boot: Boot, make_machine: MakeMachine, kernel: BuiltKernel, tmp_path: Path
) -> None:
    machine = make_machine("ring-2")
    _, plain = boot("sh", "-c", LOAD, machine=machine, events=EVENTS)
    table = lines_of(kernel, {"place_entity", "update_curr", "task_numa_find_cpu"})
    with counting(machine, table, RunDir(tmp_path / "reach")) as counted:
        _, with_plugin = boot("sh", "-c", LOAD, machine=counted, events=EVENTS)
    assert with_plugin.trace.read_bytes() == plain.trace.read_bytes()
    assert with_plugin.schedstat_after.read_bytes() == plain.schedstat_after.read_bytes()
    reach = read_reach(RunDir(tmp_path / "reach"))
    assert reach is not None
    assert most_executions(reach, "place_entity") > 100
    assert most_executions(reach, "task_numa_find_cpu") == 0  # no task has memory on two nodes
    hot = max(reach.lines, key=lambda line: line.executions)
    assert hot.cpus == tuple(range(machine.topology.cpu_count))
    ways = [(branch.taken, branch.not_taken) for line in reach.lines for branch in line.branches]
    assert any(taken and other for taken, other in ways)


def test_first_statements_run_as_often_as_their_function(
    boot: Boot, make_machine: MakeMachine, kernel: BuiltKernel, tmp_path: Path
) -> None:
    """gcc moves copies of registers into later branches; their lines ran all the same."""
    function = "dequeue_entities"
    table = lines_of(kernel, {function})
    machine = make_machine("ring-2")
    with counting(machine, table, RunDir(tmp_path / "reach")) as counted:
        boot("sh", "-c", LOAD, machine=counted, events=EVENTS)
    reach = read_reach(RunDir(tmp_path / "reach"))
    assert reach is not None
    first = [line for line in reach.lines if line.functions == (function,)][:8]
    assert len(first) == 8
    assert min(line.executions for line in first) > 100
    assert len({line.executions for line in first}) == 1
