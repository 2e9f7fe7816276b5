"""Whose fault it is that a run gave no result, and what is kept of it."""

import errno
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import polars as pl
import pytest

from numalab.campaign import run_task as module
from numalab.campaign.run_task import limits_of, run_task
from numalab.campaign.task import Task
from numalab.errors import GuestLost, HostError, LossCause, UserError, WorkloadFailed
from numalab.guest.run import Outcome
from numalab.guest.watch import Limits
from numalab.qemu.collect import Collected
from numalab.results.manifest import RunStatus
from numalab.results.reader import load_manifest
from numalab.study.model import LimitsTable
from support.fake_executor import ready, tasks


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return tasks(ready(tmp_path))[0]


def test_limits_follow_the_host_where_the_study_leaves_the_default(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "slowness", lambda *, load: 3.0)
    assert limits_of(task) == Limits(boot=360.0, silence=540.0, total=3600.0)
    study = task.study.model_copy(update={"limits": LimitsTable(boot=5.0, run=60.0)})
    assert limits_of(replace(task, study=study)) == Limits(boot=5.0, silence=540.0, total=60.0)


def boot_that(error: Exception) -> Callable[..., Outcome]:
    def boot(task: Task, *_: object) -> Outcome:
        task.directory.path.mkdir(parents=True)
        raise error

    return boot


@pytest.mark.parametrize(
    ("error", "code", "by_host", "status"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 3, True, RunStatus.FAILED),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 3, True, RunStatus.FAILED),
        (OSError(errno.EISDIR, "Is a directory"), 9, False, RunStatus.FAILED),
        (pl.exceptions.ComputeError("no such column"), 9, False, RunStatus.FAILED),
        (HostError("no memory"), 3, True, RunStatus.FAILED),
        (WorkloadFailed("it exited with 1"), 9, False, RunStatus.FAILED),
        (GuestLost("it panicked"), 4, False, RunStatus.LOST),
        (GuestLost("QEMU was killed", cause=LossCause.HOST), 4, True, RunStatus.LOST),
    ],
)
def test_whose_fault_it_is(
    task: Task,
    error: Exception,
    code: int,
    by_host: bool,
    status: RunStatus,
) -> None:
    ended = run_task(task, lambda _: None, boot=boot_that(error))
    assert (ended.exit_code, ended.by_host) == (code, by_host)
    assert "Traceback" not in ended.error
    left = load_manifest(task.results.failed(task.run.id))
    assert left.status is status
    assert left.cause == (error.cause if isinstance(error, GuestLost) else None)


@pytest.mark.parametrize(
    ("error", "by_lab"),
    [
        (UserError("this plug-in failed"), True),
        (RuntimeError("a bug"), True),
        (GuestLost("it panicked"), False),
        (WorkloadFailed("it exited with 1"), False),
    ],
)
def test_a_bug_is_not_the_fault_of_a_kernel(task: Task, error: Exception, by_lab: bool) -> None:
    assert run_task(task, lambda _: None, boot=boot_that(error)).by_lab is by_lab


def test_what_a_lost_guest_left_is_named_where_it_lies_at_last(task: Task) -> None:
    """The folder has another name while the run goes on."""
    lost = GuestLost(
        "it panicked", kept=task.directory.path, trace=Path("out/trace.dat"), tail="last words"
    )
    assert f"{task.directory.path}/out/trace.dat" in str(lost)
    kept = task.results.failed(task.run.id).path
    trace = f"its trace up to the end: {kept}/out/trace.dat"
    said = f"it panicked\n  {trace}\n  | last words\n  kept: {kept}"
    assert run_task(task, lambda _: None, boot=boot_that(lost)).error == said
    assert load_manifest(task.results.failed(task.run.id)).reason == said


def test_a_full_disk_is_the_hosts_whatever_the_reader_says(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(f_blocks=9, f_bfree=0, f_bavail=0, f_frsize=4096)
    monkeypatch.setattr("os.statvfs", lambda _: full)
    ended = run_task(
        task, lambda _: None, boot=boot_that(pl.exceptions.ComputeError("cannot write"))
    )
    assert (ended.exit_code, ended.by_host) == (3, True)
    assert ended.error.endswith("No space left on device")


def test_a_run_whose_manifest_cannot_be_written_is_no_result(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise HostError("cannot write manifest.json: No space left on device")

    monkeypatch.setattr(module, "write_json", refuse)
    ended = run_task(task, lambda _: None, boot=boot_that(WorkloadFailed("x")))
    assert (ended.exit_code, ended.by_host) == (3, True)
    assert [path.name for path in task.directory.path.parent.iterdir()] == [f"{task.run.id}.failed"]


def test_a_run_that_is_interrupted_while_it_gets_its_last_name_is_not_left_running(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KeyboardInterrupt comes between any two instructions: here at each call that tidies up."""
    for place in ("write_json", "rmtree", "rename", "salvage"):
        interrupts = iter([KeyboardInterrupt])

        def interrupted(
            real: Callable[..., None], interrupts: Iterator[type[KeyboardInterrupt]] = interrupts
        ) -> Callable[..., None]:
            def call(*words: object, **more: object) -> None:
                gone = str(words[0]).endswith(".running")  # what earlier attempts left
                if end := None if gone and real is shutil.rmtree else next(interrupts, None):
                    raise end
                real(*words, **more)

            return call

        with monkeypatch.context() as patch:
            match place:
                case "write_json" | "salvage":
                    patch.setattr(module, place, interrupted(getattr(module, place)))
                case "rmtree":
                    patch.setattr(shutil, "rmtree", interrupted(shutil.rmtree))
                case "rename":
                    patch.setattr(Path, "rename", interrupted(Path.rename))
            with pytest.raises(KeyboardInterrupt):
                run_task(task, lambda _: None, boot=boot_that(WorkloadFailed("x")))
        left = [path.name for path in task.directory.path.parent.iterdir()]
        assert left == [f"{task.run.id}.interrupted"], place
        stored = load_manifest(task.results.interrupted(task.run.id))
        assert stored.status is RunStatus.INTERRUPTED, place


def test_a_run_that_was_interrupted_when_it_was_done_is_whole_or_none(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boot(task: Task, *_: object) -> Outcome:
        task.directory.path.mkdir(parents=True)
        return cast(Outcome, SimpleNamespace(status=0, collected=Collected({}, ())))

    def refuse(path: Path, _: object) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr("numalab.campaign.run_task.describe_outcome", lambda record, _: record)
    monkeypatch.setattr(module, "measure", lambda _task, _files, record, **_: record)
    monkeypatch.setattr(module, "write_json", refuse)
    with pytest.raises(KeyboardInterrupt):
        run_task(task, lambda _: None, boot=boot)
    left = [path.name for path in task.directory.path.parent.iterdir()]
    assert left == [f"{task.run.id}.interrupted"]


_IGNORED = "ERROR: ld.so: object 'x.so' from LD_PRELOAD cannot be preloaded (no file): ignored.\n"


@pytest.mark.parametrize(
    ("times", "errors", "why"),
    [
        ("elapsed 1.0\n", "a\n", ""),
        (None, "", "left no times: it, or what"),
        ("elapsed 1.0\n", f"a\n{_IGNORED}", f"ran without a library: {_IGNORED.strip()}"),
    ],
)
def test_a_status_of_0_does_not_hide_a_failure(
    task: Task, monkeypatch: pytest.MonkeyPatch, times: str | None, errors: str, why: str
) -> None:
    """`perf stat` returns 0 for a program that was killed, which then left no times."""

    def boot(task: Task, *_: object) -> Outcome:
        task.directory.out.mkdir(parents=True)
        if times is not None:
            task.directory.times.write_text(times)
        task.directory.stderr.write_text(errors)
        return cast(Outcome, SimpleNamespace(status=0, collected=Collected({}, ())))

    monkeypatch.setattr("numalab.campaign.run_task.describe_outcome", lambda record, _: record)
    monkeypatch.setattr(module, "measure", lambda _task, _files, record, **_: record)
    counting = replace(task, capture=replace(task.capture, perf_stat=("cycles",)))
    ended = run_task(counting, lambda _: None, boot=boot)
    assert why in ended.error and bool(why) is bool(ended.error)


def test_a_run_that_filled_its_job_disk_fails_for_that(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    def boot(task: Task, *_: object) -> Outcome:
        task.directory.out.mkdir(parents=True)
        return cast(
            Outcome, SimpleNamespace(status=0, collected=Collected({"vmstat.after": 0}, ()))
        )

    monkeypatch.setattr("numalab.campaign.run_task.describe_outcome", lambda record, _: record)
    ended = run_task(task, lambda _: None, boot=boot)
    assert ended.error.startswith("the job disk (128 MiB) is full: the command's output and files")
