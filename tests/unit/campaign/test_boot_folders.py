"""The run directories of `numalab boot` in the cache: which stay, and which go."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import numalab.campaign.boot as boot_module
from numalab.campaign.boot import Booted, boot
from numalab.cli.guest.boot import printed_if_lost
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
        collected = Collected({"status": 2, "vmstat.after": 0}, ())
        return SimpleNamespace(collected=collected, new_notes=("not taken: x",))

    monkeypatch.setattr(boot_module, "run_guest", ending)
    machine = SimpleNamespace(job_disk_mib=128)
    with pytest.raises(WorkloadFailed, match=r"the job disk \(128 MiB\) is full") as caught:
        boot(machine, None, ("true",), returned=tmp_path / "out")  # type: ignore[arg-type]
    assert caught.value.printed == (b"printed", b"")
    assert caught.value.notes == ("not taken: x",)
    assert (tmp_path / "out/big").read_text() == "begin"


def test_a_full_disk_of_the_host_does_not_hide_why_the_guest_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(_directory: RunDir, folder: Path) -> None:
        raise HostError(f"cannot write {folder}: No space left on device")

    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(boot_module, "copy_returned", full)
    text = f"cannot write {tmp_path}: No space left on device"

    def lost(_machine: object, _job: object, directory: RunDir, **_: Any) -> None:
        directory.returned.mkdir(parents=True)
        directory.stdout.write_text("printed")
        raise GuestLost("it panicked", kept=directory.path)

    monkeypatch.setattr(boot_module, "run_guest", lost)
    with pytest.raises(GuestLost, match="it panicked") as caught, printed_if_lost(as_json=False):
        boot(None, None, ("true",), returned=tmp_path)  # type: ignore[arg-type]
    assert caught.value.notes == (text,)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("printed", f"numalab: {text}\n")

    ended = Booted(b"printed", b"", cast(Any, SimpleNamespace(new_notes=("note",))), (), None)
    monkeypatch.setattr(boot_module, "boot_in", lambda *_, **__: ended)
    with pytest.raises(HostError, match="No space left") as failed:
        boot(None, None, ("true",), returned=tmp_path)  # type: ignore[arg-type]
    assert (failed.value.printed, failed.value.notes) == ((b"printed", b""), ("note",))
