"""Pages of the ring buffer, written word by word as include/linux/ring_buffer.h describes them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from numalab.capture.ring_buffer import PageLayout, Records, find_records, page_times

LAYOUT = PageLayout(page_bytes=64, long_bytes=8, data_offset=16)
WORDS = LAYOUT.page_bytes // 4
START = 1 << 40


def page(*words: int, used: int | None = None, flags: int = 0, start: int = START) -> list[int]:
    """A page of 64 bytes: 16 of head (time, bytes in use), then `words`."""
    size = 4 * len(words) if used is None else used
    head = [start & 0xFFFFFFFF, start >> 32, size | flags, 0]
    return [*head, *words, *[0] * (WORDS - 4 - len(words))]


def read(*pages: list[int]) -> Records:
    return find_records(np.array(pages, np.uint32), LAYOUT)


def short(delta: int, words: int) -> int:
    """The head of a record of so many words (1 to 28), `delta` after the one before."""
    return delta << 5 | words


def test_the_time_of_a_page_is_its_first_64_bits() -> None:
    pages = np.array([page(start=(7 << 32) | 5)], np.uint32)
    assert page_times(pages).tolist() == [(7 << 32) | 5]


def test_records_follow_each_other_and_times_add_up() -> None:
    records = read(page(short(0, 1), 11, short(30, 2), 21, 22, short(5, 1), 31))
    assert (records.time - START).tolist() == [0, 30, 35]
    assert records.word.tolist() == [5, 7, 10]
    assert records.bytes.tolist() == [4, 8, 4]
    assert records.unsound.tolist() == [False]


def test_the_records_of_several_pages_come_page_by_page() -> None:
    first, two = page(short(0, 1), 1, short(1, 1), 2), page(short(0, 1), 3, start=START + 9)
    records = read(first, page(used=0), two)
    assert records.page.tolist() == [0, 0, 2]
    assert records.word.tolist() == [5, 7, 2 * WORDS + 5]
    assert (records.time - START).tolist() == [0, 1, 9]
    assert records.unsound.tolist() == [False, True, False], "an empty page is never written"


def test_a_long_record_has_its_length_in_the_next_word() -> None:
    """Type 0: the word after the head counts itself and is rounded up to whole words."""
    records = read(page(short(4, 0), 4 + 10, 1, 2, 3, short(1, 1), 9))
    assert records.bytes.tolist() == [12, 4]
    assert records.word.tolist() == [6, 10]
    assert (records.time - START).tolist() == [4, 5]


def test_a_time_extend_adds_27_more_bits_and_is_no_record() -> None:
    records = read(page(3 << 5 | 30, 2, short(1, 1), 7))
    assert (records.time - START).tolist() == [(2 << 27) + 3 + 1]
    assert records.word.tolist() == [7]


def test_a_time_stamp_sets_the_lower_59_bits_of_the_time() -> None:
    high = 3 << 59
    records = read(page(5 << 5 | 31, 9, short(2, 1), 7, start=high + 1))
    assert records.time.tolist() == [high + (9 << 27) + 5 + 2]


def test_padding_with_a_time_is_a_gap_and_without_ends_the_page() -> None:
    gap = read(page(3 << 5 | 29, 8, 0, short(1, 1), 7))
    assert (gap.time - START).tolist() == [4]
    assert gap.word.tolist() == [8]
    end = read(page(short(0, 1), 5, 29, 0, short(1, 1), 7))
    assert end.word.tolist() == [5]
    assert end.unsound.tolist() == [False]


@pytest.mark.parametrize(
    ("words", "used"),
    [
        ((short(0, 1), 5, short(1, 28)), None),  # longer than what is left
        ((short(0, 1), 5, short(1, 0), 1 << 20), None),
        ((short(0, 1), 5), 49),  # more in use than the page holds
    ],
)
def test_a_page_that_does_not_add_up_is_read_as_far_as_it_does(
    words: tuple[int, ...], used: int | None
) -> None:
    records = read(page(*words, used=used))
    assert records.unsound.tolist() == [True]
    assert records.word.tolist()[:1] == [5]
    assert all(WORDS > word >= 5 for word in records.word.tolist())


def test_what_was_lost_before_a_page_is_in_its_flags_and_behind_its_records() -> None:
    missed, stored = 1 << 31, 1 << 30
    record = (short(0, 1), 5)
    unknown = page(*record, flags=missed)
    counted = page(*record, 42, used=8, flags=missed | stored)
    assert read(page(*record), unknown, counted).missed.tolist() == [0, -1, 42]


def test_any_words_are_read_within_the_page() -> None:
    rng = np.random.default_rng(1)
    pages = rng.integers(0, 1 << 32, (500, WORDS), np.uint32)
    pages[:, 2] &= 0xFF
    records = find_records(pages, LAYOUT)
    assert (records.word >= records.page * WORDS + 4).all()
    assert (records.word * 4 + records.bytes <= (records.page + 1) * LAYOUT.page_bytes).all()
    assert (np.diff(records.page) >= 0).all()


def _read_slowly(page: list[int]) -> tuple[list[tuple[int, int, int]], bool]:
    """Read one page header by header: (time, word, bytes) of each record, and whether it is odd."""
    time, size = page[0] | page[1] << 32, page[2] & ((1 << 27) - 1)
    unsound = size > LAYOUT.page_bytes - 16 or size == 0
    at, end = 4, 4 + min(size, LAYOUT.page_bytes - 16) // 4
    records: list[tuple[int, int, int]] = []
    if time >= (1 << 63) - 1:
        return [], True
    while at < end:
        kind, delta = page[at] & 31, page[at] >> 5
        after = page[at + 1] if at + 1 < WORDS else None
        if kind == 29 and delta == 0:
            return records, unsound
        if after is None and kind in (0, 29, 30, 31):
            return records, True
        assert after is not None or 0 < kind < 29
        length, body, now = 4 * kind, at + 1, time + delta
        if after is not None and kind == 0:
            length, body = (after - 1) & ~3, at + 2
        elif after is not None and kind == 29:
            length = after & ~3
        elif after is not None and kind >= 30:
            length, body, now = 0, at + 2, time + (delta | after << 27)
            if kind == 31:
                now = ((delta | after << 27) & ((1 << 59) - 1)) | (time >> 59 << 59)
        next_at = body + length // 4
        if length < 0 or next_at > end or now < time or now >= (1 << 63) - 1:
            return records, True
        if kind < 29:
            records.append((now, body, length))
        at, time = next_at, now
    return records, unsound


_HEAD = st.one_of(
    st.builds(short, st.integers(0, (1 << 27) - 1), st.integers(0, 4)),
    st.builds(short, st.sampled_from([0, 1, (1 << 27) - 1]), st.integers(26, 31)),
    st.integers(0, 40),
    st.integers(0, (1 << 32) - 1),
)
_PAGE = st.builds(
    lambda words, used, start: page(*words, used=used, start=start),
    st.lists(_HEAD, max_size=WORDS - 4),
    used=st.one_of(st.none(), st.integers(0, 60)),
    start=st.sampled_from([START, 0, (1 << 63) - 3, (1 << 64) - 1]),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(_PAGE, min_size=1, max_size=5))
def test_all_pages_at_once_are_read_as_one_page_header_by_header(pages: list[list[int]]) -> None:
    records = read(*pages)
    for number, words in enumerate(pages):
        mine = records.page == number
        here = zip(
            records.time[mine].tolist(),
            (records.word[mine] - number * WORDS).tolist(),
            records.bytes[mine].tolist(),
            strict=True,
        )
        assert (list(here), bool(records.unsound[number])) == _read_slowly(words)
