"""Reads what lay where in the memory of a guest's processes: `workloads/numalab-maps.c`.

A guest may write anything: unknown lines are skipped, and nothing is raised.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

MAX_TEXT = 16 << 20
_MOST_PROCESSES, _MOST_SNAPSHOTS, _MOST_MAPPINGS, _LONGEST_NAME = 256, 256, 65_536, 400
# /proc/PID/maps in proc_pid_maps(5)
_MAPPING = re.compile(
    r"map ([0-9a-f]{1,16})-([0-9a-f]{1,16}) ([-rwxps]{4}) ([0-9a-f]{1,16}) \S+ \d+\s*(.*)", re.ASCII
)
_NUMBER = re.compile(r"\d{1,10}", re.ASCII)


@dataclass(frozen=True)
class Mapping:
    """A range of addresses and its access; `path` is a file, `[heap]` and so on, or empty."""

    start: int
    end: int
    access: str
    offset: int
    path: str


@dataclass(frozen=True)
class Snapshot:
    """The mappings of a process at a moment (CLOCK_MONOTONIC), in order."""

    time_ns: int
    mappings: tuple[Mapping, ...]

    @cached_property
    def _starts(self) -> list[int]:
        return [mapping.start for mapping in self.mappings]

    def place_of(self, address: int) -> int | None:
        """Return the number of the mapping that has an address; None for none."""
        place = bisect_right(self._starts, address) - 1
        return place if place >= 0 and address < self.mappings[place].end else None


@dataclass
class ProcessMaps:
    """A process, its threads, and what lay in its memory from time to time."""

    tgid: int
    threads: set[int] = field(default_factory=set)
    snapshots: list[Snapshot] = field(default_factory=list)

    def nearest_first(self, time_ns: int) -> Iterator[Snapshot]:
        """Yield the last snapshot before a time, those before it, and then those after it."""
        place = bisect_right([shot.time_ns for shot in self.snapshots], time_ns)
        yield from reversed(self.snapshots[:place])
        yield from self.snapshots[place:]


def parse_maps(text: str) -> tuple[ProcessMaps, ...]:
    """Parse the file that numalab-maps wrote: a value for each process, by its number."""
    processes: dict[int, ProcessMaps] = {}
    current: ProcessMaps | None = None
    time_ns, mappings = 0, list[Mapping]()
    for line in (*text[:MAX_TEXT].split("\n"), "@ 0"):
        word, _, rest = line.partition(" ")
        if word == "map":
            if (mapping := _mapping(line)) and len(mappings) < _MOST_MAPPINGS:
                mappings.append(mapping)
            continue
        if word not in ("@", "process"):
            continue
        if current is not None and len(current.snapshots) < _MOST_SNAPSHOTS:
            ordered = sorted(mappings, key=lambda mapping: mapping.start)
            current.snapshots.append(Snapshot(time_ns, tuple(ordered)))
        current, mappings = None, []
        numbers = [int(number) for number in rest.split()[:4096] if _NUMBER.fullmatch(number)]
        if word == "process" and numbers:
            if numbers[0] in processes or len(processes) < _MOST_PROCESSES:
                current = processes.setdefault(numbers[0], ProcessMaps(numbers[0]))
                current.threads.update(numbers)
        elif word == "@" and re.fullmatch(r"\d{1,18}", rest, re.ASCII):
            time_ns = int(rest)
    return tuple(processes[tgid] for tgid in sorted(processes))


def _mapping(line: str) -> Mapping | None:
    match = _MAPPING.fullmatch(line)
    if match is None:
        return None
    start, end, access, offset, path = match.groups()
    if not int(start, 16) < int(end, 16):
        return None
    return Mapping(int(start, 16), int(end, 16), access, int(offset, 16), path[:_LONGEST_NAME])
