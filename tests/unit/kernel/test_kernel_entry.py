"""The cache entry of a kernel: what is stored is what is loaded, or nothing is."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from numalab.artifact.digest import hash_file
from numalab.kernel.kernel_artifact import KERNELS, BuiltKernel
from numalab.kernel.old_kernels import PAUSE
from numalab.source.series import SeriesInfo

SERIES = (SeriesInfo("mine", "5" * 64, ("one.patch", "two.patch")),)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def built(tmp_path: Path) -> BuiltKernel:
    files = {name: tmp_path / name for name in ("bzImage", "config", "vmlinux")}
    for name, path in files.items():
        path.write_text(name)
    KERNELS.write(
        KERNELS.entry("d1"),
        BuiltKernel(
            spec_name="k", digest="d1", bzimage=files["bzImage"], config=files["config"],
            symbols=files["vmlinux"], release="6.12.1", series=SERIES, source_version="6.12.1",
            seconds=1.5, compiler="gcc 12", first_name="base", first_seconds=60.0,
            config_hash="c" * 64, bzimage_sha256=hash_file(files["bzImage"]),
        ),
    )  # fmt: skip
    kernel = load()
    assert kernel is not None
    return kernel


def load(name: str = "k") -> BuiltKernel | None:
    return KERNELS.read(KERNELS.entry("d1"), spec_name=name)


def test_what_is_stored_is_loaded(built: BuiltKernel) -> None:
    assert load() == built
    assert built.bzimage.read_text() == "bzImage"
    assert built.symbols is not None and built.symbols.read_text() == "vmlinux"
    assert built.initrd is None


def test_an_entry_answers_to_every_name_of_its_inputs(built: BuiltKernel) -> None:
    assert load("another") == dataclasses.replace(built, spec_name="another")
    pauses = (SeriesInfo("relax-at-bring-up", "5" * 64, ("one.patch", "two.patch")),)
    kernel = KERNELS.read(KERNELS.entry("d1"), spec_name="k", series=pauses)
    assert kernel == dataclasses.replace(built, series=pauses)


def test_a_cache_may_be_moved(
    built: BuiltKernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "elsewhere"))
    kernel = load()
    assert kernel is not None and kernel.config is not None
    assert kernel.bzimage == tmp_path / "elsewhere/kernels/d1/bzImage"
    assert kernel.config.read_text() == "config"


def rewrite(**changes: Any) -> None:
    record = KERNELS.entry("d1") / "kernel.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | changes))


def test_an_entry_of_before_there_were_symbols(built: BuiltKernel) -> None:
    record = KERNELS.entry("d1") / "kernel.json"
    older = json.loads(record.read_text())
    del older["symbols"], older["initrd"]
    record.write_text(json.dumps(older))
    assert load() == dataclasses.replace(built, symbols=None)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda entry: (entry / "bzImage").write_text("another"),
        lambda entry: (entry / "bzImage").unlink(),
        lambda entry: (entry / "config").unlink(),
        lambda entry: (entry / "vmlinux").unlink(),
        lambda entry: (entry / "kernel.json").write_text("{"),
        lambda entry: (entry / "kernel.json").write_text("[]"),
        lambda _: rewrite(digest="d2"),
        lambda _: rewrite(series=[{"name": "mine"}]),
        lambda _: rewrite(more=1),
    ],
)
def test_a_spoiled_entry_is_none(built: BuiltKernel, spoil: Any) -> None:
    spoil(KERNELS.entry("d1"))
    assert load() is None


@pytest.mark.parametrize(
    ("release", "keeps_trace", "runs_in_icount"),
    [
        ("6.12.117", True, True),
        ("6.11.9", False, True),
        ("6.5.0-rc1", False, True),
        ("6.4.16", False, False),
        ("5.10.0-30-amd64", False, False),
        ("7.0", True, True),
        ("mine", True, True),  # nobody can tell, and a newer kernel is more likely
    ],
)
def test_what_a_release_can(
    built: BuiltKernel, release: str, *, keeps_trace: bool, runs_in_icount: bool
) -> None:
    kernel = dataclasses.replace(built, release=release)
    assert (kernel.keeps_trace, kernel.runs_in_icount) == (keeps_trace, runs_in_icount)
    for pauses in (
        SeriesInfo("relax-at-bring-up", "0", ()),
        SeriesInfo("relax-at-bring-up-and-1", "0", (PAUSE, "another")),
    ):
        assert dataclasses.replace(kernel, series=(pauses,)).runs_in_icount
