"""Unfinished folders: removed when their process is gone, left alone while it lives."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from numalab.files import replacing, write_text
from numalab.scratch import scratch_folder

HOLD = """
import sys
from pathlib import Path
from numalab.files import replacing
from numalab.scratch import scratch_folder

with {block} as path:
    if not path.exists():
        path.mkdir()
    (path / "half").write_text("x")
    print(path, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(block: str) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """Run a process that stands in a block until its stdin ends; give it and its folder."""
    argv = [sys.executable, "-c", HOLD.format(block=block)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().rstrip("\n"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_next_write_removes_what_a_killed_process_left(tmp_path: Path) -> None:
    with holding(f"replacing(Path({str(tmp_path / 'results')!r}))") as (process, unfinished):
        assert unfinished.is_dir()
        write_text(tmp_path / "other", "")
        assert unfinished.is_dir(), "its process lives"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert len(names(tmp_path)) == 2
    with replacing(tmp_path / "another") as path:
        path.write_text("")
    assert names(tmp_path) == ["another", "other"]


def test_a_living_process_keeps_its_folder_and_takes_it_along(tmp_path: Path) -> None:
    block = f"scratch_folder(Path({str(tmp_path)!r}), 'boot-')"
    with holding(block) as (process, folder):
        with scratch_folder(tmp_path, "boot-") as own:
            assert {own, folder} == set(tmp_path.iterdir())
        assert list(tmp_path.iterdir()) == [folder]
        process.communicate("")
    assert names(tmp_path) == []


def test_what_is_not_such_a_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "boot-link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "boot-file").touch()
    (tmp_path / "boots").mkdir()
    os.mkfifo(tmp_path / "boot-pipe")
    (tmp_path / "boot-old").mkdir()
    with scratch_folder(tmp_path, "boot-"):
        pass
    assert names(tmp_path) == ["boot-file", "boot-link", "boot-pipe", "boots", "elsewhere"]


def test_a_folder_of_another_user_stays(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    (tmp_path / "boot-theirs").mkdir()
    os.chown(tmp_path / "boot-theirs", 4242, 4242)
    with scratch_folder(tmp_path, "boot-"):
        pass
    assert names(tmp_path) == ["boot-theirs"]


def test_many_at_once_never_lose_a_folder(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
from numalab.scratch import scratch_folder
for number in range(200):
    with scratch_folder(Path({str(tmp_path)!r}), "boot-") as path:
        (path / "file").write_text("x")
        assert (path / "file").read_text() == "x"
"""
    processes = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(4)]
    assert [process.wait() for process in processes] == [0] * 4
    assert names(tmp_path) == []
