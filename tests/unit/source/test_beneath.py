import os
from pathlib import Path

import pytest

from numalab.errors import HostError
from numalab.source.plain_files import (
    NotPlain,
    SourceFile,
    names_below,
    read_file,
    read_permissions,
    remove_file,
    write_file,
)


def test_files_come_and_go_with_their_folders(tmp_path: Path) -> None:
    root = tmp_path / "root"
    file = SourceFile("\udcff\r\n", executable=True)
    assert read_file(root, "a/b/c") is None
    write_file(root, "a/b/c", file, 0o700)
    write_file(root, "a/d", SourceFile("d"))
    assert read_file(root, "a/b/c") == file
    assert read_permissions(root, "a/b/c") == 0o700
    assert (root / "a/b/c").read_bytes() == b"\xff\r\n"
    assert read_file(root, "a/d/below-a-file") is None
    remove_file(root, "a/b/c")
    assert set(names_below(root)) == {"a/d"}
    assert not (root / "a/b").exists()
    (root / "empty" / "deep").mkdir(parents=True)
    write_file(root, "empty", SourceFile("a file now"))
    assert set(names_below(root)) == {"a/d", "empty"}
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


@pytest.mark.parametrize("name", ["link/f", "file", "../outside/f", "/f", "a//b", ".", "", "a\0b"])
def test_no_name_leads_elsewhere(tmp_path: Path, name: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    (outside / "f").write_text("secret")
    (root / "link").symlink_to("../outside")
    (root / "file").symlink_to("../outside/f")
    with pytest.raises(NotPlain):
        read_file(root, name)
    if name == "file":
        write_file(root, name, SourceFile("mine"))
        assert read_file(root, name) == SourceFile("mine")
    else:
        with pytest.raises(NotPlain):
            write_file(root, name, SourceFile("mine"))
        if name:
            with pytest.raises(NotPlain):
                remove_file(root, name)
    assert (outside / "f").read_text() == "secret"
    assert [path.name for path in outside.iterdir()] == ["f"]


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    os.mkfifo(root / "fifo")
    for name, message in (("folder", "folder is a folder"), ("fifo", "fifo is a FIFO")):
        with pytest.raises(NotPlain, match=message):
            read_file(root, name)
        assert read_permissions(root, name) is None
    (tmp_path / "link").symlink_to(root)
    with pytest.raises(HostError, match="link is a symbolic link"):
        read_file(tmp_path / "link", "f")
