"""The memory of the guest on the host: layout, and access after the guest ends.

Every node of the guest is backed by a memfd, or by anonymous memory. The kernel keeps a memfd while
it is open in any process. numalab opens the memfds of QEMU through /proc/<pid>/fd, so it can read
the memory after QEMU was killed. Anonymous memory ends with QEMU.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError, UserError
from numalab.files import create
from numalab.topology.topology import Node, Topology

_MIB = 1 << 20
# QEMU's q35 puts this much memory below 4 GiB, and the rest from 4 GiB on, once there is more of
# it than the second number (hw/i386/pc_q35.c in QEMU 7.2: lowmem).
_LOW_MEMORY = 0x80000000
_ALL_LOW = 0xB0000000
_FOUR_GIB = 1 << 32
# libvirt gives every node some memory. A node without any gets this much, and the kernel's
# command line takes it away again before the kernel looks at the nodes.
_UNWANTED_MIB = 128  # a memory section of x86 (SECTION_SIZE_BITS 27); untouched, it costs nothing
# SeaBIOS keeps the ACPI tables at the end of low memory.
_FIRMWARE = 16 * _MIB
_FEWEST_LEFT_MIB = 128
# QEMU's CPU model `max` addresses 40 bits in emulation (x86_cpu_max_initfn(), QEMU 7.2 and 10.0),
# and PCI and the NVDIMMs need room below the end.
_MOST_EMULATED_MIB = 960 << 10
_CHUNK = 4 * _MIB
_BLOCK = 64 << 10


@dataclass(frozen=True)
class Region:
    """A range of guest physical memory, in bytes."""

    address: int
    size: int


def trace_region(topology: Topology, size_mib: int) -> Region | None:
    """Return the region of the trace: near the end of node 0's memory below 2 GiB.

    Node 0's memory starts at address 0, so its offset in node 0's memfd is its address. Returns
    None for size 0. Raises UserError where that would leave node 0 less than 128 MiB.
    """
    if size_mib == 0:
        return None
    first = topology.nodes[0]
    if first.memory_mib < size_mib + _FIRMWARE // _MIB + _FEWEST_LEFT_MIB:
        raise UserError(
            f"the first node with memory has {first.memory_mib} MiB, too little to reserve"
            f" {size_mib} MiB for a trace",
            key="trace_memory_mib",
        )
    end = min(first.memory_mib * _MIB, _LOW_MEMORY)
    return Region(end - _FIRMWARE - size_mib * _MIB, size_mib * _MIB)


def check_addressable(topology: Topology) -> None:
    """Raise UserError for more memory than an emulated CPU can address."""
    total = sum(map(backed_mib, topology.nodes))
    if total > _MOST_EMULATED_MIB:
        raise UserError(
            f"{total} MiB in all; an emulated machine has at most {_MOST_EMULATED_MIB}",
            file=topology.name,
            key="memory_mib",
        )


def backed_mib(node: Node) -> int:
    """Return the memory that QEMU gives to a node, in MiB."""
    return node.memory_mib or _UNWANTED_MIB


def unwanted_regions(topology: Topology) -> tuple[Region, ...]:
    """Return the memory of nodes without memory, which the kernel must not use.

    The nodes' memory follows one another in guest physical memory, with the hole below 4 GiB. A
    node's memory may lie on both sides of the hole.
    """
    regions, low = [], _low_memory(topology)
    for node, address in zip(topology.nodes, node_addresses(topology), strict=True):
        if node.memory_mib == 0:
            size = _UNWANTED_MIB * _MIB
            below = min(size, low - address) if address < low else size
            regions.append(Region(address, below))
            if below < size:
                regions.append(Region(_FOUR_GIB, size - below))
    return tuple(regions)


def node_addresses(topology: Topology) -> tuple[int, ...]:
    """Return the start address of each node's memory in the guest, in bytes."""
    low = _low_memory(topology)
    addresses, start = [], 0
    for node in topology.nodes:
        addresses.append(start if start < low else start - low + _FOUR_GIB)
        start += backed_mib(node) * _MIB
    return tuple(addresses)


def _low_memory(topology: Topology) -> int:
    """Return how much of the memory lies below 4 GiB, in bytes."""
    total = sum(map(backed_mib, topology.nodes)) * _MIB
    return total if total < _ALL_LOW else _LOW_MEMORY


@dataclass(frozen=True)
class HeldMemory:
    """The memory of a running QEMU, by guest node: open memfds, or ranges of its address space.

    A range is the first address and the size, in bytes; there are some only without memfds.
    """

    fds: tuple[int, ...]
    ranges: tuple[tuple[int, int], ...] = ()

    def inodes(self) -> tuple[int, ...]:
        """Return the inode of each node's memfd, by which /proc/<pid>/maps names it."""
        return tuple(os.fstat(fd).st_ino for fd in self.fds)

    def save(self, region: Region, path: Path) -> None:
        """Write a region of node 0's memory to a sparse file.

        Anonymous memory is not written: it may have ended.
        """
        if not self.fds:
            return
        with create(path) as file:
            for offset in range(region.address, region.address + region.size, _CHUNK):
                size = min(_CHUNK, region.address + region.size - offset)
                data = os.pread(self.fds[0], size, offset)
                if data.count(0) != len(data):
                    file.seek(offset - region.address)
                    file.write(data)
            file.truncate(region.size)

    def close(self) -> None:
        """Close the memfds."""
        for fd in self.fds:
            os.close(fd)


def write_blocks(memory: int, path: Path) -> tuple[int, ...]:
    """Write the blocks (64 KiB) of a memfd that are not zero to a file, one after the other.

    Returns their numbers. Raises OSError.
    """
    size, zeros = os.fstat(memory).st_size, bytes(_BLOCK)
    numbers: list[int] = []
    with create(path) as file:
        for begin, end in _data_ranges(memory, size):
            for place in range(begin - begin % _BLOCK, end, _BLOCK):
                data = os.pread(memory, _BLOCK, place)
                if data != zeros and (not numbers or place // _BLOCK > numbers[-1]):
                    file.write(data)
                    numbers.append(place // _BLOCK)
    return tuple(numbers)


def read_blocks(path: Path, numbers: Sequence[int], memory: int) -> None:
    """Copy blocks from a file of `write_blocks` to a memfd of zeros. Raises OSError."""
    with path.open("rb") as file:
        for place, number in enumerate(numbers):
            os.lseek(memory, number * _BLOCK, os.SEEK_SET)
            if os.sendfile(memory, file.fileno(), place * _BLOCK, _BLOCK) != _BLOCK:
                raise OSError(errno.EIO, "a file is too short", str(path))


def _data_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a file's first `size` bytes that are no holes: lseek(2)."""
    place = 0
    while place < size:
        try:
            place = os.lseek(descriptor, place, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from here on
                return
            raise
        end = min(size, os.lseek(descriptor, place, os.SEEK_HOLE))
        yield place, end
        place = max(place, end)


def hold_memory(pid: int, sizes: Sequence[int], *, writable: bool = False) -> HeldMemory:
    """Open the memfds of QEMU process `pid`, whose guest nodes have `sizes` bytes.

    QEMU creates the nodes' backends in order, so ascending descriptors are ascending nodes; the
    sizes are compared to be sure. Raises HostError when they are not what was asked for.
    """
    fds: list[int] = []
    with ExitStack() as stack:
        stack.callback(_close, fds)
        try:
            for number in _memfds(pid):
                access = os.O_RDWR if writable else os.O_RDONLY
                fds.append(os.open(f"/proc/{pid}/fd/{number}", access | os.O_CLOEXEC))
        except OSError as error:
            raise HostError(f"cannot read the guest's memory: {error.strerror}") from None
        actual = [os.fstat(fd).st_size for fd in fds]
        if actual != list(sizes):
            raise HostError(f"QEMU's memory files have sizes {actual}, not {list(sizes)}")
        stack.pop_all()
    return HeldMemory(tuple(fds))


def _memfds(pid: int) -> list[int]:
    folder = Path(f"/proc/{pid}/fd")
    numbers = sorted(int(entry.name) for entry in folder.iterdir())
    return [n for n in numbers if _target(folder / str(n)).startswith("/memfd:memory-backend")]


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
