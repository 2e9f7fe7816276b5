"""The file that the plugin `emulator-configs/reach/reach.c` maps: what to count, and the counts.

64-bit numbers of this host. Header: magic, CPUs, sites, jumps, address of jiffies_64. A site:
address, jiffies_64 at its first execution, executions by CPU. A jump: address, address behind it,
target, whether it is a static branch, taken, not taken, one number of the plugin.
"""

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from numalab.files import create, read_regular
from numalab.reach.lines import Jump

_MAGIC = int.from_bytes(b"lnreach1", "little")
_HEADER, _JUMP = 5, 7
_MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class SiteCount:
    """The executions of an instruction by CPU, and jiffies_64 at the first; None: unknown."""

    by_cpu: tuple[int, ...]
    first: int | None

    @property
    def total(self) -> int:
        """The executions on all CPUs."""
        return sum(self.by_cpu)


@dataclass(frozen=True)
class Counts:
    """Counts by address; of jumps how often they were taken and not taken."""

    sites: Mapping[int, SiteCount]
    jumps: Mapping[int, tuple[int, int]]


def write_sites(
    path: Path, sites: Iterable[int], jumps: Iterable[Jump], *, cpus: int, jiffies: int
) -> None:
    """Write a file for the plugin, all counts 0."""
    table = sorted(set(sites))
    ways = [jump for _, jump in sorted({jump.address: jump for jump in jumps}.items())]
    words = array("Q", (_MAGIC, cpus, len(table), len(ways), jiffies))
    for address in table:
        words.extend((address, 0, *([0] * cpus)))
    for jump in ways:
        words.extend((jump.address, jump.next, jump.target, jump.is_static, 0, 0, 0))
    with create(path) as file:
        file.write(words.tobytes())


def read_counts(path: Path) -> Counts:
    """Read the counts. Raises ValueError for another file."""
    words = array("Q")
    words.frombytes(read_regular(path, _MAX_BYTES))
    if len(words) < _HEADER or words[0] != _MAGIC:
        raise ValueError(f"{path} holds no counts")
    cpus, sites, jumps = words[1:4]
    width, begin = 2 + cpus, _HEADER
    end = begin + sites * width
    if len(words) != end + jumps * _JUMP:
        raise ValueError(f"{path} is cut short")
    rows = (words[at : at + width] for at in range(begin, end, width))
    ways = (words[at : at + _JUMP] for at in range(end, len(words), _JUMP))
    return Counts(
        {row[0]: SiteCount(tuple(row[2:]), row[1] or None) for row in rows if any(row[2:])},
        {way[0]: (way[4], way[5]) for way in ways},
    )
