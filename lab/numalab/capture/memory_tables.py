"""Reads the counts of the memory model of mode timed: `emulator-configs/memory/oracle.h`.

Two files of little-endian 64-bit numbers: a header of eight, and rows. Our own plugin writes them;
they are cut short if QEMU ends early or the disk is full.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from numalab.errors import HostError
from numalab.topology.memory.costs import MemoryModel
from numalab.topology.memory.timing import memory_model
from numalab.topology.topology import Topology

VERSION = 4
_MAGIC = 0x656C6361726F
_HEADER = 8
_WORD = 8
MAX_BYTES = 4 << 30
MAX_SLICE_NS = 1_000_000_000
_LARGEST = 1 << 63
FIXED = (
    "slice_ns",
    "cpu",
    "task",
    "since_ns",
    "l2_hits",
    "llc_hits",
    "invalidations",
    "stalled_ps",
    "waited_ps",
    "loads",
    "far_loads",
)


@dataclass(frozen=True)
class MemoryTables:
    """Counts by time slice, which begins at `slice_ns` (virtual time) and is `length_ns` long.

    `counts` has a row for each task (`task`: its task_struct's stack pointer) on each CPU (`node`):
    hits in the second and last level, invalidating stores, stall time and queue time of it, loads
    from memory and from far memory, lines from each node's memory (`memory_<node>`) and caches
    (`cache_<node>`), and pages of these lines by home node (`pages_<node>`; once a slice, for the
    first task).

    `traffic` has a row for each memory and link: `from_node`, `to_node` (equal for a memory),
    lines, waiting time in its queue, and time for a line (`line_ps`). `left_out` rows had no room.
    """

    counts: pl.DataFrame
    traffic: pl.DataFrame
    length_ns: int
    left_out: int = 0


def parse_memory_tables(counts: Path, traffic: Path, topology: Topology) -> MemoryTables:
    """Read both files of a run on this machine. Raises HostError for an invalid file."""
    model, nodes = memory_model(topology), len(topology.nodes)
    names = (*FIXED, *node_columns(nodes))
    rows, length_ns, left_out = read_table(counts, len(names), nodes)
    lines, same_ns, more_left_out = read_table(traffic, 4, nodes)
    if length_ns != same_ns:
        raise _damaged(traffic, f"slices of {same_ns} ns, not of {length_ns} ns")
    check_bounds(counts, rows, names, {"cpu": topology.cpu_count})
    traffic_names = ("slice_ns", "server", "lines", "waited_ps")
    check_bounds(traffic, lines, traffic_names, {"server": len(model.servers)})
    node_of = np.array([topology.node_of_cpu(cpu) for cpu in range(topology.cpu_count)])
    columns = {
        name: rows[:, place] if name == "task" else rows[:, place].astype(np.int64)
        for place, name in enumerate(names)
    }
    return MemoryTables(
        pl.DataFrame(columns | {"node": node_of[columns["cpu"]]}).with_columns(
            pl.col("cpu", "node").cast(pl.Int16)
        ),
        _with_ends(lines, model),
        length_ns,
        left_out + more_left_out,
    )


def node_columns(nodes: int) -> tuple[str, ...]:
    """Return the columns by node: lines from each memory, lines from each node's caches, pages."""
    kinds = ("memory", "cache", "pages")
    return tuple(f"{kind}_{node}" for kind in kinds for node in range(nodes))


def _with_ends(lines: np.ndarray, model: MemoryModel) -> pl.DataFrame:
    """Return the traffic of memories and links; what takes a path is counted at its links."""
    ends = np.array([server.ends for server in model.servers], dtype=np.int16)
    lines = lines[~np.array([server.path for server in model.servers])[lines[:, 1].astype(int)]]
    server = lines[:, 1].astype(np.int64)
    return pl.DataFrame(
        {
            "slice_ns": lines[:, 0].astype(np.int64),
            "from_node": ends[server, 0],
            "to_node": ends[server, 1],
            "lines": lines[:, 2].astype(np.int64),
            "waited_ps": lines[:, 3].astype(np.int64),
            "line_ps": np.array([line.line_ps for line in model.servers])[server],
        }
    )


def read_table(path: Path, columns: int, nodes: int) -> tuple[np.ndarray, int, int]:
    """Return a table's rows, the length of its slices, and the number of rows without room.

    Raises HostError for an invalid file.
    """
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _damaged(path, f"{size} bytes are more than {MAX_BYTES}")
        words = np.fromfile(path, dtype="<u8", count=size // _WORD)
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from None
    if len(words) < _HEADER or words[0] != _MAGIC:
        raise _damaged(path, "it does not begin as such a table does")
    _, version, width, of_nodes, length_ns, rows, left_out, _ = (int(w) for w in words[:_HEADER])
    if (version, width, of_nodes) != (VERSION, columns, nodes):
        raise _damaged(
            path,
            f"version {version} with {width} columns and {of_nodes} nodes, not version {VERSION} "
            f"with {columns} and {nodes}",
        )
    if not 0 < length_ns <= MAX_SLICE_NS or left_out >= _LARGEST:
        raise _damaged(path, f"slices of {length_ns} ns")
    room = (size - _HEADER * _WORD) / (columns * _WORD)
    # A table that was not finished says 0 rows: it has as many as there are.
    if room != (rows or int(room)):
        raise _damaged(path, f"it is cut short: {room:g} rows of {rows or 'whole ones'}")
    return words[_HEADER:].reshape(-1, columns), length_ns, left_out


def check_bounds(
    path: Path,
    rows: np.ndarray,
    names: Sequence[str],
    limits: dict[str, int],
    unbounded: Sequence[str] = ("task",),
) -> None:
    """Raise HostError for a number that reaches its limit (by default 2**63)."""
    for place, name in enumerate(names):
        if name in unbounded or not len(rows):
            continue
        most = int(rows[:, place].max())
        if most >= limits.get(name, _LARGEST):
            raise _damaged(path, f"{name} {most} is out of bounds")


def _damaged(path: Path, reason: str) -> HostError:
    return HostError(
        f"{path}: what the memory model counted cannot be read ({reason}); "
        "QEMU was ended, or the disk was full"
    )
