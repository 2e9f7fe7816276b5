"""Which lines of a program's memory moved between CPUs, and whether its threads use the same bytes.

The counts are those of the memory model (`numalab.capture.memory_places`).
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

import polars as pl

from numalab.capture.maps import ProcessMaps
from numalab.locality.address_names import LINE as LINE_BYTES
from numalab.locality.address_names import PAGE as PAGE_BYTES
from numalab.locality.address_names import UNKNOWN, UNSEEN, AddressNames, ThreadNames
from numalab.units import counted

MAX_THREADS, MAX_WORDS = 16, 8
_INSIDE = re.compile(r"\+\d+$|^0x")  # a word that does not begin a variable
FEWEST_MOVES, _FEWEST_OF_THREAD = 8, 2  # fewer moves of a line are no contention


@dataclass(frozen=True)
class LineThread:
    """A thread that moved a line `moves` times, and where in it: the bytes of variables that it
    `written`, and those that it only `read`."""

    pid: int
    name: str
    moves: int
    written: tuple[str, ...]
    read: tuple[str, ...]


@dataclass(frozen=True)
class ContendedLine:
    """A line that moved between CPUs. `sharing` is `false` if no two threads use the same bytes
    while one writes, `true` if all do, else `mixed`. `process` is `UNSEEN` without a name.
    `threads` are the `MAX_THREADS` of `threads_in_all` with the most moves."""

    process: int
    address: int
    name: str
    file: str
    sharing: str
    moves: int
    stalled_ms: float
    threads: tuple[LineThread, ...]
    threads_in_all: int


def contended_lines(
    rows: pl.DataFrame, names: AddressNames, threads: ThreadNames
) -> Iterator[ContendedLine]:
    """Yield the lines that moved between threads which do not only read, from rows of lines."""
    sums = (
        rows.group_by("line", "pid", maintain_order=True)
        .agg(
            pl.col("moves").sum(),
            pl.col("stalled_ps").sum(),
            pl.col("vaddr").first(),
            pl.col("written").bitwise_or(),
            pl.col("read").bitwise_or(),
        )
        .filter(pl.col("moves") >= _FEWEST_OF_THREAD)
    )
    several = sums.filter(
        (pl.len().over("line") > 1)
        & (pl.col("moves").sum().over("line") >= FEWEST_MOVES)
        & ((pl.col("written") != 0).sum().over("line") > 0)
    )
    for (_,), part in several.group_by("line", maintain_order=True):
        yield from _line(part, names, threads)


def _line(part: pl.DataFrame, names: AddressNames, threads: ThreadNames) -> Iterator[ContendedLine]:
    users = part.sort("moves", "pid", descending=[True, False]).to_dicts()
    first = users[0]
    process = names.process_of(first["pid"], first["vaddr"])
    place = (first["vaddr"] % PAGE_BYTES) // LINE_BYTES
    page = first["vaddr"] - first["vaddr"] % PAGE_BYTES
    name = UNKNOWN if process is None else names.of_page(process, page, 1 << place)
    members = []
    for user in users[:MAX_THREADS]:
        own = names.process_of(user["pid"], user["vaddr"]) or process
        written, read = (
            _words(names, own, user["vaddr"], mask)
            for mask in (user["written"], user["read"] & ~user["written"])
        )
        thread = threads.names.get(user["pid"], "")
        members.append(LineThread(user["pid"], thread, user["moves"], written, read))
    yield ContendedLine(
        UNSEEN if process is None else process.tgid,
        first["vaddr"],
        name.name,
        name.file,
        sharing([(user["written"], user["read"]) for user in users]),
        sum(user["moves"] for user in users),
        sum(user["stalled_ps"] for user in users) / 1e9,
        tuple(members),
        len(users),
    )


def sharing(masks: Iterable[tuple[int, int]]) -> str:
    """Classify a line by the bytes that each thread writes and reads: false, true or mixed.

    Only pairs of threads count of which one writes.
    """
    common = [
        bool(a_written & (b_written | b_read) or b_written & (a_written | a_read))
        for (a_written, a_read), (b_written, b_read) in combinations(masks, 2)
        if a_written or b_written
    ]
    return "true" if all(common) else "mixed" if any(common) else "false"


def _words(
    names: AddressNames, process: ProcessMaps | None, line: int, mask: int
) -> tuple[str, ...]:
    """Name the bytes of a line: runs of them, none across the begin of a variable."""
    runs: list[tuple[str, int]] = []
    for byte in range(LINE_BYTES):
        if not mask >> byte & 1:
            continue
        text = _word(names, process, line + byte)
        if runs and mask >> (byte - 1) & 1 and _INSIDE.search(text):
            runs[-1] = runs[-1][0], runs[-1][1] + 1
        else:
            runs.append((text, 1))
    return tuple(f"{counted(length, 'byte')} at {text}" for text, length in runs[:MAX_WORDS])


def _word(names: AddressNames, process: ProcessMaps | None, address: int) -> str:
    return f"{address:#x}" if process is None else names.of_word(process, address)
