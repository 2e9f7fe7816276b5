"""The matrix of a study: cells, what is left out of it, presets, and claims between variants."""

import json
from pathlib import Path
from typing import Any

import pytest

from numalab.errors import UserError
from numalab.guest.witness import Timing
from numalab.reporting.verdicts import judge
from numalab.results.cell import Cell
from numalab.results.reader import StoredRun
from numalab.study.claims import Claim
from numalab.study.model import Study, load_study, study_table
from numalab.study.plan import plan_study
from support.stored_run import stored_manifest, stored_run

STUDY = """
question = "?"
topologies = ["ring-4", "mesh-8"]
seeds = [1, 2]
{more}
[variants.before]
kernel = "debian-6.12-undo-group-construction"
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
label = "few"
[[workloads]]
name = "bound-hogs"
label = "many"
parameters = {{ hogs_per_cpu = 8 }}
[[claims]]
text = "hogs reach node 5"
topology = "mesh-8"
variant = "after"
measure = "task_time_share_node5"
above = 0
[[claims]]
text = "many hogs move more often"
workload = "many"
from = "before"
to = "after"
measure = "task_migrations"
direction = "higher"
published = "+14%"
[presets.quick]
topologies = ["ring-4"]
workloads = ["many"]
seeds = [7]
parameters = {{ many = {{ seconds = 1 }} }}
"""


def write(tmp_path: Path, more: str = "", old: str = "", new: str = "") -> Path:
    path = tmp_path / "tried.toml"
    text = STUDY.format(more=more)
    path.write_text(text.replace(old, new, 1) if old else text)
    return path


def test_a_seed_goes_through_all_cells_with_their_variants_side_by_side(tmp_path: Path) -> None:
    plan = plan_study(write(tmp_path))
    assert [run.id for run in plan.runs[:5]] == [
        "ring-4_few_before_1",
        "ring-4_few_after_1",
        "ring-4_many_before_1",
        "ring-4_many_after_1",
        "mesh-8_few_before_1",
    ]
    assert len(plan.runs) == 2 * 2 * 2 * 2
    assert [str(cell) for cell in plan.cells] == [
        "ring-4, few", "ring-4, many", "mesh-8, few", "mesh-8, many"
    ]  # fmt: skip
    few, many = plan.workloads[Cell("ring-4", "few")], plan.workloads[Cell("ring-4", "many")]
    assert (few.parameters["hogs"], many.parameters["hogs"]) == (8, 32)


@pytest.mark.parametrize(
    ("more", "cells", "runs"),
    [
        ('include = [{ topologies = ["ring-4"] }]', 2, 8),
        ('include = [{ topologies = ["ring-4"], seeds = [1] }, { workloads = ["many"] }]', 3, 10),
        ('exclude = [{ topologies = ["mesh-8"], workloads = ["many"] }]', 3, 12),
        ('exclude = [{ seeds = [2] }, { variants = ["before"], workloads = ["few"] }]', 4, 6),
        ('include = [{ seeds = [1] }]\nexclude = [{ topologies = ["mesh-8"] }]', 2, 4),
    ],
)
def test_include_and_exclude(tmp_path: Path, more: str, cells: int, runs: int) -> None:
    plan = plan_study(write(tmp_path, more))
    assert (len(plan.cells), len(plan.runs)) == (cells, runs)


def test_a_workload_need_not_fit_a_machine_that_it_does_not_run_on(tmp_path: Path) -> None:
    wide = ("[[workloads]]\nname", '[[workloads]]\nparameters = { allowed_nodes = "1,7" }\nname')
    with pytest.raises(UserError, match="7"):
        plan_study(write(tmp_path, "", *wide))
    only = 'exclude = [{ topologies = ["ring-4"], workloads = ["few"] }]'
    assert len(plan_study(write(tmp_path, only, *wide)).cells) == 3


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('include = [{ workloads = ["none"] }]', r"include\[0\]: no workload 'none' \(valid: few"),
        ('exclude = [{ variants = ["now"] }]', r"exclude\[0\]: no variant 'now'"),
        ('exclude = [{ topologies = ["ring-5"] }]', r"exclude\[0\]\.topologies.*ring-5.*ring-4"),
        ("exclude = [{ seeds = [1, 2] }]", "leave no run"),
        ("exclude = [{ nodes = [1] }]", r"exclude\[0\]\.nodes: unknown key"),
        ("[presets.slow]\nworkloads = ['dogs']", r"presets\.slow: no workload 'dogs'"),
        ("[presets.slow]\nparameters = { dogs = {} }", r"presets\.slow: no workload 'dogs'"),
        ("key_measures = ['task_time_share_node9']", "has no node 9"),
    ],
)
def test_what_the_matrix_names_must_be_there(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_study(write(tmp_path, more))


def test_a_key_measure_may_be_one_that_only_some_cells_have(tmp_path: Path) -> None:
    assert plan_study(write(tmp_path, "key_measures = ['task_time_share_node5']")).runs


def test_a_preset_replaces_what_it_names(tmp_path: Path) -> None:
    path = write(tmp_path, 'exclude = [{ workloads = ["few"], topologies = ["mesh-8"] }]')
    plan = plan_study(path, "quick")
    assert [run.id for run in plan.runs] == ["ring-4_many_before_7", "ring-4_many_after_7"]
    assert plan.workload_of(plan.runs[0]).seconds == 1
    assert plan.workload_of(plan.runs[0]).parameters["hogs_per_cpu"] == 8
    assert len(plan_study(path, "full").runs) == 12
    digests = {plan_study(path, preset).digest for preset in (None, "full", "quick")}
    assert len(digests) == 2
    with pytest.raises(UserError, match=r"no preset 'quik' \(valid: quick, full\)"):
        plan_study(path, "quik")


def test_another_preset_does_not_change_a_study(tmp_path: Path) -> None:
    digest = plan_study(write(tmp_path)).digest
    changed = write(tmp_path, "", "seeds = [7]", "seeds = [8]")
    assert plan_study(changed).digest == digest
    assert plan_study(changed, "quick").digest != digest


def test_a_study_can_be_read_from_what_is_stored_of_it(tmp_path: Path) -> None:
    study = load_study(write(tmp_path), "quick")
    again = Study.model_validate_json(json.dumps(study_table(study)))
    assert again == study
    assert again.claims[-1].from_variant == "before"


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"variant": "a"}, "needs at_least"),
        ({"variant": "a", "above": 1, "to": "b"}, "either variant"),
        ({"from": "a", "direction": "higher"}, "both from and to"),
        ({"from": "a", "to": "a", "direction": "higher"}, "same variant"),
        ({"from": "a", "to": "b"}, "needs direction or bounds"),
        ({"from": "a", "to": "b", "above": 1, "expect": ["opposite"]}, "expect needs direction"),
    ],
)
def test_a_claim_is_of_one_kind(claim: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Claim.model_validate_json(json.dumps({"text": "t", "measure": "m", **claim}))


def stored(
    variant: str,
    value: float | None,
    mode: str = "icount",
    timing: Timing | None = None,
    **about: str,
) -> StoredRun:
    return stored_run(stored_manifest(variant=variant, mode=mode, timing=timing), value, **about)


def runs(before: list[float], after: list[float], **about: Any) -> list[StoredRun]:
    sides = {"before": before, "after": after}
    return [stored(name, value, **about) for name, side in sides.items() for value in side]


def compared(**keys: Any) -> Claim:
    table = {"text": "t", "measure": "m", "from": "before", "to": "after", "direction": "higher"}
    return Claim.model_validate_json(json.dumps({**table, **keys}))


LOW, HIGH = [1.0, 1.1, 0.9, 1.0], [9.0, 9.1, 9.2, 9.0]


@pytest.mark.parametrize(
    ("direction", "before", "after", "verdict"),
    [
        ("higher", LOW, HIGH, "reproduced"),
        ("higher", HIGH, LOW, "opposite"),
        ("lower", HIGH, LOW, "reproduced"),
        ("lower", LOW, LOW, "no difference shown"),
        ("same", HIGH, HIGH, "reproduced"),
        ("same", [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "reproduced"),
        ("same", LOW, LOW, "no difference shown"),  # by up to 14 %, which nobody would call none
        ("same", HIGH[:1], HIGH[:1], "no difference shown"),
        ("same", LOW, HIGH, "opposite"),
        ("higher", LOW[:1], HIGH[:1], "no difference shown"),
    ],
)
def test_verdicts(direction: str, before: list[float], after: list[float], verdict: str) -> None:
    found = judge(compared(direction=direction, published="+14%"), runs(before, after))
    assert (found.verdict, found.holds, found.required) == (verdict, True, False)
    assert found.published == "+14%"


@pytest.mark.parametrize(
    ("mode", "kind", "verdict"),
    [
        ("icount", "timing", "cannot be seen in this mode because icount counts instructions"),
        ("tcg", "timing", "cannot be seen in this mode because tcg emulates"),
        ("kvm", "timing", "reproduced"),
        ("timed", "timing", "reproduced"),
        ("tcg", "placement", "reproduced"),
    ],
)
def test_time_is_not_judged_where_it_is_not_that_of_hardware(
    mode: str, kind: str, verdict: str
) -> None:
    found = judge(compared(), runs(LOW, HIGH, mode=mode, kind=kind))
    assert found.verdict_text.startswith(verdict)
    assert found.kind == ("modelled" if mode == "timed" else kind)
    change = "1 to 9.075 moves (+807.5%), difference +7.92 to +8.23 (95 %), 4 and 4 runs"
    assert found.measured == change


def test_a_claim_without_an_interval() -> None:
    assert (
        judge(compared(), runs(LOW[:1], HIGH[:1])).measured == "1 to 9 moves (+800.0%), 1 and 1 run"
    )


@pytest.mark.parametrize(
    ("timing", "verdict"),
    [
        (Timing(True, (), ()), "reproduced"),
        (Timing(False, ("vCPU 3 ran elsewhere",), ()), "placed: vCPU 3 ran elsewhere"),
    ],
)
def test_time_is_judged_where_the_proof_of_placement_held(timing: Timing, verdict: str) -> None:
    about = {"mode": "kvm", "kind": "timing"}
    every = runs(LOW, HIGH, timing=Timing(True, (), ()), **about)
    every[-1] = stored("after", HIGH[-1], timing=timing, **about)
    assert judge(compared(), every).verdict_text.endswith(verdict)


def test_a_claim_about_large_numbers() -> None:
    large = [[181500.0, 181600.0, 181400.0], [186800.0, 186900.0, 186700.0]]
    assert judge(compared(), runs(*large)).measured == (
        "181,500 to 186,800 moves (+2.9%), difference +5,073 to +5,527 (95 %), 3 and 3 runs"
    )


def test_what_was_not_measured_cannot_be_seen() -> None:
    found = judge(compared(), [stored("before", None), stored("after", 3)])
    assert found.verdict_text.startswith("cannot be seen in this mode because no run before")


def test_an_expected_verdict_and_a_threshold_are_conditions() -> None:
    samples = runs(LOW, HIGH)
    reproduced = judge(compared(expect=["reproduced"]), samples)
    assert (reproduced.holds, reproduced.required) == (True, True)
    assert not judge(compared(expect=["opposite", "no difference shown"]), samples).holds
    assert judge(compared(above=800.0), samples).holds
    assert not judge(compared(above=800.0, below=801.0), samples).holds
    assert judge(compared(direction="same", at_most=0.0), runs([0.0], [0.0])).holds
