"""Imports a machine from its sysfs: the live one, or a copy of /sys/devices/system."""

import re
from collections.abc import Callable
from pathlib import Path

from numalab.cpulist import parse_cpulist, parse_cpumask
from numalab.errors import UserError
from numalab.files import reading
from numalab.topology.importers.common import FoundNode, Imported, imported_topology
from numalab.topology.importers.packaging import CpuPlace

_TOTAL = re.compile(r"MemTotal:\s+(\d{1,15}) kB")
_NODE = re.compile(r"node(\d{1,4})")
MAX_FILE = 1 << 16


def read_sysfs(root: Path, *, name: str, source: str) -> Imported:
    """Read a tree that has `node/node*/{cpulist,distance,meminfo}` below `root`.

    `root` may be `/sys`, `/sys/devices/system`, `/sys/devices/system/node` or a copy of one of
    them, of old kernels too (`cpumap` instead of `cpulist`); `cpu/cpu*/topology` and `cache` beside
    it give sockets, threads and caches. CPUs that are offline are left out. Raises UserError for a
    tree that has no nodes or cannot be read.
    """
    system = _system_dir(root)
    folder = system / "node" if (system / "node").is_dir() else system
    numbers = sorted(
        int(found[1]) for path in folder.iterdir() if (found := _NODE.fullmatch(path.name))
    )
    if not numbers:
        raise UserError("no node* folders here", file=folder)
    online = _online(system / "cpu")
    nodes = []
    table: list[list[int]] = []
    for number in numbers:
        place = folder / f"node{number}"
        cpus = _either(place / "cpulist", place / "cpumap")
        mine = tuple(cpu for cpu in cpus if online is None or cpu in online)
        nodes.append(FoundNode(number, mine, _memory(place / "meminfo")))
        # Of one node some old kernels say that it is 0 away from itself.
        if len(numbers) > 1 and (place / "distance").exists():
            table.append(_distances(place / "distance"))
    distances = _without_gaps(table, numbers) if table else None
    everyone = [cpu for node in nodes for cpu in node.cpus]
    places = {cpu: _place(system / "cpu" / f"cpu{cpu}") for cpu in everyone}
    known = {cpu: found for cpu, found in places.items() if found is not None}
    return imported_topology(nodes, distances, name=name, source=source, file=folder, places=known)


def _system_dir(root: Path) -> Path:
    for path in (root / "devices/system", root / "sys/devices/system", root):
        if path.is_dir():
            return path
    raise UserError("not a folder", file=root)


def _text(path: Path) -> str:
    if path.exists() and not path.is_file():  # reading a FIFO could block for ever
        raise UserError("is not a file", file=path)
    with reading(path), path.open("rb") as file:
        data = file.read(MAX_FILE)
    # Some copies of sysfs keep the padding of the page that the kernel gave.
    return data.replace(b"\0", b"").decode("utf-8", "replace").strip()


def _parsed(path: Path, parse: Callable[[str], tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return parse(_text(path))
    except ValueError as error:
        raise UserError(str(error), file=path) from None


def _either(listed: Path, mask: Path) -> tuple[int, ...]:
    """Read CPUs from a list, or where the kernel had none yet (before 2.6.24), from a mask."""
    if not listed.exists() and mask.exists():
        return _parsed(mask, parse_cpumask)
    return _parsed(listed, parse_cpulist)


def _online(folder: Path) -> frozenset[int] | None:
    """Return the CPUs that are online; None where the tree does not say."""
    if (folder / "online").exists():
        return frozenset(_parsed(folder / "online", parse_cpulist))
    offline = {
        int(path.parent.name.removeprefix("cpu"))
        for path in folder.glob("cpu[0-9]*/online")
        if _text(path) == "0"
    }
    if not offline:
        return None
    numbers = (path.name.removeprefix("cpu") for path in folder.glob("cpu[0-9]*"))
    return frozenset(int(number) for number in numbers if number.isdecimal()) - offline


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


def _without_gaps(table: list[list[int]], numbers: list[int]) -> list[list[int]]:
    """Drop the columns of nodes that are not there.

    A row has a distance for each node that is online, and some kernels print one for each number up
    to the last.
    """
    if all(len(row) == numbers[-1] + 1 for row in table):
        return [[row[number] for number in numbers] for row in table]
    return table


def _place(folder: Path) -> CpuPlace | None:
    """Return where a CPU is; None where its tree does not say."""
    topology = folder / "topology"
    try:
        package = int(_text(topology / "physical_package_id"))
        threads = _either(topology / "thread_siblings_list", topology / "thread_siblings")
    except (UserError, ValueError):
        return None
    if package < 0 or not threads:
        return None
    return CpuPlace(package, threads[0], _last_cache(folder / "cache"))


def _last_cache(folder: Path) -> int | None:
    """Return the first CPU that shares the CPU's last-level cache; None where none is known."""
    found: list[tuple[int, int]] = []
    for index in folder.glob("index[0-9]*"):
        try:
            if _text(index / "type") == "Instruction":
                continue
            level = int(_text(index / "level"))
            cpus = _either(index / "shared_cpu_list", index / "shared_cpu_map")
        except (UserError, ValueError):
            continue
        if cpus:
            found.append((level, cpus[0]))
    return max(found)[1] if found else None
