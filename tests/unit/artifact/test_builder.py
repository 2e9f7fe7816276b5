"""The builder of all artifacts: built once, whole or absent, by one process at a time."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from numalab.artifact import kinds
from numalab.artifact.builder import (
    Artifact,
    Work,
    build,
    cached,
    existing_file,
    log_file,
    resumable_folder,
)
from numalab.artifact.cache import list_cache, remove_entry
from numalab.artifact.kinds import Kind, register_kind, unregister_kind
from numalab.errors import BuildError, HostError
from numalab.locks import locked


@pytest.fixture
def kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kind]:
    """A new kind in an empty cache, unregistered after the test."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    new = register_kind(Kind(name="state", folder="states", files="*"))
    yield new
    unregister_kind(new)


def artifact(kind: Kind, script: str = "echo saved >state") -> Artifact[Path]:
    def make(work: Work) -> None:
        folder = work.entry.parent
        work.step(["sh", "-ec", script], env={}, cwd=folder)
        (folder / "state").rename(work.entry)

    return Artifact(kind, "a guest", kind.entry("warm-5"), make, existing_file)


def test_an_artifact_is_built_once(kind: Kind) -> None:
    assert cached(artifact(kind)) is None
    path = build(artifact(kind))
    assert (path, path.read_text()) == (kind.entry("warm-5"), "saved\n")
    assert build(artifact(kind, "exit 1")) == path == cached(artifact(kind))


def test_an_entry_without_data_is_built_again(kind: Kind) -> None:
    build(artifact(kind)).write_bytes(b"")  # what a power cut may leave
    assert cached(artifact(kind)) is None
    assert build(artifact(kind)).read_text() == "saved\n"


def test_files_of_a_folder_are_on_the_disk_before_it_has_its_name(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, kind.entry("warm-5").exists()))

    monkeypatch.setattr(os, "fsync", fsync)

    def make(work: Work) -> None:
        (work.entry / "below").mkdir(parents=True)
        (work.entry / "below/config").write_text("CONFIG_SMP=y\n")

    build(
        Artifact(kind, "a kernel", kind.entry("warm-5"), make, lambda path: path.is_dir() or None)
    )
    assert synced == [("config", False)]


def test_a_failure_leaves_no_entry_and_its_log(kind: Kind) -> None:
    script = "echo half >state; echo 'x.c:1: error: bad'; exit 1"
    for _ in range(2):
        with pytest.raises(BuildError, match="a guest does not build\n") as caught:
            build(artifact(kind, script))
    log = log_file(kind, "a guest")
    assert (caught.value.log, log.read_text()) == (log, "x.c:1: error: bad\n")
    assert [path.name for path in kind.entry("x").parent.iterdir()] == [".warm-5.lock"]


def test_a_missing_tool_is_named_before_anything_runs(kind: Kind) -> None:
    missing = Artifact(
        kind, "x", kind.entry("x"), lambda _: 1 / 0, existing_file, tools={"no-tool": "package"}
    )
    with pytest.raises(HostError, match="no-tool is not installed\n  hint: apt-get install pack"):
        build(missing)


def test_a_second_process_waits_and_takes_the_entry_of_the_first(kind: Kind) -> None:
    steps: list[str] = []
    waiting = threading.Thread(
        target=build, args=(artifact(kind, "exit 1"), lambda step, _: steps.append(step))
    )
    with locked(kinds.entry_lock(kind.entry("warm-5"))):
        waiting.start()
        deadline = time.monotonic() + 30
        while not steps:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        kind.entry("warm-5").write_text("of the first")
    waiting.join()
    assert steps == ["waiting for another build"]


def test_a_registered_kind_is_listed_and_pruned(kind: Kind) -> None:
    build(artifact(kind))
    [entry] = list_cache()
    assert (entry.kind, entry.name, entry.in_use) == ("state", "warm-5", "used just now")
    with locked(kind.lock(entry.path)):
        assert [entry.in_use for entry in list_cache()] == ["in use"]
    assert remove_entry(entry)
    assert list_cache() == ()


def test_no_two_kinds_share_an_entry() -> None:
    entries = [(kind.folder, kind.files) for kind in kinds.all_kinds()]
    assert len(set(entries)) == len(entries)
    folders = {folder for folder, _ in entries}
    assert {"kernels", "images", "images/packages", "emulators", "programs"} <= folders


def test_a_folder_is_resumed_after_a_failure_and_not_after_a_kill(tmp_path: Path) -> None:
    out = tmp_path / "build"
    with pytest.raises(KeyboardInterrupt), resumable_folder(out):
        (out / "object.o").touch()
        raise KeyboardInterrupt
    with resumable_folder(out):
        assert (out / "object.o").exists()
    (out / "numalab.building").touch()
    with resumable_folder(out):
        assert not (out / "object.o").exists()
