"""Texts of the ring buffer, each decoded once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.capture import texts as module
from numalab.capture.texts import CPUS, KnownTexts, read_arrays

_RAW = st.one_of(
    st.sampled_from([b"", b"a", b"a\0b", b"\xff", b"migration/0", b"new\nline"]),
    st.binary(max_size=24),
)


@given(
    st.lists(st.tuples(st.sampled_from([3, 8, 16, 24]), st.lists(_RAW, max_size=30)), max_size=6)
)
def test_every_row_becomes_its_text(pieces: list[tuple[int, list[bytes]]]) -> None:
    reader = KnownTexts()
    for width, texts in pieces:
        rows = [text[:width].ljust(width, b"\0") for text in texts]
        raw = np.frombuffer(b"".join(rows), np.uint8).reshape(len(rows), width)
        read = reader.read(raw)
        wanted = [row.split(b"\0")[0].decode("utf-8", "backslashreplace") for row in rows]
        assert read.different.gather(read.which).to_list() == wanted


def test_more_texts_than_are_kept_are_read_as_well() -> None:
    reader = KnownTexts()
    for start in range(0, 90_000, 30_000):
        numbers = np.arange(start, start + 30_000, dtype="<u8") + (1 << 40)
        raw = numbers.view(np.uint8).reshape(-1, 8)
        read = reader.read(raw)
        assert len(read.which) == 30_000
        wanted = [row.tobytes().split(b"\0")[0].decode("utf-8", "backslashreplace") for row in raw]
        assert read.different.gather(read.which).to_list() == wanted


def test_the_cpulists_of_hostile_masks_end_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LISTED", 5)
    memory = np.array([0b10101, 0b1, 0b10101, 0b10], np.uint8)
    read = read_arrays(memory, np.arange(4), np.ones(4, np.int64), CPUS)
    assert read.different.gather(read.which).to_list() == ["0,2,4", None, "0,2,4", None]
