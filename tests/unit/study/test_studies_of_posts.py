"""The studies and series of this repository: what they promise of themselves."""

import re
from pathlib import Path
from statistics import median

import pytest

from numalab.campaign.cost_model import estimate
from numalab.machine.model import Mode
from numalab.places import project_dir
from numalab.results.layout import Results
from numalab.results.plan import Cell
from numalab.results.reader import load_plan, load_runs
from numalab.study.model import load_study, study_digest
from numalab.study.plan import Plan, plan_study
from numalab.topology.distances import hops
from numalab.topology.predict.hazards import hazards
from numalab.topology.predict.prediction import predict

# Of machines and of schedulers, and not of a post.
OF_NO_POST = ("published-machines", "sched-ext", "sched-ext-crates", "what-distance-costs")
STUDIES = [
    path
    for path in sorted((project_dir() / "studies").glob("*.toml"))
    if path.stem not in OF_NO_POST
]
TIMED = [path for path in STUDIES if load_study(path).mode == "timed"]
SERIES = sorted(path for path in (project_dir() / "kernel-configs/series").iterdir())


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_quick_is_a_part_that_can_still_tell_variants_apart(path: Path) -> None:
    quick, full = plan_study(path, "quick"), plan_study(path)
    assert len(quick.runs) <= len(full.runs)
    assert len({run.seed for run in quick.runs}) >= 3
    assert len({run.variant for run in quick.runs}) >= 2


def seconds_told(plan: Plan, cell: Cell) -> float:
    """Estimate a run by its file alone; what earlier runs took depends on the host."""
    mode: Mode = "timed" if plan.study.mode == "timed" else "icount"
    slow = plan.study.machine.slow_motion
    return estimate(plan.topologies[cell.topology], plan.workloads[cell], mode, slow)


def seconds_on_two_cpus(plan: Plan) -> float:
    return sum(seconds_told(plan, run.cell) for run in plan.runs) / 2


def test_quick_takes_minutes() -> None:
    """What the estimates put at 31.4 min took 27 min 5 s."""
    seconds = [seconds_on_two_cpus(plan_study(path, "quick")) for path in STUDIES]
    assert max(seconds) <= 5 * 60
    assert sum(seconds) <= 30 * 60


@pytest.mark.parametrize("path", TIMED, ids=lambda path: path.stem)
def test_the_estimate_is_near_what_the_stored_runs_took(path: Path) -> None:
    """In mode timed it was an eighth. Most runs were beside a hunt, the fastest the least."""
    _, runs = load_runs(Results(project_dir() / "reports" / "examples" / path.stem))
    seconds_of = {run.id: run.manifest.seconds for run in runs}
    plan = plan_study(path)
    taken: dict[Cell, list[float]] = {}
    for run in plan.runs:
        seconds = seconds_of[run.id]
        assert seconds is not None
        taken.setdefault(run.cell, []).append(seconds)
    for cell, durations in taken.items():
        estimate = seconds_told(plan, cell)
        assert min(durations) / 3 <= estimate <= 3 * median(durations), cell


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_its_example_is_of_the_study_as_it_is_now(path: Path) -> None:
    """A changed parameter is a changed study, and has to be run again; a changed claim is not."""
    plan = load_plan(Results(project_dir() / "reports" / "examples" / path.stem))
    assert study_digest(plan.file) == plan_study(path, plan.preset or None).digest
    assert (
        f"reports/examples/{path.stem}/" in (project_dir() / "docs/results/README.md").read_text()
    )


@pytest.mark.parametrize("name", ["group-construction", "group-construction-mesh"])
def test_the_prediction_names_the_nodes_between_which_hogs_may_not_move(name: str) -> None:
    plan = plan_study(project_dir() / "studies" / f"{name}.toml")
    (topology,) = plan.topologies.values()
    (workload,) = plan.workloads.values()
    first, second = map(int, str(workload.parameters["allowed_nodes"]).split(","))
    assert hops(len(topology.nodes), topology.links)[first][second] == 2
    (hazard,) = [
        hazard
        for hazard in hazards(topology, predict(topology))
        if hazard.name == "group construction"
    ]
    assert re.search(rf"\b{first} and {second}\b", hazard.text)


@pytest.mark.parametrize("folder", SERIES, ids=lambda path: path.name)
def test_a_series_says_what_it_is(folder: Path) -> None:
    assert (folder / "README.md").read_text().startswith(f"# {folder.name}\n")


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_the_patches_of_a_study_say_what_they_take_back(path: Path) -> None:
    for kernel in plan_study(path).kernels.values():
        for series in kernel.series:
            for patch in (SERIES[0].parent / series).glob("*.patch"):
                assert re.search(
                    r"^(Undoes|Brings (back|forward)): ", patch.read_text(), re.MULTILINE
                ), patch


def test_each_fix_of_2018_is_accounted_for() -> None:
    folder = project_dir() / "kernel-configs/series/undo-numa-fixes-2018"
    rows = re.findall(
        r"^\| (\d+) \|.*\| (.*) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    assert [int(number) for number, _ in rows] == list(range(1, 20))
    undone = sorted(match[1] for _, what in rows if (match := re.match(r"\*\*(\d{4})\*\*$", what)))
    assert undone == sorted(patch.name[:4] for patch in folder.glob("*.patch"))
    rest = [what for _, what in rows if not what.startswith("**")]
    assert all(what.startswith(("gone: ", "without effect")) for what in rest)


def test_what_all_quick_presets_showed_is_what_was_printed() -> None:
    root = project_dir()
    printed = (root / "tests/data/studies/quick.txt").read_text(encoding="utf-8")
    said = " ".join((root / "docs/results/README.md").read_text(encoding="utf-8").split())
    verdicts = ("holds", "reproduced", "no difference shown", "cannot be seen in")
    holds, shown, nothing, unseen = (
        len(re.findall(rf"  {verdict}\b", printed)) for verdict in verdicts
    )
    assert (
        f"Of {holds + shown + nothing + unseen} claims {holds} hold and {shown} are reproduced, of"
        f" each post; for {nothing} no difference is shown, and"
        f" {unseen} cannot be seen"
    ) in said
    parts = re.split(r"^([a-z0-9-]+), [a-z0-9-]+, [a-z0-9-]+$", printed, flags=re.MULTILINE)
    tells = {
        name
        for name, part in zip(parts[1::2], parts[2::2], strict=True)
        if re.search(r"  (holds|reproduced)$", part, re.MULTILINE)
    }
    posts = {"group-construction", "numa-fixes-2018", "numa-imbalance", "less-busy-nodes"}
    assert posts <= tells
    assert "vma-grouping-preserve" in tells
