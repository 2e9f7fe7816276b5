"""What a study does where workers of a cluster cannot run it; Dask's client is replaced."""

from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from numalab.campaign.execute import TaskEvent, run_tasks
from numalab.campaign.executors import cluster as cluster_module
from numalab.campaign.executors.cluster import Cluster, Refused
from numalab.campaign.executors.remote import Delivered, describe_host
from numalab.campaign.task import Ended
from numalab.errors import HostError
from support.fake_executor import ready, tasks

pytest.importorskip("distributed")
ADDRESS = "tcp://10.0.0.2:4000"


@dataclass
class Future:
    """A run that ends at once: with a result, or with what its worker raised."""

    result_of_run: Delivered | None = None
    error: Exception | None = None

    @property
    def status(self) -> str:
        if isinstance(self.error, CancelledError):
            return "cancelled"
        return "error" if self.error else "finished"

    def exception(self, timeout: float) -> Exception | None:
        return self.error if self.status == "error" else None

    def result(self, timeout: float) -> Delivered | None:
        if self.error:
            raise self.error
        return self.result_of_run

    def add_done_callback(self, call: Callable[["Future"], None]) -> None:
        call(self)


@dataclass
class Client:
    """A connection to a scheduler with one worker."""

    future: Future = field(default_factory=Future)
    unlike: Mapping[str, Any] = field(default_factory=dict)
    broken: Exception | None = None
    status: str = "running"
    submitted: int = 0

    @property
    def scheduler(self) -> "Client":
        return self

    def identity(self) -> Mapping[str, Any]:
        return {"workers": {ADDRESS: {"nthreads": 1}}}

    def sync(self, function: Callable[[], Any], n_workers: int) -> Any:
        return function()

    def run(self, function: Callable[..., Any], *_words: Any, workers: list[str]) -> Any:
        if function is not describe_host:
            return {ADDRESS: True}
        if self.broken:
            raise self.broken
        return {ADDRESS: replace(describe_host(), **self.unlike)}

    def submit(self, *_words: Any, **_more: Any) -> Future:
        self.submitted += 1
        return self.future

    def cancel(self, *_words: Any, **_more: Any) -> None:
        """Nothing runs."""


@pytest.fixture
def connect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Client], Client]:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))

    def stand_in(client: Client) -> Client:
        monkeypatch.setattr("distributed.Client", lambda *_, **__: client)
        return client

    return stand_in


def test_a_worker_that_cannot_describe_its_host_is_refused(
    connect: Callable[[Client], Client],
) -> None:
    lacking = Exception("ModuleNotFoundError(\"No module named 'numalab'\")")
    connect(Client(broken=lacking))
    refused: list[Refused] = []
    assert Cluster(ADDRESS, on_refused=refused.append).places == 0
    assert [(worker.address, "No module" in worker.reason) for worker in refused] == [
        (ADDRESS, True)
    ]


@pytest.mark.parametrize(
    ("future", "why"),
    [
        (Future(error=OSError("no space on the worker")), "no space on the worker"),
        (Future(error=CancelledError("scheduler-restart")), "to its end: scheduler-restart"),
        (Future(Delivered(Ended("x", 1.0), "elsewhere", b"")), "a worker named a run 'elsewhere'"),
    ],
)
def test_a_run_whose_result_does_not_arrive_is_tried_three_times(
    connect: Callable[[Client], Client], tmp_path: Path, future: Future, why: str
) -> None:
    client = connect(Client(future=future))
    events: list[TaskEvent] = []
    (failure,) = run_tasks(tasks(ready(tmp_path))[:2], Cluster(ADDRESS), events.append)
    assert client.submitted == 3
    assert why in failure.ended.error
    assert [why in event.text for event in events if event.kind == "retry"] == [True, True]


def test_a_study_ends_where_no_worker_has_kvm(
    connect: Callable[[Client], Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(Client(unlike={"kvm": False}))
    monkeypatch.setattr(cluster_module, "PATIENCE", 0.0)
    task = tasks(ready(tmp_path))[0]
    choice = replace(task.setting.choice, mode="kvm")
    task = replace(task, setting=replace(task.setting, choice=choice))
    with pytest.raises(HostError, match=f"no worker that can run this\n  {ADDRESS}: it has no KVM"):
        run_tasks([task], Cluster(ADDRESS), lambda event: None)
