"""A cache that is missing, damaged, read-only or somebody else's."""

import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from numalab.artifact.cache import list_cache, remove_entry
from numalab.artifact.digest import hash_file, remembered
from numalab.campaign.cost_model import Costs
from numalab.document import read_record
from numalab.errors import HostError
from numalab.host.budget import cpus_in_use
from numalab.locks import is_locked, locked
from numalab.places import cache_dir
from numalab.process import run
from support.forked import numalab


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of an empty cache."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    return cache_dir()


def damages() -> dict[str, Callable[[Path], object]]:
    return {
        "pipe": os.mkfifo,
        "folder": Path.mkdir,
        "device": lambda path: path.symlink_to("/dev/zero"),
        "dangling": lambda path: path.symlink_to("/nowhere"),
        "loop": lambda path: path.symlink_to(path),
        **{
            text: lambda path, text=text: path.write_text(text)  # type: ignore[misc]
            for text in ("", "{", "null", "[]", "{}", '"text"', "1e999", "[[[", "[" * 100_000,
                         '{"facts": 1, "stat": [], "file": ""}', '{"k": [1' + "0" * 400 + "]}")
        },
        "bytes": lambda path: path.write_text("\xff\x00", encoding="latin-1"),
    }  # fmt: skip


@pytest.fixture(params=list(damages()), ids=lambda text: text[:20])
def damage(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    """Return a function that makes a damaged file."""
    return damages()[request.param]


@dataclass(frozen=True)
class Facts:
    names: tuple[str, ...]
    version: str


def test_a_damaged_record_is_none(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    record = tmp_path / "record.json"
    assert read_record(record, Facts) is None
    damage(record)
    assert read_record(record, Facts) is None


def test_a_record_has_the_types_it_is_read_with(tmp_path: Path) -> None:
    (tmp_path / "record").write_text('{"names": ["a"], "version": "1"}')
    assert read_record(tmp_path / "record", Facts) == Facts(("a",), "1")
    (tmp_path / "record").write_text('{"names": ["a"], "version": ["1"]}')
    assert read_record(tmp_path / "record", Facts) is None


def test_a_file_is_hashed_again_where_the_memory_of_it_is_damaged(
    cache: Path, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    facts = {"sha256": hash_file(file), "kind": "text"}
    assert remembered(file, lambda _: {"kind": "text"}) == facts
    [memory] = (cache / "files").iterdir()
    memory.unlink()
    damage(memory)
    if memory.is_dir():
        memory.rmdir()  # cannot be replaced by a file, see below
    assert remembered(file, lambda _: {"kind": "text"}) == facts
    if memory.is_file():
        assert remembered(file, lambda _: {"kind": "changed"}) == facts, "remembered again"


def test_a_memory_that_cannot_be_written_is_done_without(cache: Path, tmp_path: Path) -> None:
    file = tmp_path / ("n" * 250)
    file.write_text("x")
    assert remembered(file, lambda _: {})["sha256"] == hash_file(file)
    [memory] = (cache / "files").iterdir()
    memory.unlink()
    memory.mkdir()
    assert remembered(file, lambda _: {})["sha256"] == hash_file(file)


def test_damaged_costs_are_dropped(cache: Path, damage: Callable[[Path], object]) -> None:
    (cache / "costs").mkdir()
    damage(cache / "costs" / "runs.json")
    assert Costs()._known == {}


def test_a_damaged_budget_is_one_message(cache: Path, damage: Callable[[Path], object]) -> None:
    (cache / "host").mkdir()
    budget = cache / "host" / "budget.json"
    damage(budget)
    if budget.is_file() and budget.read_bytes() == b"[]":
        assert cpus_in_use().cpus == frozenset()
        return
    with pytest.raises(HostError, match=r"budget.json cannot be read: [^\n]+\n  hint: rm -r .*"):
        cpus_in_use()


@pytest.mark.parametrize("kind", ["pipe", "device", "dangling", "loop"])
def test_what_cannot_be_locked_is_one_message(tmp_path: Path, kind: str) -> None:
    lock = tmp_path / "lock"
    damages()[kind](lock)
    assert not is_locked(lock)
    with pytest.raises(HostError, match=r"cannot lock .*/lock: "), locked(lock):
        pass


def test_a_folder_and_a_new_file_can_be_locked(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for path in (tmp_path, tmp_path / "link", tmp_path / "new"):
        with locked(path):
            assert is_locked(path)
        assert not is_locked(path)


def test_the_cache_is_listed_whatever_lies_in_it(
    cache: Path, damage: Callable[[Path], object]
) -> None:
    for folder in ("kernels", "images/packages", "kernel-trees/t", "emulators/e", "packages"):
        (cache / folder).mkdir(parents=True)
    names = ("kernels/k", "images/packages/x.tar", "kernel-trees/t/lock", "images/base.lock",
             "emulators/e/emulator.json", "packages/p.lock", "kernels/.pruned-1-k")  # fmt: skip
    for name in names:
        damage(cache / name)
    (cache / "kernel-trees/t/source").write_text("x")
    for entry in list_cache():
        try:
            remove_entry(entry)
        except HostError as error:
            assert "cannot " in str(error)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    small = tmp_path / "small"
    small.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", small])
    try:
        yield small
    finally:
        run(["umount", small])


READING = (("kernel", "list"), ("image", "list"), ("cache", "list"), ("topology", "list"),
           ("plan", "group-construction"))  # fmt: skip


@pytest.mark.parametrize("words", READING, ids=" ".join)
def test_commands_that_only_look_work_with_a_cache_that_is_read_only(
    small_disk: Path, words: tuple[str, ...]
) -> None:
    env = os.environ | {"NUMALAB_CACHE": str(small_disk / "cache")}
    assert numalab(*words, env=env).returncode == 0
    run(["mount", "-o", "remount,ro", small_disk])
    done = numalab(*words, env=env)
    assert (done.returncode, "numalab:" in done.stderr) == (0, False), done.stderr


def test_a_read_only_place_for_a_new_cache_is_one_message(small_disk: Path) -> None:
    run(["mount", "-o", "remount,ro", small_disk])
    env = os.environ | {"NUMALAB_CACHE": str(small_disk / "cache")}
    done = numalab("cache", "list", env=env)
    assert done.returncode == 3
    assert done.stderr == (
        f"numalab: cannot create {small_disk}/cache: Read-only file system\n"
        "  hint: set NUMALAB_CACHE to a folder of your own\n"
    )


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.touch(), "cannot create .*: File exists"),
        (os.mkfifo, "cannot create .*: File exists"),
        (lambda path: path.symlink_to("/nowhere"), "cannot create .*: File exists"),
        (lambda path: path.symlink_to(path), "cannot create .*: "),
        (lambda path: (path.mkdir(), path.chmod(0o777)), "other users may write to the cache"),
        (lambda path: (path.mkdir(), path.chmod(0o772)), "other users may write to the cache"),
    ],
)
def test_a_cache_that_cannot_be_used_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], reason: str
) -> None:
    make(tmp_path / "cache")
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(HostError, match=reason):
        cache_dir("kernels")


def test_the_cache_of_another_user_is_refused(cache: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    os.chown(cache, 4242, 4242)
    with pytest.raises(HostError, match=r"belongs to another user\n  hint: set NUMALAB_CACHE"):
        cache_dir("kernels")


def test_a_folder_of_another_user_in_the_cache_is_refused(cache: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a folder of another user")
    (cache / "kernels").mkdir()
    os.chown(cache / "kernels", 4242, 4242)
    with pytest.raises(HostError, match="kernels belongs to another user"):
        cache_dir("kernels", "below")


def test_a_relative_cache_is_below_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMALAB_CACHE", "mine")
    assert cache_dir("kernels") == tmp_path / "mine" / "kernels"


def test_a_user_without_home_is_told_to_name_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("NUMALAB_CACHE", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    for caches in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", caches)
        with pytest.raises(HostError, match=r"HOME is not set, .*\n  hint: set NUMALAB_CACHE"):
            cache_dir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "numalab"


HOMELESS = """
import os, sys
os.environ.pop("HOME", None), os.environ.pop("NUMALAB_CACHE", None)
os.getuid = lambda: 4242
from numalab.cli.entry import main
main()
"""
NO_HOME = "numalab: HOME is not set, and user 4242 has no home folder\n  hint: set NUMALAB_CACHE"


@pytest.mark.parametrize(
    ("words", "code"),
    [("topology show ring-4", 0), ("measures", 0), ("workload list", 0), ("--version", 0),
     ("host show", 0), ("cache list", 3), ("kernel list", 3), ("image list", 3),
     ("plan group-construction", 3), ("doctor", 3), ("boot ring-2 -- true", 3)],
)  # fmt: skip
def test_a_user_id_that_has_no_entry_in_passwd(words: str, code: int) -> None:
    argv = [sys.executable, "-c", HOMELESS, *words.split()]
    env = {name: text for name, text in os.environ.items() if not name.startswith("XDG_")}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    if code and words != "doctor":
        assert done.stderr.startswith(NO_HOME)
    assert "Traceback" not in done.stderr


def test_a_file_is_locked_as_nfs_wants_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its exclusive lock needs a file that is open for writing: flock(2)."""

    def lock(descriptor: int, operation: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(descriptor, operation)

    flock = fcntl.flock
    monkeypatch.setattr("numalab.locks.flock", lock)
    with locked(cache / "file"):
        assert is_locked(cache / "file")
    with (
        pytest.raises(HostError, match=r"cannot lock .*/cache: Bad file descriptor"),
        locked(cache),
    ):
        pass
    with pytest.raises(HostError, match=r"cannot lock .*/cache: Bad file descriptor"):
        is_locked(cache)
