"""Plans: which runs, in which order, and what is refused before anything is built."""

import re
from pathlib import Path

import pytest

from numalab.campaign.measure import describe_recording
from numalab.campaign.resume import write_plan
from numalab.capture.counters import BufferStats
from numalab.capture.decode import Decoded
from numalab.errors import UserError
from numalab.files import read_json, write_json
from numalab.places import project_dir
from numalab.results.layout import Results
from numalab.study.claims import Claim, claims_about
from numalab.study.model import differing_inputs, load_study, study_table
from numalab.study.plan import plan_study
from numalab.topology.load import load_topology
from numalab.topology.predict.groups import Construction
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import predict

STUDY = """
question = "?"
topologies = ["ring-4"]
seeds = [1, 2]
[variants.before]
kernel = "debian-6.12-undo-group-construction"
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tried.toml"
    path.write_text(text)
    return path


def test_the_variants_of_a_seed_are_next_to_each_other(tmp_path: Path) -> None:
    plan = plan_study(write(tmp_path, STUDY))
    assert [run.id for run in plan.runs] == [
        "ring-4_bound-hogs_before_1",
        "ring-4_bound-hogs_after_1",
        "ring-4_bound-hogs_before_2",
        "ring-4_bound-hogs_after_2",
    ]
    assert plan.workload_of(plan.runs[0]).allowed_cpus == (2, 3, 6, 7)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ring-4"', '"ring-5"', r"ring-5.*ring-4"),
        ('"debian-6.12"', '"debian-6.21"', r"debian-6\.21.*debian-6\.12"),
        ('"bound-hogs"', '"bound-dogs"', r"bound-dogs.*bound-hogs"),
        ("seeds = [1, 2]", 'seeds = [1]\nimage = "bass"', r"bass.*base"),
        ("seeds = [1, 2]", "seeds = [1, 1]", r"1 is a duplicate"),
        ('name = "bound-hogs"', 'name = "bound-hogs"\nparameters = { allowed_nodes = "1,9" }', "9"),
        ("[variants.before]", "[capture]\nsets = ['nume']\n[variants.before]", r"capture\.sets"),
        (
            "[variants.before]",
            "[capture]\nbuffer_mib = 16384\n[variants.before]",
            r"capture\.buffer_mib: .*: the first node with memory has \d+ MiB, too little",
        ),
        (
            "[variants.before]",
            "[capture]\nsample = ['tasks']\nclock = 'local'\n[variants.before]",
            r"tried\.toml: capture\.clock: 'local' is not the clock .* \(valid: mono, boot\)",
        ),
        (
            "[variants.before]",
            "[[claims]]\ntext='t'\nvariant='after'\nmeasure='task_buzy'\nat_most=1\n[variants.before]",
            r"claims\[0\]\.measure: no measure is called 'task_buzy'",
        ),
        ("seeds = [1, 2]", "seeds = [1]\nkey_measures = ['tasks_final_node4']", "has no node 4"),
        ("seeds = [1, 2]", "seeds = [1]\nkey_measures = ['task_busy_share_cpu8']", "has no cpu 8"),
        (
            "[variants.before]",
            "[variants.before]\ntunables = { '/etc/x' = 1 }",
            r"variants\.before",
        ),
        (
            "[variants.before]",
            "[variants.before]\ntunables = { '/proc/sys/../x' = 1 }",
            "/proc/sys/../x",
        ),
    ],
)
def test_what_a_study_names_must_be_there(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan_study(write(tmp_path, STUDY.replace(old, new, 1)))


def test_uses_of_a_workload_have_labels(tmp_path: Path) -> None:
    twice = STUDY + '[[workloads]]\nname = "bound-hogs"\n'
    with pytest.raises(UserError, match=r"labels of workloads: .* is a duplicate"):
        plan_study(write(tmp_path, twice))
    assert len(plan_study(write(tmp_path, twice + 'label = "again"')).runs) == 8


def test_a_claim_is_bounded_on_both_sides() -> None:
    claim = Claim(text="t", variant="after", measure="m", at_least=1, at_most=2)
    held = [claim.holds(value) for value in (0.9, 1, 2, 2.1, None)]
    assert held == [False, True, True, False, False]
    claim = Claim(text="t", variant="after", measure="m", above=1, below=2)
    held = [claim.holds(value) for value in (1, 1.1, 1.9, 2, None)]
    assert held == [False, True, True, False, False]
    with pytest.raises(ValueError, match="finite"):
        Claim(text="t", variant="after", measure="m", at_most=float("nan"))


def test_results_of_a_changed_study_are_not_mixed(tmp_path: Path) -> None:
    plan = plan_study(write(tmp_path, STUDY))
    results = Results(tmp_path / "results")
    write_plan(plan, results)
    write_plan(plan, results)
    other = {"file": study_table(plan.study) | {"question": "?"}, "digest": "older"}
    write_json(results.plan, read_json(results.plan) | other)
    write_plan(plan, results)
    stored = read_json(results.plan)
    assert stored["file"]["question"] == plan.study.question
    write_json(results.plan, stored | {"file": {**stored["file"], "seeds": [77]}})
    remedy = "differ from the study in seeds; name another folder with --output for new ones"
    with pytest.raises(UserError, match=remedy):
        write_plan(plan, results)
    write_json(results.plan, stored | {"study": "other"})
    with pytest.raises(UserError, match="these results are of the study other; name"):
        write_plan(plan, results)


STUDIES = sorted((project_dir() / "studies").glob("*.toml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_shipped_study_is_planned(path: Path) -> None:
    plan = plan_study(path)
    assert len(plan.runs) >= 3 * len(plan.study.variants)
    named = {name for claim in plan.study.claims for name in claim.variants}
    # A study of one kernel has expected values in its report instead of claims.
    assert len(named) >= 2 or len(plan.study.variants) == 1


@pytest.mark.parametrize("page", ["docs/reference/studies.md", "docs/how-to/test-a-patch.md"])
def test_a_study_in_the_documentation_is_planned(tmp_path: Path, page: str) -> None:
    text = (project_dir() / page).read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(question = .*?)```", text, re.DOTALL)
    block = block.replace('"mine"', '"debian-6.12"').replace("debian-6.12-mine", "debian-6.12")
    assert plan_study(write(tmp_path, block)).runs


def test_the_mesh_study_asks_for_a_pair_that_the_prediction_names() -> None:
    """Nodes 1 and 4 of mesh-8 are two hops apart and shared all their groups."""
    topology = load_topology("mesh-8")
    predicted = hazards(topology, predict(topology, construction=Construction.BEFORE_4_13))
    (named,) = [hazard for hazard in predicted if "group construction" in str(hazard)]
    assert "1 and 4" in str(named)
    assert topology.distances[1][4] == max(topology.distances[1])


def test_lost_events_are_those_of_the_ring_buffer_where_it_knows_more() -> None:
    stats = (BufferStats(0, 9, 5, 0, 0), BufferStats(1, 9, 0, 1, 2))
    recording = describe_recording(Decoded(events=18, gaps=2), stats)
    assert (recording.lost, recording.whole) == (8, False)
    assert describe_recording(Decoded(events=18), (BufferStats(0, 9, 0, 0, 0),)).whole
    assert describe_recording(Decoded(lost=9, gaps=1), stats).lost == 9
    damaged = describe_recording(Decoded(unsound=2, problems=("CPU 1: x",)), stats)
    damage = "2 pages are damaged, 0 records fit no event format"
    assert damaged.problems == ("CPU 1: x", damage)


def test_a_cell_has_the_claims_of_the_variants_that_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "tried.toml"
    path.write_text(
        """
question = "?"
topologies = ["mesh-4", "ring-4"]
seeds = [1]
exclude = [{ topologies = ["mesh-4"], variants = ["after"] }]
variants = { before = { kernel = "debian-6.12" }, after = { kernel = "debian-6.12" } }
workloads = [{ name = "bound-hogs" }]
claims = [
  { text = "both", measure = "throughput", from = "before", to = "after", direction = "higher" },
  { text = "one", measure = "throughput", variant = "before", above = 0 },
]
"""
    )
    plan = plan_study(path)
    claims = {
        cell.topology: [claim.text for claim in claims_about(plan.study.claims, cell, plan.runs)]
        for cell in plan.cells
    }
    assert claims == {"mesh-4": ["one"], "ring-4": ["both", "one"]}


MINE = """
[machines.mine]
summary = "a machine of this study"
nodes = 2
cpus = 1
memory_mib = 256
[machines.mine.shape]
kind = "ring"
distances = [10, 20]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"ring-4"', '"mime"', r"topologies[0]: no topology is called 'mime'; did you mean mine?"),
        ('"debian-6.12"', '"debian-6.13"', "variants.old.kernel: no kernel is called "),
        ('"debian-6.12"', '"./none"', "variants.old.kernel: kernel: ./none: no such file"),
        ('"hogs"', '"hoogs"', "workloads[0].name: no workload 'hoogs'; did you mean hogs?"),
        ("[1]", "[]", "seeds: needs at least 1 value, found 0"),
        ("seeds", 'image = "bass"\nseeds', "image: no image 'bass'; did you mean base?"),
    ],
)
def test_an_unknown_name_has_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "s.toml"
    text = (
        'question = "?"\ntopologies = ["ring-4"]\nseeds = [1]\n'
        'variants = { old = { kernel = "debian-6.12" } }\nworkloads = [{ name = "hogs" }]\n'
    )
    path.write_text(text.replace(old, new, 1) + MINE)
    with pytest.raises(UserError) as caught:
        plan_study(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_a_claim_and_a_selection_may_name_a_machine_of_the_study(tmp_path: Path) -> None:
    """Also in a preset that leaves it out."""
    path = tmp_path / "s.toml"
    path.write_text(
        'question = "?"\ntopologies = ["ring-4", "mine"]\nseeds = [1]\n'
        'exclude = [{ topologies = ["mine"], seeds = [2] }]\n'
        'variants = { old = { kernel = "debian-6.12" } }\nworkloads = [{ name = "hogs" }]\n'
        '[presets.quick]\ntopologies = ["ring-4"]\n[[claims]]\ntext = "t"\ntopology = "mine"\n'
        f'measure = "elapsed_time"\nvariant = "old"\nabove = 0\n{MINE}'
    )
    assert len(plan_study(path).runs) == 2
    assert len(plan_study(path, "quick").runs) == 1


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_parameter_is_a_finite_number(tmp_path: Path, value: str) -> None:
    path = tmp_path / "study.toml"
    text = (project_dir() / "studies" / "group-construction.toml").read_text("utf-8")
    path.write_text(text.replace("start_node = 1", f"start_node = {value}", 1))
    with pytest.raises(UserError, match=r"workloads\[0\]\.parameters"):
        load_study(path)


def test_inputs_differ_as_their_digests_do() -> None:
    old, new = {"a": 3, "b": [1], "c": None}, {"a": 3.0, "b": [1]}
    assert differing_inputs(old, new) == ("a", "c")
    assert differing_inputs(old, old) == ()
