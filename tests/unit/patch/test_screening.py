"""Which cells a patch's experiment runs: by reach, by time, spread over machines and loads."""

from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.patch.experiment import ExperimentOutcome
from numalab.patch.screening import (
    choose_cells,
    fitting,
    lacks_seeds,
    ran_equally_often,
    sort_cells,
    spread,
)
from numalab.patch.standard import BASELINE, LOADS, MACHINES, PATCHED
from numalab.reach.model import CodeChange, FunctionReach, LineReach, LineState, RunReach
from numalab.results.plan import Cell, planned_run
from numalab.run_dir import RunDir
from support.stored_run import stored_manifest, stored_run

CELLS = [Cell(machine, load) for machine in MACHINES for load in LOADS]
A, B, C = CELLS[:3]


def reach(executions: int, *, state: LineState | None = None, data: bool = False) -> RunReach:
    """Return the reach of a patch that adds one line."""
    state = state or (LineState.REACHED if executions else LineState.NOT_REACHED)
    line = LineReach(
        file="f.c", number=1, kind="added", text="x", state=state, executions=executions
    )
    return RunReach(
        series="s", kernel="k", side="patched", code=CodeChange.LINES, data=data, lines=(line,)
    )


BASE = RunReach(series="s", kernel="b", side="baseline", code=CodeChange.LINES)  # has none of it


def test_cells_with_most_executions_come_first_and_others_are_left_out() -> None:
    counted = {A: [BASE, reach(2)], B: [BASE, reach(0)], C: [BASE, reach(0), reach(9)]}
    choice = sort_cells(counted, [A, B, C])
    assert (choice.reached, choice.unreached) == ((C, A), (B,))


def test_a_cell_without_a_run_of_the_patched_kernel_is_not_unreached() -> None:
    choice = sort_cells({A: [BASE, reach(0)], B: [BASE]}, [A, B])
    assert (choice.reached, choice.unreached) == ((B,), (A,))


@pytest.mark.parametrize(
    "counted",
    [
        {},
        {A: [reach(0, data=True)], B: [reach(5, data=True)], C: [reach(0, data=True)]},
    ],
)
def test_all_cells_stay_where_reach_cannot_tell(counted: dict[Cell, list[RunReach]]) -> None:
    choice = sort_cells(counted, [A, B, C])
    assert (choice.reached, choice.unreached) == ((A, B, C), ())


def test_functions_without_changed_lines_count_and_unknown_lines_stay() -> None:
    function = FunctionReach(name="f", file="f.c", executions=3)
    macro = RunReach(
        series="s", kernel="k", side="patched", code=CodeChange.FUNCTIONS, functions=(function,)
    )
    counted = {A: [BASE, reach(0)], B: [macro], C: [reach(0, state=LineState.UNKNOWN)]}
    assert sort_cells(counted, [A, B, C]).reached == (B, C)


def test_lines_of_the_boot_run_equally_often_in_each_run() -> None:
    assert ran_equally_often([(A, BASE), (A, reach(4)), (A, reach(4)), (B, reach(4))])
    assert not ran_equally_often([(A, reach(4)), (A, reach(5))])
    assert not ran_equally_often([(A, reach(4))]), "one run tells nothing"
    assert not ran_equally_often([(A, reach(0)), (A, reach(0))])
    users = [
        reach(4).model_copy(
            update={"functions": (FunctionReach(name="f", file="f.c", executions=count),)}
        )
        for count in (8, 9)
    ]
    assert not ran_equally_often([(A, run) for run in users]), "functions that use a macro differ"


def test_a_first_part_of_the_cells_has_all_machines_and_loads() -> None:
    cells = spread(CELLS)
    assert sorted(cells, key=str) == sorted(CELLS, key=str)
    part = cells[: len(LOADS)]
    assert {cell.label for cell in part} == set(LOADS)
    assert {cell.topology for cell in part} == set(MACHINES)


@pytest.mark.parametrize(("seconds", "count"), [(0.0, 0), (1.0, 0), (11.0, 1), (23.0, 2), (99, 3)])
def test_as_many_cells_run_as_fit(seconds: float, count: int) -> None:
    assert fitting([10.0, 10.0, 10.0], seconds) == count


def test_cells_that_lack_time_for_their_seeds_are_told_from_those_that_lost_runs() -> None:
    runs = [planned_run(cell, side, seed) for cell in (A, B) for side in "bp" for seed in (1, 2)]
    every = {run.id for run in runs}
    last = planned_run(A, "p", 2).id
    assert not lacks_seeds(runs, [A, B], every), "finished, or lost"
    assert lacks_seeds(runs, [A, B], every - {last})
    assert not lacks_seeds(runs, [B], every - {last}), "no changed code ran in A"


def test_a_cell_is_compared_with_three_runs_of_both_kernels() -> None:
    cell = Cell("ring-2", "w")
    runs = [
        stored_run(stored_manifest(run=f"ring-2_w_{side}_{seed}", variant=side, seed=seed), 1.0)
        for side in (BASELINE, PATCHED)
        for seed in (1, 2, 3)
    ]
    whole = ExperimentOutcome(tuple(runs), 3, (), (), time_over=False)
    short = ExperimentOutcome(tuple(runs[1:]), 3, (), (), time_over=False)
    assert (whole.compared([cell]), short.compared([cell])) == ((cell,), ())


def test_damaged_counts_of_a_run_are_not_those_of_a_run_without(tmp_path: Path) -> None:
    directory = RunDir(tmp_path)
    assert choose_cells([(A, directory)], [A]).reached == (A,)
    directory.reach.write_text('{"series": "x"')
    with pytest.raises(UserError, match=r"reach\.json: a file of these results is damaged"):
        choose_cells([(A, directory)], [A])
