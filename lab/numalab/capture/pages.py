"""Yields the records of a recording by time, in chunks of a bounded number of pages.

A first pass finds the records of all pages. Their places go to a temporary file, 16 bytes each: two
chunks may need one page, and the columns of the table follow from all events.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO

import numpy as np
import numpy.typing as npt

from numalab.capture.ring_buffer import Ints, Records, Words, find_records, page_times
from numalab.capture.trace_file import CpuData, Cursor, Damaged, TraceFile, unpack
from numalab.progress import Progress, no_progress

CHUNK_BYTES = 8 << 20  # about the caches, so that a table is put together in fast memory
MAX_KINDS = 1 << 16  # of event formats: the type of a record has 16 bits
MAX_UNPACKED_BYTES = 16 << 30
MOST_CELLS = 1 << 26  # of a piece of the table, 512 MiB of numbers
_SHORTEST = 8  # bytes of a record
_PLACE = np.dtype([("time", "<i8"), ("word", "<u4"), ("bytes", "<u4")])
_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@dataclass(frozen=True)
class PageChunk:
    """Pages of some CPUs, in order by CPU, and their records.

    Only records with a time from `since` up to `until` belong to the chunk: a page with later
    events comes again. `fresh` marks pages that come for the first time.
    """

    words: Words
    cpu: Ints
    fresh: npt.NDArray[np.bool_]
    records: Records
    since: int
    until: int


class PageSource:
    """All pages of a recording; `kinds[number]` is true for event numbers that have records.

    Packed pages are unpacked once, into a temporary file.
    """

    def __init__(self, trace: TraceFile, on_progress: Progress = no_progress) -> None:
        self._trace, self._on_progress = trace, on_progress
        self._spool: IO[bytes] = TemporaryFile()  # noqa: SIM115 (closed by close())
        self._places: IO[bytes] = TemporaryFile()  # noqa: SIM115 (closed by close())
        plain = [
            (data, self._unpacked(data) if data.compressed else (data.offset, data.size))
            for data in self._apart()
        ]
        self._spool.flush()
        packed = any(data.compressed for data in trace.cpus) and self._spool.tell() > 0
        self._memory: memoryview | mmap.mmap = trace.data
        if packed:
            self._memory = mmap.mmap(self._spool.fileno(), 0, access=mmap.ACCESS_READ)
        arrays = [(data, self._array(offset, size)) for data, (offset, size) in plain]
        arrays = sorted((pair for pair in arrays if len(pair[1])), key=lambda pair: pair[0].cpu)
        self._arrays = [pages for _, pages in arrays]
        self._begin = np.cumsum([0, *map(len, self._arrays)])  # the first page of each array
        cpus = np.array([data.cpu for data, _ in arrays], np.int64)
        self._cpu = np.repeat(cpus, np.diff(self._begin))
        self.kinds = np.zeros(MAX_KINDS, np.bool_)
        self._find_all()
        self._find_what_is_missing([(data.buffer, data.cpu) for data, _ in arrays])

    def close(self) -> None:
        """Close the temporary files; chunks that were yielded stay valid."""
        self._arrays = []
        self._spool.close()
        self._places.close()

    def chunks(self, columns: int = 1) -> Iterator[PageChunk]:
        """Yield all pages so that the records taken from one chunk come before the next one's.

        `columns` is the width of their table. A chunk has as many new pages as `at_once` allows,
        and those of earlier chunks that have later records.
        """
        key = self._not_before()
        order = np.argsort(key, kind="stable")
        step = self.at_once(columns)
        since = int(_FIRST)
        carried, due = np.empty(0, np.int64), np.empty(0, np.int64)
        for start in range(0, len(key), step):
            if start:
                self._on_progress("decode", start / len(key))
            fresh = order[start : start + step]
            end = start + len(fresh)
            until = int(key[order[end]]) if end < len(key) else int(_LAST)
            now = due < until
            taken = np.sort(np.concatenate([carried[now], fresh]))
            words, records = self._words(taken), self._records(taken)
            self._forget()
            is_fresh = np.isin(taken, fresh, assume_unique=True)
            yield PageChunk(words, self._cpu[taken], is_fresh, records, since, until)
            later = self._due(taken, records, until)
            rest = later < _LAST
            carried = np.concatenate([carried[~now], taken[rest]])
            due = np.concatenate([due[~now], later[rest]])
            since = until

    def _due(self, taken: Ints, records: Records, since: int) -> Ints:
        """Return the first time in each page that is not before `since`."""
        due = np.where(self._time[taken] >= since, self._time[taken], _LAST)
        late = records.time >= since
        np.minimum.at(due, records.page[late], records.time[late])
        return due

    def _find_all(self) -> None:
        """Find the records of all pages: write their places, and keep the time, the number of
        records, the lost events and the soundness of each page."""
        pages, step = int(self._begin[-1]), self.at_once()
        self._time, self._count, self._missed = (np.zeros(pages, np.int64) for _ in range(3))
        self._unsound = np.zeros(pages, np.bool_)
        for start in range(0, pages, step):
            if start:  # a short recording is nothing to wait for
                self._on_progress("find events", start / pages)
            block = np.arange(start, min(start + step, pages))
            words = self._words(block)
            records = find_records(words, self._trace.layout, self._trace.latest)
            self._forget()
            self.kinds[words.reshape(-1)[records.word] & np.uint32(MAX_KINDS - 1)] = True
            self._time[block] = page_times(words, self._trace.latest)
            self._count[block] = np.bincount(records.page, minlength=len(block))
            self._missed[block], self._unsound[block] = records.missed, records.unsound
            places = np.empty(len(records.time), _PLACE)
            places["time"], places["bytes"] = records.time, records.bytes
            places["word"] = records.word - records.page * words.shape[1]
            self._places.write(places.data)
        self._first = np.concatenate([[0], np.cumsum(self._count)])

    def _find_what_is_missing(self, origin: list[tuple[str, int]]) -> None:
        """Compare the pages with each other, and their records with the counts of the kernel.

        The kernel hands out no empty page, and the pages of a CPU in order
        (`ring_buffer_read_page()`); its count of read events is that of the pages it gave. Events
        that it dropped for lack of room are in its counts alone.
        """
        counts = dict.fromkeys(self._trace.stats, 0)
        kept = {data.buffer for data in self._trace.cpus}
        for number, (buffer, cpu) in enumerate(origin):
            pages = slice(*self._begin[number : number + 2].tolist())
            times = self._time[pages]
            self._unsound[pages][1:] |= times[1:] < times[:-1]
            if (buffer, cpu) in counts:
                counts[buffer, cpu] += int(self._count[pages].sum())
        for (buffer, cpu), stats in self._trace.stats.items():
            name = f"buffer {buffer!r}, CPU {cpu}" if buffer else f"CPU {cpu}"
            number = counts[buffer, cpu]
            if stats.read not in (None, number):
                text = f"{name}: {number} events where the kernel counted {stats.read}"
                self._trace.problems.append(text)
            if buffer in kept:
                self._trace.problems += [f"{name}: {text}" for text in stats.missing]

    def _records(self, taken: Ints) -> Records:
        """Return the records of these pages, which are in order, with places in their words."""
        runs = np.split(taken, np.flatnonzero(np.diff(taken) > 1) + 1)
        places = np.concatenate([self._read(int(run[0]), int(run[-1]) + 1) for run in runs])
        page = np.repeat(np.arange(len(taken)), self._count[taken])
        word = places["word"] + page * (self._trace.layout.page_bytes // 4)
        length = places["bytes"].astype(np.int64)
        missed, unsound = self._missed[taken], self._unsound[taken]
        return Records(places["time"].copy(), page, word, length, missed, unsound)

    def _read(self, first: int, end: int) -> npt.NDArray[np.void]:
        """Read the places of the records of the pages from `first` up to `end`."""
        self._places.seek(int(self._first[first]) * _PLACE.itemsize)
        size = int(self._first[end] - self._first[first]) * _PLACE.itemsize
        return np.frombuffer(self._places.read(size), _PLACE)

    def at_once(self, columns: int = 1) -> int:
        """Return the number of pages whose table of `columns` columns fits into memory."""
        size = self._trace.layout.page_bytes
        fitting = MOST_CELLS // (columns * (size // _SHORTEST))
        return min(fitting, max(1, CHUNK_BYTES // size))

    def _apart(self) -> Iterator[CpuData]:
        """Yield the parts of the file by CPU that can lie in it without overlap.

        A damaged file could otherwise name the same bytes for thousands of CPUs.
        """
        room = len(self._trace.data)
        for data in self._trace.cpus:
            size_in_file = min(data.size, len(self._trace.data) - data.offset)
            if data.size and size_in_file <= room:
                room -= max(size_in_file, 0)
                yield data
            elif data.size:
                self._trace.problems.append(f"CPU {data.cpu}: its pages overlap those of others")

    def _not_before(self) -> Ints:
        """Return for each page a time before which neither it nor a later one of its CPU has
        an event."""
        times = np.split(self._time, self._begin[1:-1])
        return np.concatenate(
            [np.minimum.accumulate(page_times_of_cpu[::-1])[::-1] for page_times_of_cpu in times]
        )

    def _words(self, taken: Ints) -> Words:
        """Copy these pages, which are in order, out of the mapped file, each once."""
        words = np.empty((len(taken), self._trace.layout.page_bytes // 4), np.uint32)
        bounds = np.searchsorted(taken, self._begin)
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            part = slice(*bounds[number : number + 2].tolist())
            pages = taken[part] - self._begin[number]
            # With "raise" numpy would copy them twice.
            self._arrays[number].take(pages, 0, out=words[part], mode="clip")
        return words

    def _forget(self) -> None:
        """Release the mapped pages that were read: a long recording would fill the memory."""
        mapped = self._memory.obj if isinstance(self._memory, memoryview) else self._memory
        if isinstance(mapped, mmap.mmap):
            mapped.madvise(mmap.MADV_DONTNEED)

    def _array(self, offset: int, size: int) -> Words:
        """Return one CPU's pages as rows of words; a last page that is cut short ends in zeros."""
        page_bytes = self._trace.layout.page_bytes
        size_in_file = max(0, min(size, len(self._memory) - offset))
        if size_in_file < size:
            lost = f"{size - size_in_file} bytes of the ring buffer are not in the file"
            self._trace.problems.append(lost)
        whole = size_in_file // page_bytes * page_bytes
        words = (
            np.frombuffer(self._memory, "<u4", whole // 4, offset) if whole else np.empty(0, "<u4")
        )
        pages = words.reshape(-1, page_bytes // 4)
        if whole == size_in_file:
            return pages
        last = np.zeros(page_bytes, np.uint8)
        last[: size_in_file - whole] = np.frombuffer(
            self._memory, np.uint8, size_in_file - whole, offset + whole
        )
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
