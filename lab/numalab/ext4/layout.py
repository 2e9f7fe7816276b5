"""The layout of an ext4 disk: superblock, inodes, extents, directory entries. Bytes to values.

Format: Documentation/filesystems/ext4/ and fs/ext4/ext4.h, ext4_extents.h of Linux 6.12. Only the
features that `numalab.qemu.jobdisk` gives to `mke2fs` are read: 32-bit block numbers and extents,
no journal, no checksums, no data in inodes. Numbers are little-endian.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

SUPERBLOCK_AT, SUPERBLOCK_SIZE = 1024, 1024
GROUP_SIZE = 32  # of a group's descriptor, without the feature 64bit
ROOT_INODE = 2
_MAGIC, _EXTENT_MAGIC = 0xEF53, 0xF30A
_BLOCK_SIZES = (1024, 2048, 4096)  # larger than a page of x86 no guest mounts
_FILETYPE, _EXTENTS, _FLEX_BG = 0x2, 0x40, 0x200
_INODE_BYTES = 128  # of each inode, what is looked at
_DEEPEST = 5  # EXT4_MAX_EXTENT_DEPTH
_LONGEST_EXTENT = 32768  # more than this: that many less, allocated but never written
_EXTENTS_FLAG = 0x80000
_NODE, _ENTRY = struct.Struct("<HHHHI"), 12

S_IFMT, S_IFDIR, S_IFREG = 0o170000, 0o040000, 0o100000


class DamagedDisk(Exception):
    """What is on the disk contradicts itself, leads nowhere, or is of a kind that is not read."""


@dataclass(frozen=True)
class Superblock:
    """The shape of a disk: bytes of a block and of an inode, and how many of what there are."""

    block_size: int
    blocks: int
    first_block: int
    inodes: int
    inodes_per_group: int
    inode_size: int


@dataclass(frozen=True)
class Inode:
    """A file, folder or whatever else: mode as in stat(2), size in bytes, root of its extents."""

    number: int
    mode: int
    size: int
    has_extents: bool
    root: bytes

    @property
    def kind(self) -> int:
        """The type bits of the mode."""
        return self.mode & S_IFMT


@dataclass(frozen=True)
class Extent:
    """Blocks of a file one after the other: from `first` of the file, at `at` on the disk.

    `written`: they hold data; else they are allocated and read as zeros.
    """

    first: int
    count: int
    at: int
    written: bool


@dataclass(frozen=True)
class Index:
    """A node further down the tree of extents: its first block in the file, where it lies."""

    first: int
    at: int


@dataclass(frozen=True)
class Name:
    """An entry of a directory, which may hold any bytes."""

    inode: int
    name: bytes


def parse_superblock(data: bytes, disk_size: int) -> Superblock:
    """Parse the 1024 bytes at 1024 of a disk of so many bytes. Raises DamagedDisk."""
    if len(data) < SUPERBLOCK_SIZE:
        raise DamagedDisk("the disk is too small")
    if _number(data, 56, 2) != _MAGIC:
        raise DamagedDisk("there is no file system on the disk")
    features = _number(data, 96)
    if not features & _EXTENTS or features & ~(_FILETYPE | _EXTENTS | _FLEX_BG):
        raise DamagedDisk(f"the file system has features {features:#x}")
    superblock = Superblock(
        block_size=1024 << min(_number(data, 24), 16),
        blocks=_number(data, 4),
        first_block=_number(data, 20),
        inodes=_number(data, 0),
        inodes_per_group=_number(data, 40),
        inode_size=_number(data, 88, 2),
    )
    if (
        superblock.block_size not in _BLOCK_SIZES
        or not 0 < superblock.blocks * superblock.block_size <= disk_size
        or superblock.first_block > 1
        or not 0 < superblock.inodes_per_group <= 8 * superblock.block_size
        or not _INODE_BYTES <= superblock.inode_size <= superblock.block_size
        or superblock.inode_size & (superblock.inode_size - 1)
    ):
        raise DamagedDisk("the superblock contradicts itself")
    return superblock


def parse_table_block(group: bytes) -> int:
    """Parse a group's descriptor: the block at which its inodes begin."""
    return _number(group, 8)


def parse_inode(number: int, data: bytes) -> Inode:
    """Parse the first 128 bytes of an inode."""
    return Inode(
        number=number,
        mode=_number(data, 0, 2),
        size=_number(data, 4) | _number(data, 108) << 32,
        has_extents=bool(_number(data, 32) & _EXTENTS_FLAG),
        root=bytes(data[40:100]),
    )


def parse_node(data: bytes, depth: int | None = None) -> tuple[int, list[Extent] | list[Index]]:
    """Parse a node of a tree of extents; `depth` is what the one above says that it has.

    Returns how many levels are below (0: these are extents), and what it holds, in ascending order
    of blocks of the file and without overlap. Raises DamagedDisk.
    """
    magic, count, _, below, _ = _NODE.unpack_from(data)
    if magic != _EXTENT_MAGIC or below > _DEEPEST or (depth is not None and below != depth):
        raise DamagedDisk("a tree of extents is broken")
    if (count + 1) * _ENTRY > len(data) or (depth is not None and not count):
        raise DamagedDisk("a node of extents has an impossible length")
    places = range(_ENTRY, (count + 1) * _ENTRY, _ENTRY)
    if below:
        indexes = [_index(data, place) for place in places]
        if any(a.first >= b.first for a, b in pairwise(indexes)):
            raise DamagedDisk("nodes of extents are out of order")
        return below, indexes
    extents = [_extent(data, place) for place in places]
    if any(a.first + a.count > b.first for a, b in pairwise(extents)):
        raise DamagedDisk("extents overlap or are out of order")
    return 0, extents


def _index(data: bytes, place: int) -> Index:
    first, low, high, _ = struct.unpack_from("<IIHH", data, place)
    return Index(first, low | high << 32)


def _extent(data: bytes, place: int) -> Extent:
    first, count, high, low = struct.unpack_from("<IHHI", data, place)
    if not count:
        raise DamagedDisk("an extent without blocks")
    written = count <= _LONGEST_EXTENT
    length = count if written else count - _LONGEST_EXTENT
    return Extent(first, length, low | high << 32, written)


def parse_names(block: bytes) -> Iterator[Name]:
    """Parse a block of a directory as a list, which the nodes of an indexed one read as, too.

    Entries that are not in use are skipped, `.` and `..` are not returned. Raises DamagedDisk at
    the first entry that is none, after those before it.
    """
    place = 0
    while place + 8 <= len(block):
        inode, length, size = struct.unpack_from("<IHB", block, place)
        if length < 8 or length % 4 or length < 8 + size or place + length > len(block):
            raise DamagedDisk("a directory is broken")
        name = block[place + 8 : place + 8 + size]
        if inode and name not in (b".", b".."):
            yield Name(inode, name)
        place += length


def _number(data: bytes, place: int, size: int = 4) -> int:
    return int.from_bytes(data[place : place + size], "little")
