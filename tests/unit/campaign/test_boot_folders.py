"""The run directories of `numalab boot` in the cache: which stay, and which go."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import numalab.campaign.boot as boot_module
from numalab.campaign.boot import boot
from numalab.errors import (
    GuestLost,
    HostError,
    LabError,
    TopologyMismatch,
    UserError,
    WorkloadFailed,
)
from numalab.qemu.collect import Collected
from numalab.run_dir import RunDir

Boot = Callable[..., Path]


@pytest.fixture
def booted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boot:
    """Return a function that boots a guest which ends with an error; it returns the boots."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))

    def run(error: BaseException, keep: Path | None = None) -> Path:
        def ending(_machine: object, _job: object, directory: RunDir, **_: Any) -> None:
            directory.path.mkdir(exist_ok=True)
            directory.job_disk.write_bytes(b"x")
            if isinstance(error, GuestLost):
                raise GuestLost("it panicked", kept=directory.path)
            raise error

        monkeypatch.setattr(boot_module, "run_guest", ending)
        with pytest.raises(type(error)) as caught:
            boot(None, None, ("true",), keep=keep)  # type: ignore[arg-type]
        if isinstance(caught.value, GuestLost) and caught.value.kept is not None:
            assert (caught.value.kept / "job.img").is_file()
        return tmp_path / "cache" / "boots"

    return run


@pytest.mark.parametrize(
    "error", [HostError("no space left"), TopologyMismatch("x"), KeyboardInterrupt(), OSError(28)]
)
def test_a_boot_that_fails_removes_its_folder(booted: Boot, error: BaseException) -> None:
    assert list(booted(error).iterdir()) == []


def test_a_lost_guest_is_kept_until_it_is_pruned(booted: Boot) -> None:
    booted(GuestLost(""))
    [kept] = booted(HostError("x")).iterdir()
    assert kept.name.startswith("lost-")


def test_the_next_boot_removes_what_a_killed_one_left(booted: Boot, tmp_path: Path) -> None:
    left = tmp_path / "cache" / "boots" / "boot-killed"
    left.mkdir(parents=True, mode=0o700)
    (left / "job.img").touch()
    (tmp_path / "cache" / "boots" / "lost-x").mkdir()
    assert [path.name for path in booted(HostError("x")).iterdir()] == ["lost-x"]


@pytest.mark.parametrize("error", [HostError("x"), GuestLost("")])
def test_a_folder_to_keep_stays_as_it_is(booted: Boot, tmp_path: Path, error: LabError) -> None:
    keep = tmp_path / "keep"
    booted(error, keep)
    assert [path.name for path in keep.iterdir()] == ["job.img"]
    with pytest.raises(UserError, match="is not an empty folder"):
        boot(None, None, ("true",), keep=keep)  # type: ignore[arg-type]


def test_what_was_written_before_the_job_disk_was_full_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))

    def ending(_machine: object, _job: object, directory: RunDir, **_: Any) -> SimpleNamespace:
        directory.returned.mkdir(parents=True)
        (directory.returned / "big").write_text("begin")
        directory.stdout.write_text("printed")
        directory.stderr.write_text("")
        directory.exit_status.write_text("")
        return SimpleNamespace(collected=Collected({"status": 0}, ()))

    monkeypatch.setattr(boot_module, "run_guest", ending)
    machine = SimpleNamespace(job_disk_mib=128)
    with pytest.raises(WorkloadFailed, match=r"the job disk \(128 MiB\) is full") as caught:
        boot(machine, None, ("true",), returned=tmp_path / "out")  # type: ignore[arg-type]
    assert caught.value.printed == (b"printed", b"")
    assert (tmp_path / "out/big").read_text() == "begin"
