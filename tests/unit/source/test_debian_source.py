"""Debian source packages: what is fetched is kept whole, and unpacked whole or not at all."""

import hashlib
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from numalab.errors import BuildError, HostError, UserError
from numalab.source import source_package as module
from numalab.source.debian_packages import Fetched, NotFetched
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


class Mirror:
    """A mirror that has the package; `requests` are the suites and packages it was asked for."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    def update(self, suite: str, *_: object) -> list[str]:
        self.requests.append(suite)
        return []

    def download(self, _apt: list[str], package: str, folder: Path) -> None:
        self.requests.append(package)
        write_package(folder)

    def fetch(self, text: str) -> Fetched:
        return fetch_source_package(text, quiet, self.download)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    mirror = Mirror()
    monkeypatch.setattr(module, "update_lists", mirror.update)
    return mirror


def test_a_package_is_fetched_once(mirror: Mirror) -> None:
    with pytest.raises(NotFetched, match="the source package small/old is not in the cache"):
        fetched_source("small/old")
    first = mirror.fetch("small/old")
    assert mirror.requests == ["old", "small"]
    assert [path.name for path in first.files] == ["small_1.2.dsc", "small_1.2.tar.xz"]
    assert first.versions == ("small=1.2",)
    assert mirror.fetch("small/old") == first == fetched_source("small/old")
    assert mirror.requests == ["old", "small"]


def test_the_digest_is_that_of_the_files(mirror: Mirror) -> None:
    fetched = mirror.fetch("small/old")
    sums = "".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in fetched.files)
    assert fetched.digest == hashlib.sha256(sums.encode()).hexdigest()


def test_another_suite_is_another_package(mirror: Mirror) -> None:
    mirror.fetch("small/old")
    with pytest.raises(NotFetched):
        fetched_source("small/new")


def test_a_package_that_lacks_a_file_is_fetched_again(mirror: Mirror) -> None:
    fetched = mirror.fetch("small/old")
    fetched.files[1].unlink()
    with pytest.raises(NotFetched):
        fetched_source("small/old")
    assert mirror.fetch("small/old").files[1].is_file()
    assert mirror.requests.count("small") == 2


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


def test_a_tree_is_unpacked_once(mirror: Mirror, tmp_path: Path) -> None:
    fetched = mirror.fetch("small/old")
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
    mirror: Mirror, tmp_path: Path, how: Callable[[tuple[Path, ...]], None]
) -> None:
    fetched = mirror.fetch("small/old")
    how(fetched.files)
    with pytest.raises(HostError, match=r"small=1\.2 changed after"):
        unpack_source(fetched, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()


def test_a_package_that_dpkg_source_refuses_leaves_no_tree(mirror: Mirror, tmp_path: Path) -> None:
    def download(_apt: list[str], _package: str, folder: Path) -> None:
        write_package(folder, spoiled=True)

    fetched = fetch_source_package("small/old", quiet, download)
    with pytest.raises(BuildError, match=r"cannot unpack .*small_1\.2\.dsc"):
        unpack_source(fetched, tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
