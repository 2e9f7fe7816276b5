"""The records of a recording in the order of their times, a bounded number of pages at once."""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import numpy.typing as npt

from lab.capture.ring_buffer import Ints, Records, Words, find_records, page_times
from lab.capture.trace_file import CpuData, Cursor, Damaged, TraceFile, unpack

CHUNK_BYTES = 16 << 20
MAX_UNPACKED_BYTES = 16 << 30
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class PageChunk:
    """Pages of some CPUs, by CPU and as they follow each other there, and their records.

    Only what has a time of `since` or later and before `until` is to be taken: a page that holds
    later events comes again in the next chunk. `fresh` marks pages that come for the first time.
    """

    words: Words
    cpu: Ints
    fresh: npt.NDArray[np.bool_]
    records: Records
    since: int
    until: int


class PageSource:
    """All pages of a recording. Packed ones are unpacked once, into a temporary file."""

    def __init__(self, trace: TraceFile) -> None:
        self._trace = trace
        self._spool: IO[bytes] = TemporaryFile()  # noqa: SIM115 (closed by close())
        plain = [
            (data.cpu, self._unpacked(data) if data.compressed else (data.offset, data.size))
            for data in self._apart()
        ]
        self._spool.flush()
        packed = any(data.compressed for data in trace.cpus) and self._spool.tell() > 0
        self._memory: memoryview | mmap.mmap = trace.data
        if packed:
            self._memory = mmap.mmap(self._spool.fileno(), 0, access=mmap.ACCESS_READ)
        arrays = [(cpu, self._array(offset, size)) for cpu, (offset, size) in plain]
        self._arrays = sorted((pair for pair in arrays if len(pair[1])), key=lambda pair: pair[0])

    def close(self) -> None:
        """Give the temporary file back; chunks that were yielded stay valid."""
        self._arrays = []
        self._spool.close()

    def chunks(self) -> Iterator[PageChunk]:
        """Yield all pages so that the records taken from one chunk come before the next one's."""
        if not self._arrays:
            return
        array, page, key = self._order()
        cpus = np.array([cpu for cpu, _ in self._arrays], np.int64)
        step = max(1, CHUNK_BYTES // self._trace.layout.page_bytes)
        since, carried = int(_FIRST), np.empty(0, np.int64)
        for start in range(0, len(key), step):
            end = min(start + step, len(key))
            until = int(key[end]) if end < len(key) else int(_LAST)
            taken = np.concatenate([carried, np.arange(start, end)])
            taken = taken[np.lexsort((page[taken], array[taken]))]
            words = self._words(array[taken], page[taken])
            self._forget()
            records = find_records(words, self._trace.layout)
            yield PageChunk(words, cpus[array[taken]], taken >= start, records, since, until)
            carried = taken[np.unique(records.page[records.time >= until])]
            since = until

    def _apart(self) -> Iterator[CpuData]:
        """Yield the CPUs' parts of the file, as far as they can lie in it beside each other.

        A damaged file could otherwise name the same bytes for thousands of CPUs.
        """
        room = len(self._trace.data)
        for data in self._trace.cpus:
            there = min(data.size, len(self._trace.data) - data.offset)
            if data.size and there <= room:
                room -= max(there, 0)
                yield data
            elif data.size:
                self._trace.problems.append(f"CPU {data.cpu}: its pages overlap those of others")

    def _order(self) -> tuple[Ints, Ints, Ints]:
        """Return for each page its array, its place there, and a time that neither it nor a later
        page of that array has an event before; ordered by that time."""
        times = [np.minimum.accumulate(page_times(a)[::-1])[::-1] for _, a in self._arrays]
        array = np.repeat(np.arange(len(times)), [len(t) for t in times])
        page = np.concatenate([np.arange(len(t)) for t in times])
        key = np.concatenate(times)
        order = np.argsort(key, kind="stable")
        return array[order], page[order], key[order]

    def _words(self, array: Ints, page: Ints) -> Words:
        """Copy these pages, which are ordered by array, out of the mapped file, each once."""
        words = np.empty((len(page), self._trace.layout.page_bytes // 4), np.uint32)
        for each in np.unique(array).tolist():
            first, last = np.searchsorted(array, [each, each + 1]).tolist()
            # With "raise" numpy would copy them twice.
            self._arrays[each][1].take(page[first:last], 0, out=words[first:last], mode="clip")
        return words

    def _forget(self) -> None:
        """Let go of the mapped pages that were read: a long recording would fill the memory."""
        mapped = self._memory.obj if isinstance(self._memory, memoryview) else self._memory
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(mmap.MADV_DONTNEED)

    def _array(self, offset: int, size: int) -> Words:
        """Return one CPU's pages as rows of words; a last page that is cut short ends in zeros."""
        page_bytes = self._trace.layout.page_bytes
        there = max(0, min(size, len(self._memory) - offset))
        if there < size:
            lost = f"{size - there} bytes of the ring buffer are not in the file"
            self._trace.problems.append(lost)
        whole = there // page_bytes * page_bytes
        words = (
            np.frombuffer(self._memory, "<u4", whole // 4, offset) if whole else np.empty(0, "<u4")
        )
        pages = words.reshape(-1, page_bytes // 4)
        if whole == there:
            return pages
        last = np.zeros(page_bytes, np.uint8)
        last[: there - whole] = np.frombuffer(self._memory, np.uint8, there - whole, offset + whole)
        return np.concatenate([pages, last.view("<u4")[None, :]])

    def _unpacked(self, data: CpuData) -> tuple[int, int]:
        """Unpack one CPU's pages, block after block; return where they are in the temporary file.

        The first block that does not unpack ends the CPU: what follows cannot be found without it.
        """
        start = self._spool.tell()
        # trace-cmd's size leaves out the number of blocks that comes first.
        cursor = Cursor(self._trace.data[: data.offset + 4 + data.size], data.offset)
        try:
            for _ in range(cursor.number(4)):
                packed, plain = cursor.number(4), cursor.number(4)
                room = MAX_UNPACKED_BYTES - self._spool.tell()
                block = unpack(cursor.take(packed), plain, self._trace.compression)
                self._spool.write(block[: max(room, 0)])
        except Damaged as error:
            self._trace.problems.append(f"CPU {data.cpu}: {error}")
        return start, self._spool.tell() - start
