import subprocess
from pathlib import Path

import pytest

from numalab.kernel.patch_series import find_series
from numalab.kernel.patched_kernel import find_kernel
from numalab.places import shipped_dir
from numalab.study.plan import plan_study
from numalab.workload.workload_files import build_workload
from support.forked import numalab

pytestmark = pytest.mark.usefixtures("without_plugins")


def init(folder: Path) -> "subprocess.CompletedProcess[str]":
    return numalab("init", folder)


def test_a_lab_folder_can_be_planned_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert init(tmp_path / "mine").returncode == 0
    monkeypatch.chdir(tmp_path / "mine")
    plan = plan_study(Path("studies/mine.toml"))
    tutorial = (shipped_dir() / "docs/tutorial.md").read_text(encoding="utf-8")
    assert Path("studies/mine.toml").read_text() in tutorial
    assert [run.variant for run in plan.runs[:2]] == ["before", "after"]
    assert find_kernel("mine").series == ("mine",)
    assert find_series("mine").patches[0].subject == "sched/numa: Scan a fourth as often"
    assert (
        "numalab run studies/mine.toml"
        in (tmp_path / "mine/.github/workflows/numalab.yml").read_text()
    )


def test_the_plug_in_of_a_lab_folder_works(tmp_path: Path) -> None:
    assert init(tmp_path).returncode == 0
    done = numalab("measures", cwd=tmp_path)
    assert "busiest_task_moves" in done.stdout
    assert not done.stderr


WORKLOAD = """\
summary = "ends at once"
stresses = "nothing"
command = ["{folder}/mine", "{machine.cpus}"]
seconds = "1"
"""


def test_a_topology_and_a_workload_of_a_lab_folder_are_planned_and_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of numalab's own changes for one more of either, or for a kernel and its series."""
    assert init(tmp_path).returncode == 0
    for name, text in {
        "topologies/two.toml": (shipped_dir() / "topologies/ring-2.toml").read_text(),
        "workloads/mine/workload.toml": WORKLOAD,
        "workloads/mine/mine.c": "int main(void) { return 0; }\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    study = (tmp_path / "studies/mine.toml").read_text()
    study = study.replace("ring-4", "two").replace("numa01", "mine")
    (tmp_path / "studies/mine.toml").write_text(study)
    monkeypatch.chdir(tmp_path)
    plan = plan_study(Path("studies/mine.toml"))
    (workload,) = plan.workloads.values()
    assert workload.argv[0] == "/job/files/mine"
    assert workload.folder == tmp_path / "workloads/mine"
    assert set(build_workload(workload.folder)) == {"mine"}


@pytest.mark.parametrize("name", ["studies", "Makefile"])
def test_what_is_in_the_way_leaves_the_folder_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("nowhere")
    done = init(tmp_path)
    assert done.returncode == 2
    assert f"already exists: {name}; name a new folder" in done.stderr
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text("mine\n")
    done = init(tmp_path)
    assert done.returncode == 2
    assert "already exists: Makefile" in done.stderr
    assert (tmp_path / "Makefile").read_text() == "mine\n"
    assert list(tmp_path.iterdir()) == [tmp_path / "Makefile"]
