"""The matrix of a study: cells, what is left out of it, presets, and claims between variants."""

import json
from pathlib import Path
from typing import Any

import pytest

from numalab.errors import UserError
from numalab.results.plan import Cell
from numalab.study.claims import Claim
from numalab.study.model import Study, load_study, study_table
from numalab.study.plan import plan_study

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
    of_one = 'topology = "mesh-8"\nvariant = "after"\nmeasure = "task_time_share_node5"'
    of_all = 'variant = "after"\nmeasure = "task_time_share_node3"'
    plan = plan_study(write(tmp_path, more, of_one, of_all))
    assert (len(plan.cells), len(plan.runs)) == (cells, runs)


def test_a_workload_is_left_out_on_a_machine_that_it_does_not_fit(tmp_path: Path) -> None:
    wide = ("[[workloads]]\nname", '[[workloads]]\nparameters = { allowed_nodes = "1,7" }\nname')
    plan = plan_study(write(tmp_path, "", *wide))
    assert len(plan.cells) == 3
    (remark,) = plan.remarks
    assert str(remark).startswith("left out: ring-4, few: node 7 is not there")
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
    with pytest.raises(
        UserError, match=r"no preset 'quik'; did you mean quick\? \(valid: quick, full\)"
    ):
        plan_study(path, "quik")


def test_a_preset_keeps_the_baseline_whatever_the_order_of_its_variants(tmp_path: Path) -> None:
    path = write(tmp_path, "", "seeds = [7]", 'seeds = [7]\nvariants = ["after", "before"]')
    plan = plan_study(path, "quick")
    assert list(plan.study.variants) == [run.variant for run in plan.runs] == ["before", "after"]


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
        ({"from": "a", "to": "b", "above": 1, "expect": ["refuted"]}, "expect needs direction"),
    ],
)
def test_a_claim_is_of_one_kind(claim: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Claim.model_validate_json(json.dumps({"text": "t", "measure": "m", **claim}))
