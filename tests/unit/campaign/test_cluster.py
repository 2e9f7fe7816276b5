"""A real scheduler with three workers, all processes of this host; the runs are not real."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from numalab.campaign.execute import Schedule, TaskEvent, execute
from numalab.campaign.executors import cluster as cluster_module
from numalab.campaign.executors.cluster import Cluster, Refused
from numalab.campaign.executors.remote import describe_host, has_file, take_chunk
from numalab.errors import HostError
from support.dask_processes import Processes, until
from support.fake_executor import MATRIX, fake, ledger, order, ready

SMALL = MATRIX.replace('["ring-4", "ring-2"]', '["ring-2"]').replace("[1, 2, 3]", "[1, 2]")


def unwatched(_: Schedule) -> Callable[[TaskEvent], None]:
    return lambda event: None


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_EXECUTOR", str(tmp_path / "desk"))
    (tmp_path / "desk").mkdir()
    workers = Processes(tmp_path)
    yield workers
    workers.end()


def joined(processes: Processes, count: int, refused: list[Refused] | None = None) -> Cluster:
    """Connect once so many workers are there."""
    refusals = [] if refused is None else refused
    executor = Cluster(processes.address, fake, refusals.append)

    def connected() -> bool:
        executor.news(0.1)
        return executor.places + len(refusals) >= count

    until(connected)
    return executor


def test_a_killed_worker_loses_only_its_run(processes: Processes, tmp_path: Path) -> None:
    """And a worker with another QEMU gets none: in icount mode its runs would not be the same."""
    programs = tmp_path / "programs"
    programs.mkdir()
    qemu = programs / "qemu-system-x86_64"
    qemu.write_text("#!/bin/sh\necho QEMU emulator version 9.9.9\n")
    qemu.chmod(0o755)
    for _ in range(3):
        processes.worker()
    processes.worker(PATH=f"{programs}:{os.environ['PATH']}")
    refused: list[Refused] = []
    executor = joined(processes, 4, refused)
    assert executor.places == 3
    assert "9.9.9" in refused[0].reason
    # The client's own updates of what it has stored name no worker, and none is gone for that.
    executor._client.scheduler_info = lambda **_: {"workers": {}}
    executor.news(0.1)
    assert executor.places == 3
    study = ready(tmp_path, SMALL)
    order(study, "ring-2_many_after_1", "sleep")
    asleep = tmp_path / "desk" / "asleep"

    def kill() -> None:
        until(lambda: asleep.exists() and asleep.read_text())
        os.kill(int(asleep.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    events: list[TaskEvent] = []
    failures = execute([study], 3, lambda _: events.append, executor=executor)
    killer.join()
    assert failures == ()
    assert set(study.results.finished()) == {run.id for run in study.plan.runs}
    assert sorted(ledger(study.results)) == sorted(run.id for run in study.plan.runs)
    (again,) = (event for event in events if event.kind == "retry")
    assert (again.task.run.id, "worker is gone" in again.text) == ("ring-2_many_after_1", True)
    assert not list((tmp_path / "cache" / "remote").glob("run-*/runs/*_1"))


def test_without_its_scheduler_a_study_ends_and_can_go_on(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes.worker()
    monkeypatch.setattr(cluster_module, "ANSWER", 5.0)
    executor = joined(processes, 1)
    study = ready(tmp_path, SMALL)
    order(study, "ring-2_many_after_1", "sleep")
    asleep = tmp_path / "desk" / "asleep"

    def kill() -> None:
        until(lambda: asleep.exists() and asleep.read_text())
        processes.scheduler.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(HostError, match=f"the scheduler at {processes.address} is gone"):
        execute([study], 1, unwatched, executor=executor)
    killer.join()
    done = ledger(study.results)
    assert 0 < len(done) < len(study.plan.runs)
    assert execute([study], 1, unwatched, run=fake) == ()
    assert sorted(ledger(study.results)) == sorted(run.id for run in study.plan.runs)


def test_without_a_worker_a_study_ends(
    processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = joined(processes, 0)
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.0)
    with pytest.raises(HostError, match="no worker that can run this"):
        executor.news(0.01)
    executor.close()


def test_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "ANSWER", 1.0)
    with pytest.raises(HostError, match="no scheduler answers"):
        Cluster("tcp://127.0.0.1:9")


def test_a_file_is_checked_when_it_arrives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))
    sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of hello
    assert not has_file(sha256)
    assert take_chunk(sha256, "me", b"hel", last=False) == ""
    assert take_chunk(sha256, "you", b"help", last=True).startswith("arrived as ")
    assert not has_file(sha256)
    assert take_chunk(sha256, "me", b"lo", last=True) == ""
    assert has_file(sha256)


def test_a_worker_says_what_it_is() -> None:
    host = describe_host()
    assert host.cpus >= 1
    assert host.memory_mib > 0
    assert host.numalab.startswith("0.")
