"""What a patch reads decides what is drawn more often."""

import random
from dataclasses import replace

import pytest

from numalab.hunt.case import Case, machine_of
from numalab.hunt.direction.hints import HINTS, Bias, bias_of
from numalab.hunt.generate.cases import draw_case
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.loads.kinds import BEYOND, FAR, MASKS, load_kinds, load_traits, machine_traits
from numalab.hunt.loads.load_text import parse_loads
from numalab.source.changes import Change, ChangedLine, FileChange

TEXT = """\
static int decide(struct task_struct *p, int cpu)
{
	if (%s)
		return node_distance(0, 1);
	return 0;
}
"""
CALLER = """\
int sched_cpu_activate(unsigned int cpu)
{
	return middle(cpu);
}
static int middle(unsigned int cpu)
{
	return decide(current, cpu);
}
int elsewhere(void)
{
	return 0;
}
"""


def change(condition: str, number: int = 3) -> FileChange:
    before, after = TEXT % "cpu", TEXT % condition
    lines = [text.split("\n")[number - 1] for text in (before, after)]
    part = Change(
        number, number, (ChangedLine(number, lines[0]),), (ChangedLine(number, lines[1]),)
    )
    return FileChange("a.c", "a.c", before, after, (part,))


def test_changed_lines_have_the_full_weight_and_the_rest_of_the_function_its_root() -> None:
    bias = bias_of([change("idle_core(cpu)")])
    assert bias.machines == {"SMT": 4, FAR: pytest.approx(3**0.5)}
    assert bias.loads == {"waker": 3, "sleeper": 2}


def test_names_of_changed_functions_and_files_have_more_than_the_full_weight() -> None:
    in_function = replace(
        change("cpu"), before=TEXT.replace("decide", "task_numa_find_cpu") % "1",
        after=TEXT.replace("decide", "task_numa_find_cpu") % "cpu",
    )  # fmt: skip
    assert bias_of([in_function]).loads["memory"] > 3
    assert bias_of([replace(change("1"), new="kernel/sched/cpupri.c")]).loads == {
        "real-time tasks": pytest.approx(4**1.6)
    }
    assert bias_of([replace(change("1"), new="kernel/sched/topology.c")]).machines[FAR] > 3
    deadline = bias_of([replace(change("1"), new="kernel/sched/deadline.c")]).loads
    assert deadline["deadline tasks"] > 4
    assert "slices of their own" not in deadline


def test_the_time_that_a_task_ran_is_no_program_that_it_executes() -> None:
    executes = "children that execute a program"
    assert executes not in bias_of([change("se->sum_exec_runtime > se->exec_start")]).loads
    assert bias_of([change("sched_exec()")]).loads[executes] == 5
    assert bias_of([change("wake_flags & WF_EXEC")]).loads[executes] == 5


def test_callers_of_a_changed_function_count_through_another_function() -> None:
    hotplug = "a CPU that goes and comes back"
    assert hotplug not in bias_of([change("1")]).loads
    assert bias_of([change("1")], [CALLER]).loads[hotplug] == pytest.approx(5**0.5)


def test_a_change_outside_of_functions_has_no_weights() -> None:
    text = "int value = 1;\n"
    part = Change(1, 1, (ChangedLine(1, text),), ())
    assert bias_of([FileChange("a.c", "a.c", text, "", (part,))]) == Bias({}, {})


def test_machines_beyond_the_reclaim_distance_have_a_class() -> None:
    def traits(far: int) -> frozenset[str]:
        machine = machine_of(
            f"summary = 'x'\nnodes = 2\ncpus = [2, 1]\nmemory_mib = 512\n"
            f"matrix = [[10, {far}], [{far}, 10]]\n"
        )
        assert machine is not None
        return machine_traits(machine)

    assert BEYOND in traits(31)
    assert not {BEYOND, FAR} & traits(30)


def test_weights_of_all_classes_are_multiplied() -> None:
    machine = machine_of("summary = 'x'\nnodes = 2\ncpus = [2, 1]\nmemory_mib = 512\n"
                         "matrix = [[10, 20], [20, 10]]\n")  # fmt: skip
    assert machine is not None
    bias = Bias({"uneven nodes": 2.0, "SMT": 8.0}, {MASKS: 3.0, "hog": 2.0})
    part, whole = parse_loads("time ms=500;hog n=1 cpus=0|time ms=500;hog n=1 cpus=0-2")
    assert bias.of_machine(machine) == 2
    assert (bias.of_load(machine, part), bias.of_load(machine, whole)) == (6, 2)
    assert MASKS not in load_traits(machine, whole)


def test_each_class_of_a_hint_is_drawn() -> None:
    """A class that was renamed in the generator would have no effect."""
    cases: list[Case] = [draw_case(5, number) for number in range(80)]
    rng = random.Random(5)
    machines = [draw_machine(rng, smt=place % 4 == 0) for place in range(80)]
    of_machines = {name for machine in machines for name in machine_traits(machine)}
    of_loads = {name for case in cases for load in case.loads for name in load_kinds(load)}
    assert {name for hint in HINTS for name in hint.machines} <= of_machines
    assert {name for hint in HINTS for name in hint.loads} <= {*of_loads, MASKS}
