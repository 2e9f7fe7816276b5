"""Debian source packages: what is fetched is kept whole, and unpacked whole or not at all."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.errors import BuildError, HostError, UserError
from numalab.source import source_package as module
from numalab.source.debian_packages import NotFetched
from numalab.source.source_package import fetch_source_package, fetched_source, unpack_source


def quiet(_message: str, _part: float | None) -> None:
    pass


def write_package(folder: Path, *, spoiled: bool = False) -> None:
    """A package of one file, in dpkg-source's format `3.0 (native)` (dpkg-source(1))."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:xz") as tar:
        for name in ("Makefile", "debian/rules"):
            entry = tarfile.TarInfo(f"small-1.2/{name}")
            entry.size = 5
            tar.addfile(entry, io.BytesIO(b"all:\n"))
    data = packed.getvalue()
    name = "small_1.2.tar.xz"
    sums = f"{hashlib.md5(data).hexdigest()} {len(data)} {name}"
    (folder / "small_1.2.dsc").write_text(
        "Format: 3.0 (native)\nSource: small\nVersion: 1.2\nMaintainer: x <x@y.z>\n"
        f"Files:\n {sums}\n"
    )
    (folder / name).write_bytes(data[:-9] if spoiled else data)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A mirror that has the package; gives what was asked of it."""
    asked: list[str] = []
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))

    def update(suite: str, *_: object) -> list[str]:
        asked.append(suite)
        return []

    monkeypatch.setattr(module, "update_lists", update)

    def download(_apt: list[str], package: str, folder: Path) -> None:
        asked.append(package)
        write_package(folder)

    monkeypatch.setattr(module, "_download", download)
    return asked


def test_a_package_is_fetched_once(mirror: list[str]) -> None:
    with pytest.raises(NotFetched, match="the source package small/old is not in the cache"):
        fetched_source("small/old")
    first = fetch_source_package("small/old", quiet)
    assert mirror == ["old", "small"]
    assert [path.name for path in first.files] == ["small_1.2.dsc", "small_1.2.tar.xz"]
    assert first.versions == ("small=1.2",)
    assert fetch_source_package("small/old", quiet) == first == fetched_source("small/old")
    assert mirror == ["old", "small"]


def test_the_digest_is_that_of_the_files(mirror: list[str]) -> None:
    fetched = fetch_source_package("small/old", quiet)
    sums = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in fetched.files)
    assert fetched.digest == hashlib.sha256(sums.encode()).hexdigest()


def test_another_suite_is_another_package(mirror: list[str]) -> None:
    fetch_source_package("small/old", quiet)
    with pytest.raises(NotFetched):
        fetched_source("small/new")


def test_a_package_that_lacks_a_file_is_fetched_again(mirror: list[str]) -> None:
    fetched = fetch_source_package("small/old", quiet)
    fetched.files[1].unlink()
    with pytest.raises(NotFetched):
        fetched_source("small/old")
    assert fetch_source_package("small/old", quiet).files[1].is_file()
    assert mirror.count("small") == 2


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        ("E: Unable to find a source package for small", UserError, "no source package 'small'"),
        ("E: Failed to fetch", HostError, "cannot download the source of small"),
    ],
)
def test_what_apt_says_is_explained_and_nothing_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: str,
    kind: type[Exception],
    message: str,
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "update_lists", lambda *_: [])
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 100\n")
    apt.chmod(0o755)
    monkeypatch.setattr(module, "find_program", lambda *_: apt)
    with pytest.raises(kind, match=message):
        fetch_source_package("small/old", quiet)
    assert not [entry for entry in (tmp_path / "cache/packages").iterdir() if entry.is_dir()]


def test_a_tree_is_unpacked_once(mirror: list[str], tmp_path: Path) -> None:
    fetched = fetch_source_package("small/old", quiet)
    tree = unpack_source(fetched, tmp_path / "tree")
    assert (tree / "Makefile").read_text() == "all:\n"
    (tree / "Makefile").write_text("changed")
    assert unpack_source(fetched, tree) == tree
    assert (tree / "Makefile").read_text() == "changed"


def spoil(files: tuple[Path, ...]) -> None:
    write_package(files[0].parent, spoiled=True)


def remove(files: tuple[Path, ...]) -> None:
    files[1].unlink()


@pytest.mark.parametrize("how", [spoil, remove])
def test_a_damaged_package_leaves_no_tree(
    mirror: list[str], tmp_path: Path, how: Callable[[tuple[Path, ...]], None]
) -> None:
    fetched = fetch_source_package("small/old", quiet)
    how(fetched.files)
    with pytest.raises(HostError, match=r"small=1\.2 changed after"):
        unpack_source(fetched, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_a_package_that_dpkg_source_refuses_leaves_no_tree(
    mirror: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def download(_apt: list[str], _package: str, folder: Path) -> None:
        write_package(folder, spoiled=True)

    monkeypatch.setattr(module, "_download", download)
    fetched = fetch_source_package("small/old", quiet)
    with pytest.raises(BuildError, match=r"cannot unpack .*small_1\.2\.dsc"):
        unpack_source(fetched, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
