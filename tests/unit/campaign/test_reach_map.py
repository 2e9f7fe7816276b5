"""The cells of the reach map, and its files in the cache."""

from pathlib import Path

import pytest

from numalab.campaign.reach_map import (
    EVERYWHERE,
    MACHINES,
    MOST_SECONDS,
    load_map,
    map_folder,
    measure_map,
    plan_map,
)
from numalab.errors import HostError
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.locks import locked
from numalab.reach.reach_map import CellReach

KERNEL = BuiltKernel("k", Path(), "6.12", None, "", "0" * 32, (), "", 0, "", "")


def test_a_map_is_affordable_and_covers_every_kind_of_machine() -> None:
    plan = plan_map(find_kernel("debian-6.12"))
    runs = {(run.topology, run.workload): plan.workload_of(run).seconds for run in plan.runs}
    assert max(runs.values()) <= MOST_SECONDS
    assert sum(runs.values()) < 200
    assert {machine for machine, _ in runs} == set(MACHINES)
    assert {workload for machine, workload in runs if machine == "full-2"} <= set(EVERYWHERE)


def test_a_damaged_cell_is_left_out_and_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    folder = map_folder(KERNEL)
    folder.mkdir(parents=True)
    cell = CellReach(topology="ring-4", workload="hogs", seconds=2, lines={"a.c": {3: 4}})
    (folder / "ring-4--hogs.json").write_text(cell.model_dump_json(), encoding="utf-8")
    (folder / "ring-4--forks.json").write_text('{"topology": "ri', encoding="utf-8")
    assert load_map(KERNEL) == (cell,)
    assert [path.name for path in folder.iterdir()] == ["ring-4--hogs.json"]


@pytest.mark.parametrize("held", [".", "runs"])  # by a numalab, or by a worker that it left
def test_a_map_that_another_numalab_measures_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("numalab.campaign.reach_map.LOCK_PATIENCE", 0.0)
    monkeypatch.setattr("numalab.campaign.reach_map.ensure_kernel", lambda *_, **__: KERNEL)
    job = map_folder(KERNEL) / "runs" / "ring-4--hogs.running" / "job.img"
    job.parent.mkdir(parents=True)
    job.touch()
    with (
        locked(map_folder(KERNEL) / held),
        pytest.raises(HostError, match="another numalab is using"),
    ):
        measure_map(find_kernel("debian-6.12"), lambda _: lambda _: None)
    assert job.exists()
