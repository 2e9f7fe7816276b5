"""The experiment of a patch is an ordinary study of standard loads."""

from dataclasses import replace
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.kernel.patched_kernel import find_kernel
from numalab.patch.standard import (
    BASELINE,
    LOADS,
    MACHINES,
    PATCHED,
    Experiment,
    own_settings,
    plan_experiment,
)
from numalab.source.changes import Change, ChangedLine, FileChange


def experiment(**changes: object) -> Experiment:
    """Return an experiment of two kernels of the lab."""
    base, other = (find_kernel(name) for name in ("debian-6.12", "debian-6.12-undo-slow-scan"))
    return replace(Experiment("slow-scan", base, other), **changes)  # type: ignore[arg-type]


def test_every_load_fits_every_machine() -> None:
    plan = plan_experiment(experiment(), Path("x.toml"))
    assert len(plan.cells) == len(MACHINES) * len(LOADS)
    assert plan.remarks == ()
    assert {run.variant for run in plan.runs} == {BASELINE, PATCHED}


@pytest.mark.parametrize("key", ["machines", "loads"])
def test_what_is_named_twice_is_refused(key: str) -> None:
    names = {"machines": "ring-4", "loads": "hogs"}
    with pytest.raises(UserError, match="is named twice"):
        plan_experiment(experiment(**{key: [names[key]] * 2}), Path("x.toml"))


def test_loads_start_from_a_state_that_the_seed_decides() -> None:
    plan = plan_experiment(experiment(), Path("x.toml"))
    for bound in plan.workloads.values():
        assert bound.argv[:2] == ("/job/files/numalab-shake", "/job/files/hunt")
        assert {path.name for path in bound.programs} == {"hunt.c", "numalab-shake.c"}


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("numa_balancing_scan_delay", "hunt.c sets scan_delay for its loads: another default has"),
        ("numa_balancing_scan_size", None),
        ("sched_base_slice", None),
    ],
)
def test_a_default_that_the_loads_overwrite_is_named(name: str, remark: str | None) -> None:
    line = ChangedLine(9, f"unsigned int sysctl_{name} = 500;")
    change = FileChange("f.c", "f.c", "", "", (Change(9, 9, (), (line,)),))
    plan = plan_experiment(experiment(), Path("x.toml"))
    remarks = list(own_settings([change], plan.workloads.values()))
    assert [text.startswith(remark or "") for text in remarks] == [True] * bool(remark)


def test_hogs_leave_a_quarter_of_the_cpus_idle() -> None:
    plan = plan_experiment(experiment(machines=["ring-4"], loads=["hogs"]), Path("x.toml"))
    (bound,) = plan.workloads.values()
    assert bound.argv[-1] == "time ms=2000;hog n=6 start=0-1 cpus=0-7"


def test_workload_that_does_not_fit_one_machine_is_left_out_there() -> None:
    machines = ["ring-4", "full-2"]
    plan = plan_experiment(experiment(machines=machines, loads=["bound-hogs"]), Path("x.toml"))
    assert [cell.topology for cell in plan.cells] == ["ring-4"]
    assert {run.topology for run in plan.runs} == {"ring-4"}
    (remark,) = plan.remarks
    assert str(remark).startswith("left out: full-2, bound-hogs: node 3 is not there")


def test_workload_that_fits_no_machine_is_refused() -> None:
    with pytest.raises(UserError, match="node 3 is not there"):
        plan_experiment(experiment(machines=["full-2"], loads=["bound-hogs"]), Path("x.toml"))
