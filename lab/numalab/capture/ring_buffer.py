"""Finds the records in the pages of the kernel's trace ring buffer.

A page is a time stamp, the number of bytes in use, and records. A record starts with a 32-bit word:
5 bits of type or length, 27 bits of time since the record before (`struct ring_buffer_event` in
include/linux/ring_buffer.h, rb_event_length() in kernel/trace/ring_buffer.c of Linux 6.12; how a
reader treats padding follows libtraceevent's kbuffer-parse.c). The length of a record is only known
from its header, so the records of one page must be found one after another; here that is done
for thousands of pages at once: step k looks at the k-th header of every page.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

_PADDING, _TIME_EXTEND, _TIME_STAMP = 29, 30, 31
_TIME_BITS = 27
_MISSED_EVENTS, _MISSED_STORED = 1 << 31, 1 << 30
_USED_BYTES = (1 << 27) - 1
LATEST = (1 << 63) - 1  # later than any time of a record
_HIGH_TIME_BITS = -(1 << 59)  # TS_MSB: an absolute stamp has 59 bits, the rest is the page's


@dataclass(frozen=True)
class PageLayout:
    """The layout of a recording's pages (from its `header_page`), in bytes."""

    page_bytes: int
    long_bytes: int
    data_offset: int


@dataclass(frozen=True)
class Records:
    """The records of some pages, in the order of the pages, and within a page as they lie there.

    `time` is in units of the trace clock; `word` is the record's first 32-bit word counted from the
    first word of the first page; `bytes` its length. For each page: `missed`, the number of events
    lost before it (-1: lost, number unknown), and `unsound`, whether it could not be read whole or
    has a time that is out of range or before that of the record before it.
    """

    time: Ints
    page: Ints
    word: Ints
    bytes: Ints
    missed: Ints
    unsound: npt.NDArray[np.bool_]


def page_times(pages: Words, latest: int = LATEST) -> Ints:
    """Return the time stamp of each page; `pages` has one row of 32-bit words a page.

    A time that is out of range, which only a damaged page has, is `latest`.
    """
    times = pages[:, 0].astype(np.int64) | pages[:, 1].astype(np.int64) << 32
    return np.where(_in_range(times, latest), times, latest)


def _in_range(times: Ints, latest: int) -> npt.NDArray[np.bool_]:
    # As signed numbers, times of 2^63 and more are negative.
    return (times >= 0) & (times < latest)


def find_records(pages: Words, layout: PageLayout, latest: int = LATEST) -> Records:
    """Find every record in `pages` (one row of 32-bit words a page).

    A page whose records do not fit in it, or whose times reach `latest` or decrease, is read up to
    there and marked unsound. Each step advances by a word or more, so the size of a page bounds
    the work.
    """
    count, page_words = pages.shape
    first = layout.data_offset // 4
    used = pages[:, 2].astype(np.int64)
    size = used & _USED_BYTES
    unsound = (size > layout.page_bytes - layout.data_offset) | (size == 0)
    size = np.minimum(size, layout.page_bytes - layout.data_offset)
    time = page_times(pages, latest)
    unsound |= time == latest
    end = np.where(time == latest, first, first + size // 4)
    walk = _Walk(pages, first, end, time, unsound, latest=latest)
    steps = list(walk.steps(page_words))
    pages_met = np.concatenate([step[0] for step in steps]) if steps else np.empty(0, np.int64)
    counts = np.bincount(pages_met, minlength=count)
    start = np.zeros(count + 1, np.int64)
    start[1:] = np.cumsum(counts)
    total = int(start[-1])
    time, page, word, length = (np.empty(total, np.int64) for _ in range(4))
    filled = start[:-1].copy()
    for at, when, where, extent in steps:
        slot = filled[at]
        filled[at] += 1
        time[slot], page[slot], length[slot] = when, at, extent
        word[slot] = at * page_words + where
    return Records(time, page, word, length, _missed(pages, used, first, size), walk.unsound)


class _Walk:
    """The position and time reached in each page."""

    def __init__(
        self,
        pages: Words,
        first: int,
        end: Ints,
        time: Ints,
        unsound: npt.NDArray[np.bool_],
        *,
        latest: int,
    ) -> None:
        self.latest = latest
        self.pages, self.end, self.time, self.unsound = pages, end, time.copy(), unsound.copy()
        self.at = np.full(len(pages), first, np.int64)
        self.live = np.flatnonzero(self.at < end)

    def steps(self, page_words: int) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        """Yield the data records met in each step: pages, times, first words, lengths in bytes."""
        flat = self.pages.reshape(-1)
        while self.live.size:
            live, at = self.live, self.at[self.live]
            base = live * page_words + at
            head = flat[base].astype(np.int64)
            after = flat[np.minimum(base + 1, flat.size - 1)].astype(np.int64)
            kind, delta = head & 31, head >> 5
            yield self._step(live, at, kind, delta, after)
            self.live = live[self.at[live] < self.end[live]]

    def _step(
        self, live: Ints, at: Ints, kind: Ints, delta: Ints, after: Ints
    ) -> tuple[Ints, Ints, Ints, Ints]:
        is_time = kind >= _TIME_EXTEND
        is_padding = kind == _PADDING
        is_long = kind == 0  # the length is in the word after the header
        delta = np.where(is_time, delta | after << _TIME_BITS, delta)
        before = self.time[live]
        stamped = (delta & ~_HIGH_TIME_BITS) | (before & _HIGH_TIME_BITS)
        now = np.where(kind == _TIME_STAMP, stamped, before + delta)
        self.time[live] = now
        # A sum that overflows is negative.
        bad_time = ~_in_range(now, self.latest) | (now < before)
        body = at + 1 + (is_long | is_time)
        extent = np.where(is_long, (after - 4 + 3) & ~3, kind * 4)
        extent = np.where(is_time, 0, np.where(is_padding, after & ~3, extent))
        next_at = body + extent // 4
        bad = (next_at > self.end[live]) | (extent < 0) | bad_time
        # Padding without a time is what follows the last record of a page (rb_null_event()).
        last = is_padding & (delta == 0)
        self.unsound[live[bad & ~last]] = True
        self.at[live] = np.where(bad | last, self.end[live], next_at)
        data = ~(is_time | is_padding | bad)
        return live[data], now[data], body[data], extent[data]


def _missed(pages: Words, used: Ints, first: int, size: Ints) -> Ints:
    """Read the number of lost events before each page (see ring_buffer_read_page())."""
    missed = np.where(used & _MISSED_EVENTS, np.int64(-1), np.int64(0))
    where = np.minimum(first + size // 4, pages.shape[1] - 1)
    stored = pages[np.arange(len(pages)), where].astype(np.int64)
    stored_count = (used & _MISSED_EVENTS != 0) & (used & _MISSED_STORED != 0)
    return np.where(stored_count, stored, missed)
