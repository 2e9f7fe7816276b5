"""`numalab compare`: two results of one study, made from the committed example."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from numalab.campaign.task import describe_memory
from numalab.cli.results.compare import command
from numalab.errors import UserError
from numalab.places import project_dir
from numalab.results.compare import CellVersus, compare_results
from numalab.results.layout import Results
from numalab.statistics.comparison import TOO_FEW
from numalab.topology.load import load_topology
from support.one_command import invoke
from support.unfinished_results import copy_with_cells, leave, planned_runs

EXAMPLE = project_dir() / "reports" / "examples" / "group-construction"
BEFORE, AFTER = "ring-4_bound-hogs_before", "ring-4_bound-hogs_after"
Json = dict[str, Any]
SCHEDULER = {"name": "simple", "origin": "kernel", "version": "", "arguments": [], "files": {}}
EMULATOR = {
    "name": "qemu",
    "version": "10",
    "source": "qemu=10",
    "series": {"name": "x", "digest": "d", "patches": []},
    "compiler": "gcc",
    "digest": "d",
    "sha256": "e" * 64,
}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "other"))


def edit(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")


def edit_runs(results: Path, change: Callable[[Json], None], variant: str = "") -> None:
    for path in results.glob(f"runs/*_{variant}*/manifest.json"):
        edit(path, change)


def set_measure(results: Path, cell: str, measure: str, values: list[float | None]) -> None:
    for seed, value in enumerate(values, 1):

        def put(measures: list[Json], value: float | None = value) -> None:
            (stored,) = (entry for entry in measures if entry["name"] == measure)
            stored["value"] = value

        edit(results / "runs" / f"{cell}_{seed}" / "measures.json", put)


def numalab(*words: object) -> Result:
    return invoke(command, *words)


def cells(other: Path) -> dict[str, CellVersus]:
    return {cell.cell: cell for cell in compare_results(Results(EXAMPLE), Results(other)).cells}


def outcome(cell: CellVersus, measure: str) -> tuple[str, str]:
    (comparison,) = (row.comparison for row in cell.measures if row.measure == measure)
    return comparison.outcome, comparison.verdict


def unmeasured(cell: CellVersus) -> set[str]:
    """Name the measures that no run of either side has: there is nothing to compare."""
    sides = ((row.measure, row.comparison) for row in cell.measures)
    return {
        name for name, comparison in sides if comparison.before is None and comparison.after is None
    }


def incomparable(cell: CellVersus) -> set[str]:
    return {m.measure for m in cell.measures if m.comparison.outcome == "not comparable"}


def test_results_are_no_different_from_themselves() -> None:
    done = numalab(EXAMPLE, EXAMPLE, "--fail-on", "worse")
    assert done.exit_code == 0
    assert f"{AFTER}: the same kernel in both" in done.stdout
    cell = next(c for c in compare_results(*[Results(Path(EXAMPLE))] * 2).cells if c.cell == AFTER)
    counts = cell.count("no difference shown"), len(unmeasured(cell))
    assert sum(counts) == len(cell.measures)
    same = f"{counts[0]} of {len(cell.measures)} measures: no difference shown"
    assert f"{same}; {counts[1]} not comparable: neither result has a value" in done.stdout
    document = json.loads(numalab(EXAMPLE, EXAMPLE, "--json").stdout)
    assert (document["worse"], document["whole"]) == (False, True)
    outcomes = {m["comparison"]["outcome"] for c in document["cells"] for m in c["measures"]}
    assert outcomes == {"no difference shown", "not comparable"}
    for cell in compare_results(Results(Path(EXAMPLE)), Results(Path(EXAMPLE))).cells:
        assert incomparable(cell) == unmeasured(cell)


def test_a_worse_measure_fails_only_when_asked(other: Path) -> None:
    set_measure(other, AFTER, "idle_while_overloaded", [50.0, 51.0, 52.0])
    assert outcome(cells(other)[AFTER], "idle_while_overloaded")[0] == "worse"
    assert numalab(EXAMPLE, other).exit_code == 0
    done = numalab(EXAMPLE, other, "--fail-on", "worse")
    assert done.exit_code == 1
    assert "idle_while_overloaded [%]" in done.stdout
    assert "Welch's t, p" in done.stdout
    # The other way round it is better, which fails nothing.
    back = numalab(other, EXAMPLE, "--fail-on", "worse")
    assert back.exit_code == 0
    assert "better" in back.stdout


def test_a_measure_without_a_better_direction_is_only_different(other: Path) -> None:
    set_measure(other, AFTER, "task_migrations", [9000, 9001, 9002])
    assert outcome(cells(other)[AFTER], "task_migrations")[0] == "different"
    assert numalab(EXAMPLE, other, "--fail-on", "worse").exit_code == 0


def test_another_kernel_is_what_is_compared(other: Path) -> None:
    edit_runs(other, lambda run: run["kernel"].update(release="9.9.9", bzimage_sha256="0"), "after")
    cell = cells(other)[AFTER]
    assert cell.differs == ()
    assert cell.kernels[1] == "9.9.9"
    assert not cell.same_kernel
    assert "-> 9.9.9" in numalab(EXAMPLE, other).stdout


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("study", lambda run: run.update(study="another")),
        ("mode", lambda run: run.update(mode="tcg")),
        ("tunables", lambda run: run.update(tunables={"kernel.numa_balancing": 0})),
        ("command", lambda run: run["workload"]["argv"].append("9")),
        ("tasks", lambda run: run["workload"].update(tasks=["x"])),
        ("parameters", lambda run: run["workload"]["parameters"].update(x=1)),
        ("programs", lambda run: run["workload"].update(files={"hogs": "0" * 64})),
        ("pages", lambda run: run.update(pages="2M")),
        ("time of an instruction", lambda run: run.update(icount_shift=5)),
        ("allowed CPUs", lambda run: run["workload"].update(allowed_cpus=[1])),
        ("image", lambda run: run["image"].update(digest="0123456789abcdef")),
        ("QEMU", lambda run: run["versions"].update(qemu="99.0")),
        ("scheduler", lambda run: run.update(scheduler=SCHEDULER)),
        ("emulator", lambda run: run.update(emulator=EMULATOR)),
    ],
)
def test_anything_else_that_differs_is_named(
    other: Path, name: str, change: Callable[[Json], None]
) -> None:
    edit_runs(other, change)
    for cell in cells(other).values():
        assert [text.partition(":")[0] for text in cell.differs] == [name]
        assert cell.count("not comparable") == len(cell.measures)
    done = numalab(EXAMPLE, other, "--fail-on", "worse")
    assert done.exit_code == 1
    assert f"  {name}: " in done.stdout
    assert numalab(EXAMPLE, other).exit_code == 0


def test_what_a_result_is_without_is_told(other: Path) -> None:
    edit_runs(other, lambda run: run.update(scheduler=SCHEDULER))
    (text,) = cells(other)[AFTER].differs
    assert text.startswith("scheduler: none, then {")


@pytest.mark.parametrize(("which", "place"), [("first", 0), ("second", 1)])
def test_runs_of_two_kernels_are_no_repetitions(other: Path, which: str, place: int) -> None:
    (path,) = other.glob(f"runs/{AFTER}_1/manifest.json")
    edit(path, lambda run: run["kernel"].update(bzimage_sha256="0123456789abcdef"))
    sides = [other, EXAMPLE] if place == 0 else [EXAMPLE, other]
    done = numalab(*sides, "--fail-on", "worse")
    assert done.exit_code == 1
    assert f"  kernel: the {which} result has runs of 0123456789ab and " in done.stdout
    versus = {cell.cell: cell for cell in compare_results(*map(Results, sides)).cells}
    assert versus[AFTER].count("not comparable") == len(versus[AFTER].measures)
    assert versus[BEFORE].differs == ()


def test_one_run_that_differs_is_enough(other: Path) -> None:
    path = other / "runs" / f"{AFTER}_2" / "manifest.json"
    edit(path, lambda run: run.update(mode="kvm"))
    assert cells(other)[AFTER].differs == ("mode: icount, then icount or kvm",)
    assert cells(other)[BEFORE].differs == ()


def test_another_machine_of_the_same_name_is_named(other: Path, tmp_path: Path) -> None:
    first = Path(shutil.copytree(EXAMPLE, tmp_path / "first"))
    edit_runs(other, lambda run: run.update(machine={"nodes": 4}))
    edit_runs(first, lambda run: run.update(machine={"nodes": 5}))
    for cell in compare_results(Results(first), Results(other)).cells:
        assert cell.differs == ('machine: {"nodes": 5}, then {"nodes": 4}',)


def test_of_two_objects_only_the_keys_that_differ_are_named(other: Path, tmp_path: Path) -> None:
    first = Path(shutil.copytree(EXAMPLE, tmp_path / "first"))
    memory = describe_memory(load_topology("ring-4")).model_dump(mode="json")
    edit_runs(first, lambda run: run.update(memory=memory))
    edit_runs(other, lambda run: run.update(memory=memory | {"llc_groups": 8}))
    for cell in compare_results(Results(first), Results(other)).cells:
        assert cell.differs == ('memory model: {"llc_groups": 4}, then {"llc_groups": 8}',)


def test_what_was_recorded_must_be_the_same(other: Path) -> None:
    edit(other / "plan.json", lambda plan: plan["file"].update(capture={"sets": ["numa"]}))
    assert all(cell.differs[0].startswith("capture: ") for cell in cells(other).values())


def test_times_on_another_host_are_not_comparable_unless_virtual(
    other: Path, tmp_path: Path
) -> None:
    def as_timing(measures: list[Json]) -> None:
        measures[0]["kind"] = "timing"

    first = Path(shutil.copytree(EXAMPLE, tmp_path / "first"))
    for results in (first, other):
        for path in results.glob("runs/*/measures.json"):
            edit(path, as_timing)
    edit_runs(other, lambda run: run["host"].update(processor="another"))
    virtual = compare_results(Results(first), Results(other)).cells[0]
    assert incomparable(virtual) == unmeasured(virtual)
    for results in (first, other):
        edit_runs(results, lambda run: run.update(mode="kvm"))
    real = compare_results(Results(first), Results(other)).cells[0]
    assert real.differs == ()
    timing = {row.measure for row in real.measures if row.kind == "timing"}
    assert incomparable(real) == unmeasured(real) | timing
    assert "host processor: " in real.measures[0].comparison.verdict


@pytest.mark.parametrize(
    ("what", "value"),
    [("definition", "Something else."), ("direction", "lower"), ("unit", "apples")],
)
def test_a_measure_that_means_something_else_is_not_comparable(
    other: Path, what: str, value: str
) -> None:
    for path in other.glob("runs/*/measures.json"):
        edit(path, lambda measures: measures[0].update({what: value}))
    cell = cells(other)[AFTER]
    assert numalab(other, EXAMPLE, "--fail-on", "worse").exit_code == 0  # it has no direction
    assert cell.measures[0].comparison.verdict.endswith(f"{what}: not the same in all runs")
    assert incomparable(cell) == unmeasured(cell) | {cell.measures[0].measure}


def test_other_metrics_of_the_workload_concern_only_what_its_output_gives(
    other: Path, tmp_path: Path
) -> None:
    before = Path(shutil.copytree(EXAMPLE, tmp_path / "before"))
    for path, digest in ((before, "1" * 32), (other, "2" * 32)):
        for stored in path.glob("runs/*/manifest.json"):
            edit(stored, partial(dict.update, metrics=digest))
    measures = json.loads((other / "runs" / f"{AFTER}_1" / "measures.json").read_text())
    printed = {entry["name"] for entry in measures if entry["source"].startswith("workload: ")}
    for cell in compare_results(Results(before), Results(other)).cells:
        assert cell.differs == ()
        compared = {row.measure for row in cell.measures}
        assert incomparable(cell) == unmeasured(cell) | (printed & compared)
        assert "metrics of the workload: 1" in outcome(cell, "throughput")[1]


def test_a_measure_that_must_not_be_compared_does_not_pass(other: Path) -> None:
    for path in other.glob("runs/*/measures.json"):

        def put(measures: list[Json]) -> None:
            (stored,) = (entry for entry in measures if entry["name"] == "idle_while_overloaded")
            stored["definition"] = "Something else."

        edit(path, put)
    assert numalab(EXAMPLE, other, "--fail-on", "worse").exit_code == 1


def test_other_kernel_parameters_are_named(other: Path) -> None:
    edit(other / "plan.json", lambda plan: plan["file"].update(machine={"cmdline": ["isolcpus=3"]}))
    assert cells(other)[AFTER].differs[0].startswith("kernel parameters: ")


def test_a_variant_that_gave_no_result_does_not_pass(other: Path) -> None:
    for path in other.glob(f"runs/{AFTER}_*"):
        shutil.rmtree(path)
    assert cells(other)[AFTER].differs == ("only the first result has runs of it",)
    assert numalab(EXAMPLE, other, "--fail-on", "worse").exit_code == 1


def test_a_measure_that_got_lost_does_not_pass(other: Path) -> None:
    set_measure(other, AFTER, "idle_while_overloaded", [None, None, None])
    done = numalab(EXAMPLE, other, "--fail-on", "worse")
    assert done.exit_code == 1
    assert "no run of the second result could measure it" in " ".join(done.stdout.split())
    # One without a better direction was never judged.
    set_measure(other, AFTER, "idle_while_overloaded", [1.0, 2.0, 3.0])
    set_measure(other, AFTER, "task_migrations", [None, None, None])
    assert numalab(EXAMPLE, other, "--fail-on", "worse").exit_code == 0


def test_what_is_not_a_result_is_explained(tmp_path: Path, other: Path) -> None:
    with pytest.raises(UserError, match=r"these are no results of a study"):
        numalab(EXAMPLE, tmp_path)
    edit_runs(other, lambda run: run.pop("image"))
    with pytest.raises(UserError, match=r"damaged.*image"):
        numalab(EXAMPLE, other)
    shutil.rmtree(other / "runs")
    with pytest.raises(UserError, match="no run has finished"):
        numalab(other, EXAMPLE)


def test_runs_without_a_result_come_first_and_fail_when_asked(other: Path) -> None:
    leave(other, f"{AFTER}_3", ".failed", status="lost", reason="the guest's kernel panicked\x1b[m")
    shutil.rmtree(other / "runs" / f"{BEFORE}_1")
    versus = compare_results(Results(EXAMPLE), Results(other))
    assert not versus.whole
    assert versus.unfinished[0] == ()
    assert [run.run for run in versus.unfinished[1]] == [f"{BEFORE}_1", f"{AFTER}_3"]
    for before, after in ((EXAMPLE, other), (other, EXAMPLE)):
        done = numalab(before, after)
        assert done.exit_code == 0
        first = done.stdout[: done.stdout.index(f"{BEFORE}: ")].replace("\n", "")
        assert "other: 4 of 6 runs finished" in first
        assert "group-construction: 6 of 6 runs finished" in first
        assert f"run {AFTER}_3 failed: the guest's kernel panicked?[m" in first
        assert f"run {BEFORE}_1 not run" in first
        assert numalab(before, after, "--fail-on", "worse").exit_code == 1
    text = numalab(EXAMPLE, other).stdout
    assert "finished: 3 of 3 runs, then 2 of 3 runs; only in the first: seeds 1" in text
    document = json.loads(numalab(EXAMPLE, other, "--json").stdout)
    assert document["unfinished"][1][1]["text"].startswith("the guest's kernel panicked")


def test_a_cell_that_finished_in_neither_result_is_named(tmp_path: Path) -> None:
    paths = [copy_with_cells(tmp_path / name, ["hogs"]) for name in ("first", "second")]
    for path in paths:
        for run in planned_runs(path)[2:]:
            leave(path, run, ".failed", status="failed", reason="the guest did not boot")
    done = numalab(*paths)
    first = " ".join(done.stdout.split())
    assert "2 runs failed: the guest did not boot" in first
    assert "not compared, no run of it finished: ring-4_hogs_before; ring-4_hogs_after" in first
    assert numalab(*paths, "--fail-on", "worse").exit_code == 1


@pytest.mark.parametrize(("planned", "some"), [(4, False), (3, True)])
def test_runs_that_a_budget_left_out_are_not_missing(
    tmp_path: Path, planned: int, some: bool
) -> None:
    """But where another end left more, nothing says which they are."""
    paths = [copy_with_cells(tmp_path / name, ["hogs"]) for name in ("first", "second")]
    remark = {"kind": "budget", "chosen": 2, "planned": planned, "seconds": 60.0}
    for path in paths:
        edit(path / "plan.json", lambda plan: plan.update(remarks=[remark]))
    text = numalab(*paths).stdout
    assert [word in text for word in ("not run", "not compared")] == [some] * 2
    whole = copy_with_cells(tmp_path / "whole", [])
    assert any(compare_results(Results(paths[0]), Results(whole)).unfinished) == some


def test_more_repetitions_in_one_result_are_said(tmp_path: Path) -> None:
    fewer = copy_with_cells(tmp_path / "fewer", [])
    done = numalab(fewer, EXAMPLE)
    assert "finished: 1 of 1 run, then 3 of 3 runs; only in the second: seeds 2; 3" in done.stdout
    assert "not run" not in done.stdout


def test_too_few_runs_to_show_a_difference_do_not_pass(other: Path) -> None:
    """Two runs show nothing, whatever their values: that is no answer."""
    set_measure(other, AFTER, "idle_while_overloaded", [99.0, 99.5, 99.9])

    def without_the_third(plan: Any) -> None:
        plan["runs"] = [run for run in plan["runs"] if run["seed"] < 3]

    edit(other / "plan.json", without_the_third)
    for path in other.glob("runs/*_3"):
        shutil.rmtree(path)
    for sides in ((EXAMPLE, other), (other, EXAMPLE)):
        versus = compare_results(*map(Results, sides))
        assert (versus.worse, versus.whole, versus.unfinished) == (False, False, ((), ()))
        (cell,) = (cell for cell in versus.cells if cell.cell == AFTER)
        assert outcome(cell, "idle_while_overloaded") == ("not comparable", TOO_FEW)
        done = numalab(*sides, "--fail-on", "worse")
        assert done.exit_code == 1
        assert f"measures: {TOO_FEW}" in " ".join(done.stdout.split())
        assert "0 of " not in done.stdout
        directed = [row.comparison for row in cell.measures if row.direction != "none"]
        assert all(row.p_value is None for row in directed)


def test_a_cell_with_too_few_runs_counts_for_no_correction(other: Path, tmp_path: Path) -> None:
    """Its tests could show nothing, and would hide what another cell shows."""

    def without_the_third_before(plan: Any) -> None:
        plan["runs"] = [
            run for run in plan["runs"] if (run["variant"], run["seed"]) != ("before", 3)
        ]

    first = Path(shutil.copytree(EXAMPLE, tmp_path / "first"))
    for path in (first, other):
        edit(path / "plan.json", without_the_third_before)
        (path / "runs" / f"{BEFORE}_3").rename(tmp_path / f"{path.name}_lost")
    set_measure(other, AFTER, "idle_while_overloaded", [13.1, 13.2, 13.4])
    versus = compare_results(Results(first), Results(other))
    (cell,) = (cell for cell in versus.cells if cell.cell == AFTER)
    tested = [row for row in cell.measures if row.comparison.p_value is not None]
    (worse,) = (row for row in tested if row.measure == "idle_while_overloaded")
    assert worse.comparison.family == sum(row.direction != "none" for row in tested)
    assert worse.comparison.verdict.startswith(
        "all 3 runs of the second result are above all 3 of the first result"
    )


def test_500_failed_cells_leave_room_for_what_differs(tmp_path: Path) -> None:
    path = copy_with_cells(tmp_path / "many", [f"hogs-{number}" for number in range(500)])
    for place, run in enumerate(planned_runs(path)[2:]):
        leave(path, run, ".failed", status="failed", reason="abcdefghik"[place % 10] * 300)
    lines = numalab(path, path).stdout.splitlines()
    assert any(line.startswith(f"{BEFORE}: ") for line in lines[:25])
    assert len(lines) < 60


def test_a_run_whose_manifest_says_failed_is_not_compared(other: Path) -> None:
    edit(other / "runs" / f"{AFTER}_1" / "manifest.json", lambda run: run.update(status="failed"))
    assert cells(other)[AFTER].runs[1].finished == (2, 3)
    assert cells(other)[AFTER].runs[1].planned == (1, 2, 3)
