"""Images as ext4, for kernels that cannot mount erofs: the same files, always the same bytes."""

import os
import random
from pathlib import Path

import pytest

from numalab.image.ext4_artifact import ensure_ext4, pack_ext4
from numalab.image.image_artifact import BuiltImage, make_erofs
from numalab.image.package_tarball import EPOCH
from support.ext4_disks import contents, debugfs, grow_tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    grow_tree(random.Random(3), folder)
    (folder / "etc").mkdir()
    (folder / "etc/passwd").write_text("root", encoding="utf-8")
    (folder / "bin").symlink_to("usr/bin")
    (folder / "long").symlink_to("x" * 200)
    setuid = folder / "mount"
    setuid.write_text("setuid", encoding="utf-8")
    setuid.chmod(0o4755)
    return folder


@pytest.fixture
def image(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuiltImage:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "root.erofs"
    make_erofs(tree, path, "5" * 64)
    return BuiltImage("tiny", path, "5" * 64, path.stat().st_size, ())


def test_it_has_the_files_of_the_erofs_image(image: BuiltImage, tree: Path, tmp_path: Path) -> None:
    ext4 = ensure_ext4(image)
    assert ext4.stat().st_size % (2 << 20) == 0
    (tmp_path / "out").mkdir()
    debugfs(ext4, f"rdump / {tmp_path / 'out'}")
    assert contents(tmp_path / "out") == contents(tree)
    listed = debugfs(ext4, "stat mount", "stat bin", "stat long")
    assert "Mode:  04755" in listed
    assert 'Fast link dest: "usr/bin"' in listed
    assert f"Size: {200}" in listed


def test_it_is_made_once(image: BuiltImage) -> None:
    first = ensure_ext4(image)
    before = first.stat()
    assert ensure_ext4(image) == first
    assert first.stat().st_ino == before.st_ino


def test_owner_and_times_of_the_host_are_not_in_it(tree: Path, tmp_path: Path) -> None:
    for path in tree.rglob("*"):
        os.utime(path, (1, 1), follow_symlinks=False)
        if os.geteuid() == 0:
            os.chown(path, 1234, 99999, follow_symlinks=False)
    pack_ext4(tree, tmp_path / "one.ext4")
    listed = debugfs(tmp_path / "one.ext4", "stat etc/passwd")
    assert "User:     0   Group:     0" in listed
    assert listed.count(f"0x{EPOCH:08x}") >= 3
    for path in tree.rglob("*"):
        os.utime(path, (2, 2), follow_symlinks=False)
    pack_ext4(tree, tmp_path / "two.ext4")
    assert (tmp_path / "one.ext4").read_bytes() == (tmp_path / "two.ext4").read_bytes()


def test_the_order_in_which_a_tree_was_written_does_not_matter(tmp_path: Path) -> None:
    names = [f"{number:03}" for number in range(300)]
    for folder, order in (("up", names), ("down", names[::-1])):
        (tmp_path / folder).mkdir()
        for name in order:
            (tmp_path / folder / name).write_text(name, encoding="utf-8")
        pack_ext4(tmp_path / folder, tmp_path / f"{folder}.ext4")
    assert (tmp_path / "up.ext4").read_bytes() == (tmp_path / "down.ext4").read_bytes()
