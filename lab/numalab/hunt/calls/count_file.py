"""The file that the plugin `emulator-configs/reach/calls.c` maps: what to count, and the counts.

Numbers of this host. Header (64 bits each): magic, functions, address of the function that writes
marks, marks to keep, marks. Then the addresses of the functions (64 bits), their counts (32 bits),
and their counts at each mark.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from numalab.files import create, read_regular

MOST_MARKS = 4096
_MAGIC = int.from_bytes(b"lncalls1", "little")
_HEADER = 5
_MAX_BYTES = 1 << 27
Counts = npt.NDArray[np.uint32]


def write_functions(path: Path, addresses: Sequence[int], mark: int) -> None:
    """Write a file for the plugin, all counts 0. `addresses` are in order, each once."""
    words = np.array((_MAGIC, len(addresses), mark, MOST_MARKS, 0, *addresses), np.uint64)
    with create(path) as file:
        file.write(words.tobytes())
        file.truncate(len(words) * 8 + (1 + MOST_MARKS) * len(addresses) * 4)


def read_marks(path: Path) -> Counts:
    """Read the counts at each mark: a row for each mark, a column for each function.

    Raises ValueError for another file.
    """
    data = read_regular(path, _MAX_BYTES)
    header = np.frombuffer(data[: _HEADER * 8], np.uint64)
    if len(header) < _HEADER or header[0] != _MAGIC:
        raise ValueError(f"{path} holds no counts of calls")
    functions, kept = int(header[1]), min(int(header[3]), int(header[4]))
    start = (_HEADER + functions) * 8 + functions * 4
    if len(data) < start + kept * functions * 4:
        raise ValueError(f"{path} is cut short")
    return np.frombuffer(data, np.uint32, kept * functions, start).reshape(kept, functions)
