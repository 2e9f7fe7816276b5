"""Reads files and folders of an ext4 disk that a guest has written, in any state.

Nothing on it is trusted: every pointer is checked against the disk, blocks of a file only ascend,
and metadata is bounded. The disk must not change meanwhile.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from numalab.ext4.layout import (
    GROUP_SIZE,
    ROOT_INODE,
    S_IFDIR,
    SUPERBLOCK_AT,
    SUPERBLOCK_SIZE,
    DamagedDisk,
    Extent,
    Inode,
    Name,
    parse_inode,
    parse_names,
    parse_node,
    parse_superblock,
    parse_table_block,
)

# In an inode (struct ext4_inode, fs/ext4/ext4.h): times of access, change and modification, and the
# low and high halves of the owner's and the group's number.
_ATIME, _CTIME = 8, 12
_IDS = (2, 24, 120, 122)
# 512 MiB in pieces of one block of 1 KiB take 6 MiB of extents, 4096 names less than 1 MiB.
MOST_METADATA = 16 << 20
_CHUNK = 1 << 20


@dataclass(frozen=True)
class DataRun:
    """Bytes of a file one after the other on the disk: where in the file, where there, how many."""

    offset: int
    at: int
    size: int


class Volume:
    """An ext4 disk that is open for reading; all sizes and places are in bytes."""

    def __init__(self, descriptor: int) -> None:
        """Look at the superblock. Raises DamagedDisk, and OSError where the host cannot read."""
        self._descriptor = descriptor
        data = os.pread(descriptor, SUPERBLOCK_SIZE, SUPERBLOCK_AT)
        self.shape = parse_superblock(data, os.fstat(descriptor).st_size)
        self._left = MOST_METADATA

    def inode(self, number: int) -> Inode:
        """Read an inode by its number. Raises DamagedDisk."""
        return parse_inode(number, self._read(self.inode_at(number), 128))

    def inode_at(self, number: int) -> int:
        """Return where on the disk an inode lies. Raises DamagedDisk."""
        shape = self.shape
        if not 0 < number <= shape.inodes:
            raise DamagedDisk(f"there is no inode {number}")
        group, place = divmod(number - 1, shape.inodes_per_group)
        groups = (shape.first_block + 1) * shape.block_size
        table = parse_table_block(self._read(groups + group * GROUP_SIZE, GROUP_SIZE))
        return table * shape.block_size + place * shape.inode_size

    def names(self, folder: Inode) -> Iterator[Name]:
        """Read the names in a folder. Raises DamagedDisk, after the names before the damage."""
        if folder.kind != S_IFDIR:
            raise DamagedDisk("not a folder")
        for run in self.runs(folder):
            for start in range(0, run.size, self.shape.block_size):
                yield from parse_names(self._metadata(run.at + start, self.shape.block_size))

    def find(self, folder: Inode, name: bytes) -> Inode:
        """Find what has a name in a folder. Raises DamagedDisk where there is no such name."""
        for entry in self.names(folder):
            if entry.name == name:
                return self.inode(entry.inode)
        raise DamagedDisk(f"there is no {name.decode('ascii', 'replace')}")

    def runs(self, inode: Inode) -> Iterator[DataRun]:
        """Say where the data of a file lies, in ascending order; what is in none is zeros.

        Raises DamagedDisk, after the runs before the damage.
        """
        if not inode.has_extents:
            raise DamagedDisk("its blocks are not in extents")
        size = self.shape.block_size
        for extent in self._extents(inode.root, None, -(-inode.size // size)):
            if extent.written:
                start = extent.first * size
                yield DataRun(start, extent.at * size, min(extent.count * size, inode.size - start))

    def copy(self, inode: Inode, target: int) -> None:
        """Copy a file's data to an open file of the host, with its holes; `size` bytes in all.

        Raises DamagedDisk, and OSError where the host cannot write.
        """
        os.ftruncate(target, inode.size)
        for run in self.runs(inode):
            for start in range(0, run.size, _CHUNK):
                data = self._read(run.at + start, min(_CHUNK, run.size - start))
                _write(target, data, run.offset + start)

    def _extents(self, node: bytes, depth: int | None, end: int) -> Iterator[Extent]:
        """Walk a tree of extents in the order of the file, as far as its block `end`."""
        next_block = 0
        below, entries = parse_node(node, depth)
        for entry in entries:
            if entry.first >= end:
                return  # allocated ahead, past the end of the file
            if isinstance(entry, Extent):
                if entry.at + entry.count > self.shape.blocks:
                    raise DamagedDisk("an extent leads off the disk")
                yield entry
                continue
            data = self._metadata(entry.at * self.shape.block_size, self.shape.block_size)
            for extent in self._extents(data, below - 1, end):
                # Each node brings the file forward, so there are not more of them than blocks.
                if extent.first < max(next_block, entry.first):
                    raise DamagedDisk("extents overlap or are out of order")
                next_block = extent.first + extent.count
                yield extent

    def _metadata(self, at: int, size: int) -> bytes:
        self._left -= size
        if self._left < 0:
            raise DamagedDisk("there is too much to read before the data")
        return self._read(at, size)

    def _read(self, at: int, size: int) -> bytes:
        if at + size > self.shape.blocks * self.shape.block_size:
            raise DamagedDisk("a pointer leads off the disk")
        data = os.pread(self._descriptor, size, at)
        if len(data) != size:
            raise DamagedDisk("the disk is cut short")
        return data


def _write(target: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(target, data, offset)
        data, offset = data[written:], offset + written


def set_change_times(path: Path, seconds: int) -> None:
    """Set the time of change of all that is on the disk, in seconds of 1970.

    The disk has no checksums (`numalab.ext4.layout`). Raises DamagedDisk, OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        volume = Volume(descriptor)
        for inode in _all(volume, volume.inode(ROOT_INODE)):
            place = volume.inode_at(inode.number) + _CTIME
            os.pwrite(descriptor, seconds.to_bytes(4, "little"), place)
    finally:
        os.close(descriptor)


def claim_inodes(path: Path, seconds: int) -> None:
    """Give all that is on the disk to root, with one time of access, change and modification.

    `seconds` are those of 1970. Raises DamagedDisk, OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        volume = Volume(descriptor)
        stamp = seconds.to_bytes(4, "little")
        for inode in _all(volume, volume.inode(ROOT_INODE)):
            place = volume.inode_at(inode.number)
            for at in _IDS:
                os.pwrite(descriptor, bytes(2), place + at)
            os.pwrite(descriptor, stamp * 3, place + _ATIME)
    finally:
        os.close(descriptor)


def _all(volume: Volume, inode: Inode) -> Iterator[Inode]:
    yield inode
    if inode.kind == S_IFDIR:
        for entry in volume.names(inode):
            yield from _all(volume, volume.inode(entry.inode))
