"""The reader of ext4: against debugfs where a disk is sound, within its bounds where it is not."""

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.ext4.layout import (
    ROOT_INODE,
    S_IFDIR,
    S_IFREG,
    DamagedDisk,
    Inode,
    parse_names,
    parse_node,
    parse_superblock,
)
from numalab.ext4.volume import MOST_METADATA, Volume
from support.ext4_disks import contents, debugfs, grow_tree, make_disk, rdump


@contextmanager
def opened(disk: Path) -> Iterator[Volume]:
    descriptor = os.open(disk, os.O_RDONLY)
    try:
        yield Volume(descriptor)
    finally:
        os.close(descriptor)


def read(volume: Volume, inode: Inode, scratch: Path) -> bytes:
    target = os.open(scratch / "file", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        volume.copy(inode, target)
    finally:
        os.close(target)
    return (scratch / "file").read_bytes()


def walk(volume: Volume, folder: Inode, scratch: Path, above: str = "") -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for entry in volume.names(folder):
        inode, name = volume.inode(entry.inode), above + entry.name.decode()
        if inode.kind == S_IFDIR:
            files |= walk(volume, inode, scratch, f"{name}/")
        elif inode.kind == S_IFREG:
            files[name] = read(volume, inode, scratch)
    return files


@pytest.mark.parametrize("seed", range(4))
def test_everything_is_read_as_debugfs_reads_it(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    source = tmp_path / "source"
    source.mkdir()
    grow_tree(rng, source)
    disk = make_disk(tmp_path / "disk", source, 32, rng.choice([1024, 2048, 4096]))
    with opened(disk) as volume:
        result = walk(volume, volume.inode(ROOT_INODE), tmp_path)
    assert result == contents(source) == contents(rdump(disk, tmp_path / "dump"))


def test_a_tree_of_extents_and_blocks_that_were_never_written(tmp_path: Path) -> None:
    """Every other block is a hole, so that the extents take nodes of their own; then a tail."""
    source = tmp_path / "source"
    source.mkdir()
    with (source / "f").open("wb") as file:
        for number in range(700):
            file.seek(number * 2048)
            file.write(b"%04d" % number)
    disk = make_disk(tmp_path / "disk", source, 8)
    before = contents(source)["f"]
    debugfs(disk, "fallocate /f 1401 1500", f"sif /f size {1490 * 1024}")
    assert "(ETB1)" in debugfs(disk, "stat /f")  # a node two levels below the inode
    with opened(disk) as volume:
        (by_name,) = walk(volume, volume.inode(ROOT_INODE), tmp_path).values()
    assert by_name == before.ljust(1490 * 1024, b"\0")
    assert by_name == contents(rdump(disk, tmp_path / "dump"))["f"]


def test_an_indexed_folder(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for number in range(900):
        (source / f"a-name-of-some-length-{number}").write_bytes(b"")
    disk = make_disk(tmp_path / "disk", source)
    with opened(disk) as volume:
        names = {entry.name.decode() for entry in volume.names(volume.inode(ROOT_INODE))}
    assert names == {*(path.name for path in source.iterdir()), "lost+found"}


def test_a_tree_of_extents_that_bites_its_tail(tmp_path: Path) -> None:
    """A node that is its own child: each one has a level less, so it is seen at once."""
    disk = make_disk(tmp_path / "disk", _one_file(tmp_path))
    with opened(disk) as volume:
        (entry,) = (e for e in volume.names(volume.inode(ROOT_INODE)) if e.name == b"f")
        at, block = volume.inode_at(entry.inode), 5000
    node = _header(1, 5) + _index(0, block) + bytes(36)
    data = bytearray(disk.read_bytes())
    data[at + 40 : at + 100] = node
    data[block * 1024 : block * 1024 + 60] = node
    disk.write_bytes(data)
    with opened(disk) as volume, pytest.raises(DamagedDisk, match="a tree of extents is broken"):
        read(volume, volume.inode(entry.inode), tmp_path)


def test_only_so_much_is_read_to_find_the_way(tmp_path: Path) -> None:
    """One leaf that a thousand million of nodes lead to: 340 children on each of five levels."""
    disk = make_disk(tmp_path / "disk", _one_file(tmp_path), 8, 4096)
    with opened(disk) as volume:
        (entry,) = (e for e in volume.names(volume.inode(ROOT_INODE)) if e.name == b"f")
        at = volume.inode_at(entry.inode)
    data = bytearray(disk.read_bytes())
    data[at + 4 : at + 8] = (0xFFFFFFFF).to_bytes(4, "little")
    data[at + 40 : at + 100] = _header(4, 5) + b"".join(_index(i, 1000) for i in range(4))
    for level in range(5):
        block = 1000 + level
        children = b"".join(_index(i, block + 1) for i in range(340))
        leaf = b"".join(_extent(i, 1, 2000) for i in range(340))
        node = _header(340, 4 - level) + (children if level < 4 else leaf)
        data[block * 4096 : block * 4096 + len(node)] = node
    disk.write_bytes(data)
    with opened(disk) as volume, pytest.raises(DamagedDisk):
        list(volume.runs(volume.inode(entry.inode)))
    with opened(disk) as volume, pytest.raises(DamagedDisk, match="too much to read"):
        for _ in range(MOST_METADATA):
            list(volume.names(volume.inode(ROOT_INODE)))


def test_nodes_of_extents_that_contradict_themselves() -> None:
    good = _header(2, 0) + _extent(0, 2, 10) + _extent(2, 1, 50) + bytes(24)
    assert [item.at for item in parse_node(good)[1]] == [10, 50]
    for broken, depth, message in (
        (b"\0\0" + good[2:], None, "broken"),
        (good, 1, "broken"),
        (_header(5, 0) + bytes(48), None, "impossible length"),
        (_header(0, 0) + bytes(48), 0, "impossible length"),
        (_header(2, 0) + _extent(0, 3, 10) + _extent(2, 1, 50) + bytes(24), None, "overlap"),
        (_header(1, 0) + _extent(0, 0, 10) + bytes(36), None, "without blocks"),
        (_header(2, 1) + _index(4, 10) + _index(4, 50) + bytes(24), None, "out of order"),
    ):
        with pytest.raises(DamagedDisk, match=message):
            parse_node(broken, depth)


@given(st.binary(max_size=2048))
def test_any_bytes_are_a_node_or_names_or_damaged(data: bytes) -> None:
    try:
        below, entries = parse_node(data.ljust(12, b"\0"))
        assert below <= 5 and len(entries) * 12 <= len(data)
    except DamagedDisk:
        pass
    with suppress(DamagedDisk):
        assert all(len(entry.name) <= 255 for entry in parse_names(data))


@given(st.binary(max_size=512), st.integers(0, 512))
def test_any_bytes_are_a_superblock_or_damaged(
    tmp_superblock: bytes, noise: bytes, at: int
) -> None:
    data = tmp_superblock[:at] + noise + tmp_superblock[at + len(noise) :]
    try:
        shape = parse_superblock(data[:1024], 8 << 20)
    except DamagedDisk:
        return
    assert shape.blocks * shape.block_size <= 8 << 20
    assert shape.inodes_per_group and shape.inode_size >= 128


@pytest.fixture(scope="module")
def tmp_superblock(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("superblock")
    return make_disk(folder / "disk", _one_file(folder)).read_bytes()[1024:2048]


def _one_file(folder: Path) -> Path:
    source = folder / "source"
    source.mkdir()
    (source / "f").write_bytes(b"x" * 5000)
    return source


def _header(entries: int, depth: int) -> bytes:
    return b"\x0a\xf3" + b"".join(n.to_bytes(2, "little") for n in (entries, 4, depth)) + bytes(4)


def _index(first: int, at: int) -> bytes:
    return first.to_bytes(4, "little") + at.to_bytes(4, "little") + bytes(4)


def _extent(first: int, count: int, at: int) -> bytes:
    words = (first.to_bytes(4, "little"), count.to_bytes(2, "little"), bytes(2))
    return b"".join(words) + at.to_bytes(4, "little")
