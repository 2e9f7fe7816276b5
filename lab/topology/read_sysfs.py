"""Imports a machine from its sysfs: the live one, or a copy of /sys/devices/system."""

import re
from pathlib import Path

from lab.cpulist import parse_cpulist
from lab.errors import UserError
from lab.topology.imported import FoundNode, Imported, imported_topology

_TOTAL = re.compile(r"MemTotal:\s+(\d{1,15}) kB")
_NODE = re.compile(r"node(\d{1,4})")
_CPU = re.compile(r"cpu(\d{1,5})")
MAX_FILE = 1 << 16


def read_sysfs(root: Path, *, name: str, source: str) -> Imported:
    """Read a tree that has `node/node*/{cpulist,distance,meminfo}` below `root`.

    `root` may be `/sys`, `/sys/devices/system`, `/sys/devices/system/node` or a copy of one of
    them; `cpu/cpu*/topology` beside it gives sockets and threads. Raises UserError for a tree
    that has no nodes or cannot be read.
    """
    system = _system_dir(root)
    folder = system / "node" if (system / "node").is_dir() else system
    numbers = sorted(
        int(found[1]) for path in folder.iterdir() if (found := _NODE.fullmatch(path.name))
    )
    if not numbers:
        raise UserError("no node* folders here", file=folder)
    nodes = []
    table = []
    for number in numbers:
        place = folder / f"node{number}"
        nodes.append(FoundNode(number, _list(place / "cpulist"), _memory(place / "meminfo")))
        table.append(_distances(place / "distance"))
    sockets, threads = _packaging(system / "cpu", {cpu for node in nodes for cpu in node.cpus})
    return imported_topology(
        nodes, table, name=name, source=source, file=folder, sockets=sockets, threads=threads
    )


def _system_dir(root: Path) -> Path:
    for path in (root / "devices/system", root / "sys/devices/system", root):
        if path.is_dir():
            return path
    raise UserError("not a folder", file=root)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE).decode("utf-8", "replace")
    except OSError as error:
        raise UserError(f"cannot read: {error.strerror}", file=path) from None


def _list(path: Path) -> tuple[int, ...]:
    try:
        return parse_cpulist(_text(path))
    except ValueError as error:
        raise UserError(str(error), file=path) from None


def _memory(path: Path) -> int:
    found = _TOTAL.search(_text(path))
    if found is None:
        raise UserError("no line with MemTotal", file=path)
    return int(found[1]) // 1024


def _distances(path: Path) -> list[int]:
    words = _text(path).split()
    if not words or not all(word.isdecimal() and len(word) < 6 for word in words):
        raise UserError("not a row of distances", file=path)
    return [int(word) for word in words]


def _packaging(folder: Path, cpus: set[int]) -> tuple[int | None, int]:
    """Return how many sockets there are and how many threads each core has; None when unknown."""
    if not folder.is_dir():
        return None, 1
    sockets, threads = set(), set()
    for path in folder.iterdir():
        found = _CPU.fullmatch(path.name)
        if found is None or int(found[1]) not in cpus:
            continue
        topology = path / "topology"
        try:
            sockets.add(_text(topology / "physical_package_id").strip())
            threads.add(len(_list(topology / "thread_siblings_list")))
        except UserError:
            return None, 1
    return len(sockets) or None, threads.pop() if len(threads) == 1 else 1
