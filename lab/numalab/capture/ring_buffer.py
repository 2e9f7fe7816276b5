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
_MOST_HIGH = 1 << 20  # of a time extend: a page of such times stays far below 64 bits
# Words from a header to the next one; 0: see _after_special().
_WORDS_OF_KIND = np.array([0, *range(2, _PADDING + 1), 0, 2, 0], np.int64)
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
    page_words = pages.shape[1]
    first = layout.data_offset // 4
    used = pages[:, 2].astype(np.int64)
    size = used & _USED_BYTES
    unsound = (size > layout.page_bytes - layout.data_offset) | (size == 0)
    size = np.minimum(size, layout.page_bytes - layout.data_offset)
    time = page_times(pages, latest)
    unsound |= time == latest
    end = np.where(time == latest, first, first + size // 4)
    simple, plain = _find_simple(pages, first, end, time, latest)
    odd = np.flatnonzero(~plain)
    if len(odd):
        walk = _Walk(pages[odd], first, end[odd], time[odd], unsound[odd], latest=latest)
        steps = list(walk.steps(page_words))
        unsound[odd] = walk.unsound
        # Steps have the k-th record of each page; the walk's pages are counted among the odd.
        page = np.concatenate([odd[step[0]] for step in steps] or [np.empty(0, np.int64)])
        rest = (np.concatenate([step[k] for step in steps] or [page]) for k in (1, 2, 3))
        both = [np.concatenate(pair) for pair in zip(simple, (page, *rest), strict=True)]
        order = np.argsort(both[0], kind="stable")
        simple = (both[0][order], both[1][order], both[2][order], both[3][order])
    page, times, where, extent = simple
    missed = _missed(pages, used, first, size)
    return Records(times, page, page * page_words + where, extent, missed, unsound)


_Found = tuple[Ints, Ints, Ints, Ints]  # of each record: page, time, first word, length in bytes


def _find_simple(
    pages: Words, first: int, end: Ints, time: Ints, latest: int
) -> tuple[_Found, npt.NDArray[np.bool_]]:
    """Find the records of the pages in which nothing is odd; return them and which pages these are.

    Odd are absolute times and all damage. The walk only adds up lengths;
    the times follow from all headers at once.
    """
    count, page_words = pages.shape
    flat = pages.reshape(-1)
    plain = np.ones(count, np.bool_)
    base = np.arange(count, dtype=np.int64) * page_words
    stop = base + end
    at = base + first
    live = np.flatnonzero(at < stop)
    here, until = at[live], stop[live]
    steps: list[tuple[Ints, Ints]] = []
    while live.size:
        words = _WORDS_OF_KIND[flat[here] & 31]
        after = here + words
        special = np.flatnonzero(words == 0)
        if special.size:
            after[special] = _after_special(flat, here[special], until[special])
        steps.append((live, here))
        going = after < until
        if not going.all():
            plain[live[after > until]] = False
            live, after, until = live[going], after[going], until[going]
        here = after
    heads = np.zeros(count, np.int64)
    for met, _ in steps:
        heads[met] += 1
    start = np.zeros(count + 1, np.int64)
    start[1:] = np.cumsum(heads)
    word = np.empty(int(start[-1]), np.int64)
    for number, (met, where) in enumerate(steps):
        word[start[met] + number] = where
    return _timed(pages, _Headers(word, heads), time, plain, latest=latest)


@dataclass(frozen=True)
class _Headers:
    """Headers by page: the word of each in all pages, and how many each page has."""

    word: Ints
    counts: Ints


def _after_special(flat: Words, here: Ints, until: Ints) -> Ints:
    """Return the word after headers that are not of a fixed length; beyond the page if odd."""
    head, after = flat[here], flat[np.minimum(here + 1, flat.size - 1)].astype(np.int64)
    kind = head & 31
    length = np.where(kind == 0, (after - 4 + 3) & ~3, after & ~3)
    next_at = here + np.where(kind == 0, 2, 1) + length // 4
    odd = (kind == _TIME_STAMP) | (length < 0)
    # Padding with a time is a discarded record; without one it is the end of the page.
    return np.where(odd, until + 1, np.where(head == _PADDING, until, next_at))


def _timed(
    pages: Words, headers: _Headers, time: Ints, plain: npt.NDArray[np.bool_], *, latest: int
) -> tuple[_Found, npt.NDArray[np.bool_]]:
    """Add up the times from headers; return the data records of pages that stay plain."""
    flat, page_words = pages.reshape(-1), pages.shape[1]
    word, counts = headers.word, headers.counts
    head = flat[word]
    kind, delta = head & 31, (head >> 5).astype(np.int64)
    page = np.repeat(np.arange(len(counts)), counts)
    extends = np.flatnonzero(kind == _TIME_EXTEND)
    high = flat[np.minimum(word[extends] + 1, flat.size - 1)].astype(np.int64)
    plain[page[extends[high >= _MOST_HIGH]]] = False  # the sum could overflow unseen
    delta[extends] |= high << _TIME_BITS
    total = np.zeros(len(delta) + 1, np.int64)
    np.cumsum(delta, out=total[1:])
    bounds = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    now = total[1:] + np.repeat(time - total[bounds[:-1]], counts)
    plain[page[~_in_range(now, latest)]] = False
    data = (kind < _PADDING) & plain[page]
    where, kind = word[data], kind[data]
    long = np.flatnonzero(kind == 0)
    extent = kind.astype(np.int64) * 4
    extent[long] = (flat[where[long] + 1].astype(np.int64) - 4 + 3) & ~3
    body = where + 1
    body[long] += 1
    page = page[data]
    return (page, now[data], body - page * page_words, extent), plain


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
