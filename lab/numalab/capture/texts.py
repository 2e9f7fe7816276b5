"""Texts of the ring buffer: few different ones, repeated in thousands of records."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from numalab.capture.ring_buffer import Ints
from numalab.cpulist import format_cpulist

Bytes = npt.NDArray[np.uint8]
_HASH_BITS = 16
_WIDEST_KEPT = 8  # words of 8 bytes: names of tasks and devices
CPUS = "cpus"
MOST_LISTED = 1 << 25  # characters of the cpulists of one column and piece of the table
_MOST_KEPT = 1 << 12  # texts of one width


@dataclass(frozen=True)
class Texts:
    """Repeated texts: the different texts (or null), and for each record its index in them."""

    different: pl.Series
    which: Ints


def read_arrays(memory: Bytes, begin: Ints, size: Ints, items: str) -> Texts:
    """Read arrays of bytes as texts; one of a negative size is null.

    `items` is a type of numpy for numbers, which get blanks between, as `trace-cmd report` prints
    them; `CPUS` for a mask, which becomes a cpulist; or empty: hexadecimal.
    """
    places: dict[bytes, int] = {}
    which = np.zeros(len(begin), np.int64)
    ranges = zip(begin.tolist(), (begin + size).tolist(), strict=True)
    for row, (start, end) in enumerate(ranges):
        if start <= end:
            which[row] = places.setdefault(memory[start:end].tobytes(), len(places))
    which[size < 0] = len(places)
    return Texts(pl.Series([*_array_texts(places, items), None], dtype=pl.String), which)


def _array_texts(arrays: Iterable[bytes], items: str) -> Iterator[str | None]:
    """Yield the text of each array, null for a part of a number.

    Hostile masks give cpulists of 20 times their size: past `MOST_LISTED` they are null.
    """
    room = MOST_LISTED
    for data in arrays:
        if items == CPUS:
            bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
            text = format_cpulist(np.flatnonzero(bits).tolist()) if room > 0 else None
            room -= len(text or "")
            yield text
        elif not items:
            yield data.hex()
        elif len(data) % np.dtype(items).itemsize:
            yield None
        else:
            yield " ".join(map(str, np.frombuffer(data, items).tolist()))


class KnownTexts:
    """Turns rows of bytes into texts that end at the first NUL.

    Bytes that are not UTF-8 become `\\xNN`; nothing else changes, not even a newline. A text is
    decoded once: a table of hashes finds the rows that are known, and a comparison confirms them.
    """

    def __init__(self) -> None:
        self._tables: dict[int, _TextTable] = {}

    def read(self, raw: Bytes) -> Texts:
        """Return the texts of these rows."""
        if not raw.size:
            return Texts(pl.Series([""]), np.zeros(len(raw), np.int64))
        width = -(-raw.shape[1] // 8)
        if raw.shape[1] == width * 8:
            words = np.ascontiguousarray(raw).view(np.uint64)
        else:
            padded = np.zeros((len(raw), width * 8), np.uint8)
            padded[:, : raw.shape[1]] = raw
            words = padded.view(np.uint64)
        if width > _WIDEST_KEPT:
            return _TextTable(width).read(words)
        if width not in self._tables or len(self._tables[width].texts) > _MOST_KEPT:
            self._tables[width] = _TextTable(width)
        return self._tables[width].read(words)


class _TextTable:
    """The texts of one width that were met, and where they are by their hash."""

    def __init__(self, width: int) -> None:
        self.texts = pl.Series(dtype=pl.String)
        self._words = np.zeros((0, width), np.uint64)
        self._place = np.zeros(1 << _HASH_BITS, np.int64)

    def read(self, words: npt.NDArray[np.uint64]) -> Texts:
        mixed = _mixed(words)
        codes = self._place[mixed >> np.uint64(64 - _HASH_BITS)]
        if len(self._words):
            new = ~_equal(self._words, codes, words)
        else:
            new = np.ones(len(words), np.bool_)
        unknown = np.flatnonzero(new)
        if unknown.size:
            codes[unknown] = self._learn(words[unknown], mixed[unknown])
        return Texts(self.texts, codes)

    def _learn(self, words: npt.NDArray[np.uint64], mixed: npt.NDArray[np.uint64]) -> Ints:
        """Decode each different row, and return where it is in `texts`.

        Two texts of one hash take turns in the table; the one that is not in it is learnt again.
        """
        different = np.sort(pl.Series(mixed).unique().to_numpy())
        codes = np.searchsorted(different, mixed)
        sample = np.empty(len(different), np.int64)
        sample[codes] = np.arange(len(words))
        if not _equal(words[sample], codes, words).all():  # two rows with the same mix
            _, sample, codes = np.unique(words, axis=0, return_index=True, return_inverse=True)
            codes = codes.reshape(-1)
        begin = len(self.texts)
        names = [_text(words[row].tobytes()) for row in sample.tolist()]
        self.texts = pl.concat([self.texts, pl.Series(names, dtype=pl.String)], rechunk=True)
        self._words = np.concatenate([self._words, words[sample]])
        self._place[mixed[sample] >> np.uint64(64 - _HASH_BITS)] = begin + np.arange(len(sample))
        where: Ints = codes + begin
        return where


def _mixed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    mixed = np.zeros(len(words), np.uint64)
    for column in range(words.shape[1]):
        mixed = (mixed ^ words[:, column]) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _equal(
    texts: npt.NDArray[np.uint64], codes: Ints, words: npt.NDArray[np.uint64]
) -> npt.NDArray[np.bool_]:
    same: npt.NDArray[np.bool_] = texts[codes, 0] == words[:, 0]
    for column in range(1, words.shape[1]):
        same &= texts[codes, column] == words[:, column]
    return same


def _text(raw: bytes) -> str:
    return raw.split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
