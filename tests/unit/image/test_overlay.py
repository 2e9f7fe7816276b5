import os
import socket
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.image.image_artifact import copy_onto, describe_tree


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """What a user wants in the image: a program, a link, a folder."""
    folder = tmp_path / "own"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/tool").write_text("new", encoding="utf-8")
    (folder / "bin/tool").chmod(0o755)
    (folder / "bin/also").symlink_to("tool")
    (folder / "etc/empty").mkdir(parents=True)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A Debian tree in small: /bin is a link, /var/run an absolute one."""
    tree = tmp_path / "tree"
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/tool").write_text("old", encoding="utf-8")
    (tree / "bin").symlink_to("usr/bin")
    (tree / "run").mkdir()
    (tree / "var").mkdir()
    (tree / "var/run").symlink_to("/run")
    return tree


def test_files_replace_those_of_the_tree_through_its_links(own: Path, tree: Path) -> None:
    copy_onto(own, tree)
    tool = tree / "usr/bin/tool"
    assert tool.read_text(encoding="utf-8") == "new"
    assert tool.stat().st_mode & 0o777 == 0o755
    assert (tree / "usr/bin/also").readlink() == Path("tool")
    assert (tree / "etc/empty").is_dir()
    assert (tree / "bin").is_symlink()


def test_an_absolute_link_does_not_lead_out_of_the_tree(own: Path, tree: Path) -> None:
    outside = tree.parent / "outside"
    outside.mkdir()
    (tree / "srv").symlink_to(outside)
    (tree / "up").symlink_to("../../../../outside")
    for name in ("var/run", "srv", "up"):
        (own / name).mkdir(parents=True)
        (own / name / "mine").write_text("mine", encoding="utf-8")
    copy_onto(own, tree)
    assert (tree / "run/mine").exists()
    assert not any(outside.iterdir())
    assert (tree / str(outside).lstrip("/") / "mine").exists()
    assert (tree / "outside/mine").exists()


def test_links_in_a_circle_are_refused(own: Path, tree: Path) -> None:
    (tree / "bin").unlink()
    (tree / "bin").symlink_to("nib")
    (tree / "nib").symlink_to("bin")
    with pytest.raises(UserError, match="too many links"):
        copy_onto(own, tree)


def test_a_file_does_not_replace_a_folder_nor_the_other_way_round(own: Path, tree: Path) -> None:
    (own / "usr").mkdir()
    (own / "usr/bin").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=r"own/usr/bin: the image has a folder of this name"):
        copy_onto(own, tree)
    (own / "usr/bin").unlink()
    (own / "usr/bin/tool").mkdir(parents=True)
    with pytest.raises(UserError, match=r"tool: the image has a file of this name"):
        copy_onto(own, tree)


def test_a_description_changes_with_whatever_changes(own: Path) -> None:
    tree_before = [describe_tree(own)]
    (own / "bin/tool").write_text("newer", encoding="utf-8")
    tree_before.append(describe_tree(own))
    (own / "bin/tool").chmod(0o644)
    tree_before.append(describe_tree(own))
    (own / "bin/also").unlink()
    (own / "bin/also").symlink_to("other")
    tree_before.append(describe_tree(own))
    (own / "etc/empty").rename(own / "etc/void")
    tree_before.append(describe_tree(own))
    assert len({tuple(path) for path in tree_before}) == len(tree_before)
    os.utime(own / "bin/tool", (1, 1))
    assert describe_tree(own) == tree_before[-1]


def test_what_is_no_file_is_refused(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(own)  # a socket's path may not be long
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(UserError, match="neither a file, a folder nor a link"):
            describe_tree(own)
