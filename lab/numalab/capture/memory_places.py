"""Reads which pages and lines of programs were fetched: `emulator-configs/memory/places.h`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from numalab.capture.memory_tables import check_bounds, read_table

COLUMNS = (
    "since_ns",
    "kind",
    "vaddr",
    "line",
    "task",
    "node",
    "home",
    "lines",
    "local",
    "moves",
    "stalled_ps",
    "written",
    "read",
)
PAGE, LINE, MOMENT = range(3)
KERNEL = 0  # `vaddr` of a PAGE; no program has it: vm.mmap_min_addr
MARK, FIRST_BARRIER, BARRIER = range(3)  # `vaddr` of a MOMENT
_UNSIGNED = ("task", "written", "read")  # addresses of the kernel, and masks of 64 bits


@dataclass(frozen=True)
class PlacesTable:
    """Rows of `COLUMNS` from virtual time `since_ns` to the next later row's.

    A row has the lines that CPUs of `node` fetched from memory or caches (`lines`), and those of
    them from a memory or cache of that node (`local`). A LINE moved between CPUs `moves` times;
    `written` and `read` are the bytes that stores and loads touched.
    A PAGE has the other lines of a page; `written` and `read` are these lines. The page at `vaddr`
    `KERNEL` has all that the task fetched at addresses of the kernel. A MOMENT is a mark or
    barrier. `left_out` rows had no room.
    """

    rows: pl.DataFrame
    left_out: int = 0


def parse_places(path: Path, nodes: int) -> PlacesTable:
    """Read the table of a run on a machine with `nodes` nodes. Raises HostError for damage."""
    rows, _, left_out = read_table(path, len(COLUMNS), nodes)
    bounded = {"kind": MOMENT + 1, "node": nodes, "home": nodes}
    check_bounds(path, rows, COLUMNS, bounded, unbounded=_UNSIGNED)
    columns = {
        name: rows[:, place] if name in _UNSIGNED else rows[:, place].astype(np.int64)
        for place, name in enumerate(COLUMNS)
    }
    return PlacesTable(pl.DataFrame(columns), left_out)
