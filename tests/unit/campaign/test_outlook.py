"""What a study would take, and how far results are, without anything being started."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numalab.campaign import outlook
from numalab.campaign.cost_model import Cost, Costs, estimate
from numalab.campaign.execute import Schedule, TaskEvent, execute
from numalab.campaign.outlook import look_ahead, total_seconds
from numalab.cli.live import Overview, ending_line
from numalab.cli.study.plan import command as plan_command
from numalab.errors import UserError
from numalab.files import write_json
from numalab.guest.verdicts import Verdict
from numalab.kernel.kernel_specs import KernelSpec
from numalab.locks import locked
from numalab.results.status import Progress, RunState, State, read_progress
from numalab.run_dir import RunDir
from numalab.study.machine_table import MachineTable
from numalab.study.plan import plan_study
from support.fake_executor import MATRIX, fake, order, ready, tasks
from support.kernel_image import bzimage
from support.stored_run import stored_manifest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))


def unwatched(_: Schedule) -> Callable[[TaskEvent], None]:
    return lambda event: None


def test_costs_are_the_median_of_earlier_runs_else_an_estimate(tmp_path: Path) -> None:
    task = tasks(ready(tmp_path))[0]
    what = (task.topology, task.workload)
    assert estimate(*what, "timed", 8) < estimate(*what, "timed")
    assert estimate(*what, "icount", 8) == estimate(*what, "icount")
    bound = replace(task.workload, allowed_cpus=task.workload.allowed_cpus[:1])
    assert estimate(task.topology, bound, "icount") < estimate(*what, "icount")
    assert Costs().of(*what, "icount") == Cost(estimate(*what, "icount"))
    for seconds in (3.0, 100.0, 5.0):
        Costs().learn(*what, "icount", seconds)
    assert Costs().of(*what, "icount") == Cost(5.0, 3)
    assert Costs().of(*what, "kvm").learned_from == 0
    for slow in ({"slow_motion": 8}, {"instruction_ns": 32}, {"emulator": "qemu-10"}):
        machine = MachineTable.model_validate(slow)
        assert Costs().of(*what, "icount", machine).learned_from == 0
        Costs().learn(*what, "icount", 9.0, machine)
        assert Costs().of(*what, "icount", machine) == Cost(9.0, 1)
    assert Costs().of(*what, "icount") == Cost(5.0, 3)
    assert Costs().of(task.topology, tasks(ready(tmp_path))[2].workload, "icount").learned_from == 0
    for path in (tmp_path / "cache" / "costs").glob("*.json"):
        path.write_text("{")
    assert Costs().of(*what, "icount").learned_from == 0


def test_a_study_is_looked_at_without_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[KernelSpec] = []
    monkeypatch.setattr(outlook, "built_kernel", asked.append)
    monkeypatch.setattr(outlook, "built_image", lambda recipe: None)
    (tmp_path / "tried.toml").write_text(MATRIX)
    plan = plan_study(tmp_path / "tried.toml")
    forecast = look_ahead(plan, "icount")
    assert len(forecast.runs) == 24
    assert forecast.to_build == (
        "kernel debian-6.12",
        "kernel debian-6.12-undo-group-construction",
        "image base",
    )
    # The second kernel has the source and the configuration of the first: only its series differs.
    times = (outlook.KERNEL_SECONDS, outlook.PATCHED_SECONDS, outlook.IMAGE_SECONDS)
    assert forecast.build_seconds == sum(times)
    # Kernels of other trees, whose fragments may be bad, do not matter.
    assert len({(spec.source, spec.fragments) for spec in asked}) == 1
    serial, parallel = forecast.seconds(1), forecast.seconds(2)
    assert serial == pytest.approx(sum(run.cost.seconds for run in forecast.runs))
    assert 0.49 * serial < parallel < 0.6 * serial
    assert total_seconds([forecast, forecast], 1) == pytest.approx(2 * serial)
    assert {run.cpus for run in forecast.runs} == {1}
    assert {run.cpus for run in look_ahead(plan, "kvm").runs} == {9, 5}


def test_a_kernel_named_by_its_file_is_not_to_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlook, "built_image", lambda recipe: None)
    (tmp_path / "bzImage").write_bytes(bzimage())
    study = MATRIX.replace('"debian-6.12"', f'"{tmp_path}/bzImage"')
    study = study.replace('"debian-6.12-undo-group-construction"', '"deb:linux-image-amd64"')
    (tmp_path / "tried.toml").write_text(study)
    forecast = look_ahead(plan_study(tmp_path / "tried.toml"), "icount")
    assert forecast.to_build == ("kernel deb:linux-image-amd64", "image base")


def test_plan_lists_the_runs_that_fit_into_a_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "tried.toml"
    study.write_text(MATRIX)

    def planned(**words: str) -> dict[str, Any]:
        plan_command([str(study)], mode="icount", jobs=1, as_json=True, **words)
        return dict(json.loads(capsys.readouterr().out))

    whole = planned()
    seconds = whole["seconds"] / 3 + sum(entry["build_seconds"] for entry in whole["studies"])
    part = planned(budget=f"{seconds:.0f}s")
    assert 0 < part["seconds"] <= whole["seconds"] / 3
    runs = [run["run"]["id"] for run in part["studies"][0]["runs"]]
    assert 0 < len(runs) < len(whole["studies"][0]["runs"])
    with pytest.raises(UserError, match="no comparison of tried fits into"):
        planned(budget="1s")


def test_the_reason_of_a_mode_names_kvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict(works=False, cpu_model="host", reason="the guest did not reach its init")
    monkeypatch.setattr(outlook, "unusable_device", lambda: "")
    monkeypatch.setattr(outlook, "any_verdict", lambda: verdict)
    monkeypatch.setattr(outlook, "built_kernel", lambda _: None)
    monkeypatch.setattr(outlook, "built_image", lambda recipe: None)
    (tmp_path / "tried.toml").write_text(MATRIX)
    forecast = look_ahead(plan_study(tmp_path / "tried.toml"), "auto")
    assert forecast.reason == "KVM does not run a guest here: the guest did not reach its init"


def test_too_little_memory_for_two_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlook, "built_kernel", lambda spec: None)
    monkeypatch.setattr(outlook, "built_image", lambda recipe: None)
    (tmp_path / "tried.toml").write_text(MATRIX)
    monkeypatch.setattr(outlook, "available_mib", lambda: 4000)
    forecast = look_ahead(plan_study(tmp_path / "tried.toml"), "icount")
    assert forecast.at_once(8) == 1
    assert forecast.seconds(8) == forecast.seconds(1)


def test_how_far_results_are(tmp_path: Path) -> None:
    study = ready(tmp_path)
    order(study, "ring-4_few_after_1", "guest")
    execute([study], 2, unwatched, run=fake)
    for name, suffix in (("ring-4_few_after_2", "running"), ("ring-4_many_after_2", "interrupted")):
        done = study.results.run(name).path
        done.rename(done.with_name(f"{name}.{suffix}"))
    running = study.results.running("ring-4_few_after_2")
    running.domain_xml.write_text("<domain/>")
    running.heartbeat.write_text('{"phase": "workload", "uptime": 4.5}\n{"phase": "w')
    failed = study.results.running("ring-4_few_after_1").path.with_suffix(".failed")
    (study.results.running("ring-4_few_after_1").path).rename(failed)
    lost = stored_manifest(reason="it \x1b[31mpanicked\nand more")
    write_json(RunDir(failed).manifest, lost.table())
    with locked(study.results.path):
        progress = read_progress(study.results)
    states = {run.run: run for run in progress.runs}
    assert progress.active
    assert states["ring-4_few_after_2"].state == "running"
    assert states["ring-4_few_after_2"].text == "workload, 4.5 s of guest time"
    assert states["ring-4_few_after_1"].text == "it ?[31mpanicked"
    assert states["ring-4_many_after_2"].state == "interrupted"
    assert (progress.count(State.DONE), progress.count(State.WAITING)) == (21, 0)
    after = read_progress(study.results)
    assert not after.active
    assert {run.run: run.state for run in after.runs}["ring-4_few_after_2"] == "interrupted"
    assert after.seconds_left is None


@pytest.mark.parametrize(("left_out", "seconds"), [(0, 220.0), (20, 20.0), (21, 10.0), (30, 10.0)])
def test_runs_that_a_budget_leaves_out_take_no_time(left_out: int, seconds: float) -> None:
    states = [State.DONE, State.RUNNING, *[State.WAITING] * 21]
    runs = [RunState(f"r{n}", state, seconds=10.0 * (n == 0)) for n, state in enumerate(states)]
    assert Progress("s", True, tuple(runs), left_out).seconds_left == seconds


def test_the_status_of_something_else(tmp_path: Path) -> None:
    study = ready(tmp_path)
    with pytest.raises(UserError, match="no results of a study"):
        read_progress(study.results)
    study.results.plan.write_text(json.dumps([]))
    with pytest.raises(UserError, match="damaged"):
        read_progress(study.results)


def test_what_is_shown_while_runs_are_under_way(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))[:4]
    overview = Overview()
    overview.plan(Schedule(every, tuple(Cost(10.0) for _ in every), 2))
    assert overview.seconds_left(0.0) == 20
    for task in every[:2]:
        overview.note(TaskEvent("started", task, "starting", 0), 0.0)
    overview.note(TaskEvent("phase", every[0], "workload", 0), 4.0)
    assert overview.seconds_left(4.0) == 16
    assert overview.running[every[0].key].share(4.0) == pytest.approx(0.4)
    assert overview.running[every[0].key].share(99.0) == 0.99
    done = TaskEvent("done", every[0], "done", 1, 9.0)
    overview.note(done, 9.0)
    assert ending_line(done, overview, 9.0) == f"[1/4] {every[0].run.id}: done (9.0 s), 9.0 s left"
    failure = TaskEvent("failed", every[1], "failed: x\n  | score 106\n  kept: a.failed", 2)
    overview.note(failure, 10.0)
    said = f"[2/4] {every[1].run.id}: failed: x, "
    assert ending_line(failure, overview, 10.0).startswith(said)
    assert ending_line(failure, overview, 10.0).endswith(" left\n  | score 106\n  kept: a.failed")
    assert (overview.failed, overview.running) == (1, {})


def test_the_time_left_follows_runs_that_take_longer_than_their_costs(tmp_path: Path) -> None:
    every = tasks(ready(tmp_path))[:4]
    overview = Overview()
    overview.plan(Schedule(every, tuple(Cost(10.0) for _ in every), 1))
    overview.note(TaskEvent("started", every[0], "starting", 0), 0.0)
    overview.note(TaskEvent("done", every[0], "done", 1, 25.0), 25.0)
    assert overview.seconds_left(25.0) == 75
    overview.note(TaskEvent("started", every[1], "starting", 1), 25.0)
    assert overview.seconds_left(45.0) == 55


def test_a_run_that_still_waits_has_no_phase(tmp_path: Path) -> None:
    """An executor may take no run for long."""
    (task, *_) = tasks(ready(tmp_path))
    overview = Overview()
    overview.note(TaskEvent("phase", task, "waits until the executor takes it", 0), 1.0)
    assert not overview.running
