"""Imports a machine from sysfs: the live tree, or a copy of /sys/devices/system."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from numalab.cpulist import format_cpulist, parse_ascending, parse_cpumask
from numalab.errors import UserError
from numalab.files import read_bounded
from numalab.topology.importers.imported import (
    ChangeKind,
    ImportChange,
    Imported,
    ImportedNode,
    Location,
    clusters_left_out,
    imported_topology,
    memory_speeds_left_out,
)
from numalab.topology.importers.packaging import CpuPlace

_MEMORY = re.compile(r"(?:Node ([0-9]{1,4}) )?(Mem(?:Total|Free|Used)):\s*(.*)")
_KIB = re.compile(r"([0-9]{1,15}) kB")
_NODE = re.compile(r"node([0-9]{1,4})")
_CPU = re.compile(r"cpu([0-9]{1,5})")
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_DISTANCE = re.compile(r"[0-9]{1,5}")
MAX_FILE = 1 << 16


def read_sysfs(root: Path, *, name: str, source: str) -> Imported:
    """Read a tree that has `node/node*/{cpulist,distance,meminfo}` below `root`.

    `root` is `/sys`, `/sys/devices/system`, `/sys/devices/system/node` or a copy of one of them, of
    old kernels too (`cpumap` instead of `cpulist`). `cpu/cpu*/topology` and `cache` give sockets,
    threads and caches. Offline CPUs are left out. Raises UserError, with the file, for a tree that
    has no nodes, cannot be read, or contradicts itself.
    """
    system = _system_dir(root)
    folder = system / "node" if (system / "node").is_dir() else system
    numbers = _numbers(folder, _NODE)
    if not numbers:
        raise UserError("no node* folders here", file=folder)
    _check_online_nodes(folder / "online", numbers)
    online = _online(system / "cpu")
    nodes, offline = [], _offline(system / "cpu", online)
    for number in numbers:
        place = folder / f"node{number}"
        listed, meminfo = place / "cpulist", place / "meminfo"
        cpus = _either(listed, place / "cpumap")
        cpus_at = Location(listed if listed.exists() else place / "cpumap")
        offline |= set(cpus) - (set(cpus) if online is None else online)
        present = tuple(cpu for cpu in cpus if cpu not in offline)
        memory = _memory(meminfo, number)
        nodes.append(ImportedNode(number, present, memory, cpus_at, Location(meminfo)))
    remarks = []
    if offline:
        text = f"left out CPUs that are offline: {format_cpulist(offline)}"
        remarks.append(ImportChange(ChangeKind.OFFLINE, text))
    _check_cpu_folders(system / "cpu", nodes, online)
    if speeds := _uneven_speeds(system / "cpu", nodes):
        text = f"left out speeds of CPUs, which differ ({speeds}): all CPUs of a guest are equal"
        remarks.append(ImportChange(ChangeKind.SPEEDS, text))
    # Of the nearest CPUs only (Documentation/admin-guide/mm/numaperf.rst).
    if any(folder.glob("node[0-9]*/access[0-9]*/initiators/read_*")):
        remarks.append(memory_speeds_left_out())
    rows = [folder / f"node{number}" / "distance" for number in numbers]
    return imported_topology(
        nodes,
        _table(rows, numbers),
        name=name,
        source=source,
        file=folder,
        places=_places(system / "cpu", frozenset(cpu for node in nodes for cpu in node.cpus)),
        rows_at=[Location(path) for path in rows],
        remarks=[*remarks, *clusters_left_out(_clusters(system / "cpu", nodes))],
    )


def _system_dir(root: Path) -> Path:
    for path in (root / "devices/system", root / "sys/devices/system", root):
        if path.is_dir():
            return path
    raise UserError("not a folder", file=root)


def _numbers(folder: Path, pattern: re.Pattern[str]) -> list[int]:
    """Return the numbers of the folders of nodes or CPUs. Raises UserError for one with zeros."""
    numbers = set()
    for path in folder.iterdir():
        if match := pattern.fullmatch(path.name):
            if match[1] != str(int(match[1])):
                raise UserError("a number with zeros before it", file=path)
            numbers.add(int(match[1]))
    return sorted(numbers)


def _text(path: Path) -> str:
    if path.exists() and not path.is_file():  # reading a FIFO could block for ever
        raise UserError("is not a file", file=path)
    # Some copies of sysfs keep the padding of the page that the kernel gave.
    data = read_bounded(path, MAX_FILE).rstrip(b"\0")
    if not data.isascii() or b"\0" in data:
        raise UserError("bytes that no kernel prints there", file=path)
    return data.decode("ascii").strip()


def _cpulist(path: Path) -> tuple[int, ...]:
    return Location(path).parsed(parse_ascending, _text(path))


def _either(listed: Path, mask: Path) -> tuple[int, ...]:
    """Read CPUs from a list, or from a mask of kernels without lists (before 2.6.24)."""
    if not mask.exists():
        return _cpulist(listed)
    masked = Location(mask).parsed(parse_cpumask, _text(mask))
    if not listed.exists():
        return masked
    cpus = _cpulist(listed)
    if cpus != masked:
        raise UserError(f"not the CPUs of {mask.name}: {format_cpulist(masked)}", file=listed)
    return cpus


def _check_online_nodes(path: Path, numbers: list[int]) -> None:
    if path.exists() and (online := _cpulist(path)) != tuple(numbers):
        raise UserError(
            f"nodes {format_cpulist(online)}, but there are folders of nodes "
            f"{format_cpulist(numbers)}",
            file=path,
        )


def _online(folder: Path) -> frozenset[int] | None:
    """Return the CPUs that are online; None where the tree has no such files."""
    if (folder / "online").exists():
        return frozenset(_cpulist(folder / "online"))
    if not folder.is_dir():
        return None
    numbers = _numbers(folder, _CPU)
    offline = {number for number in numbers if not _is_online(folder / f"cpu{number}" / "online")}
    return frozenset(numbers) - offline if offline else None


def _offline(folder: Path, online: frozenset[int] | None) -> set[int]:
    """Return the CPUs that are there and not online: current kernels list them in no node."""
    if online is None or not folder.is_dir():
        return set()
    present = folder / "present"
    return {*(_cpulist(present) if present.exists() else _numbers(folder, _CPU))} - online


def _is_online(path: Path) -> bool:
    """Tell whether a CPU is online; a CPU that is always online has no such file."""
    if not path.exists():
        return True
    text = _text(path)
    if text not in ("0", "1", ""):  # empty: a copy of a file that could not be read
        raise UserError(f"not 0 or 1: {text[:40]!r}", file=path)
    return text != "0"


def _check_cpu_folders(
    folder: Path, nodes: Iterable[ImportedNode], online: frozenset[int] | None
) -> None:
    """Check that the CPUs of the nodes are those of the folder `cpu`, where there is one."""
    numbers = frozenset(_numbers(folder, _CPU)) if folder.is_dir() else frozenset()
    holders = {cpu: node for node in nodes for cpu in node.cpus}
    for cpu, node in holders.items():
        if numbers and cpu not in numbers and node.cpus_at is not None:
            raise node.cpus_at.error(f"CPU {cpu} has no folder {folder / f'cpu{cpu}'}")
    # The folder of a CPU that is offline has no topology.
    present = {cpu for cpu in numbers if (folder / f"cpu{cpu}" / "topology").is_dir()}
    if online is not None:
        present = set(online) & numbers if numbers else set(online)
    if alone := sorted(present - holders.keys()):
        raise UserError(f"CPU {alone[0]} is online, and in no node", file=folder)


def _memory(path: Path, node: int) -> int:
    """Return a node's memory in MiB, its MemTotal, which MemFree and MemUsed must add up to."""
    sizes: dict[str, int] = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        match = _MEMORY.fullmatch(line.strip())
        if match is None:
            continue
        at = Location(path, f"line {number}")
        size = _KIB.fullmatch(match[3])
        if size is None:
            raise at.error(f"not a size in kB: {match[3][:40]!r}")
        if match[1] is not None and int(match[1]) != node:
            raise at.error(f"{match[2]} of node {int(match[1])}, in the folder of node {node}")
        if match[2] in sizes:
            raise at.error(f"{match[2]} is given twice")
        sizes[match[2]] = int(size[1])
    if "MemTotal" not in sizes:
        raise UserError("no line with MemTotal", file=path)
    rest = sizes["MemTotal"] - sizes.get("MemFree", 0)
    if rest < 0 or sizes.get("MemUsed", rest) != rest:
        raise UserError("MemTotal is not the sum of MemFree and MemUsed", file=path)
    return sizes["MemTotal"] // 1024


def _table(paths: list[Path], numbers: list[int]) -> list[list[int]] | None:
    """Read the rows of distances; None where no node has one."""
    if not any(path.exists() for path in paths):
        return None
    rows = [_distances(path) for path in paths]
    if len(rows) == 1 and rows[0] in ([0], [10]):  # some old kernels have 0 for a single node
        return [[10]]
    # A row has a distance for each node that is online, and some kernels print one for each number
    # up to the last.
    if all(len(row) == numbers[-1] + 1 for row in rows):
        return [[row[number] for number in numbers] for row in rows]
    return rows


def _distances(path: Path) -> list[int]:
    words = _text(path).split()
    if not words or not all(map(_DISTANCE.fullmatch, words)):
        raise UserError("not a row of distances", file=path)
    return [int(word) for word in words]


_SiblingLists = dict[tuple[str, int], tuple[tuple[int, ...], Path]]


def _check_siblings(
    lists: _SiblingLists, kind: str, cpu: int, cpus: tuple[int, ...], path: Path
) -> None:
    """Check that a CPU is in its own list, and that all CPUs of the list have the same list."""
    if cpu not in cpus:
        raise UserError(f"CPU {cpu} is not among its own {kind} siblings", file=path)
    for sibling in cpus:
        first, first_at = lists.setdefault((kind, sibling), (cpus, path))
        if first != cpus:
            raise UserError(
                f"CPUs {format_cpulist(cpus)} are {kind} siblings here, and CPUs "
                f"{format_cpulist(first)} in {first_at}",
                file=path,
            )


def _places(folder: Path, online: frozenset[int]) -> dict[int, CpuPlace]:
    """Return the places of the CPUs that have a package id and thread siblings in the tree."""
    places: dict[int, CpuPlace] = {}
    lists: _SiblingLists = {}
    for cpu in sorted(online):
        topology = folder / f"cpu{cpu}" / "topology"
        package = topology / "physical_package_id"
        threads = topology / "thread_siblings_list", topology / "thread_siblings"
        if not package.exists() or not any(path.exists() for path in threads):
            continue
        number, core = _number(package), _either(*threads)
        _check_siblings(lists, "thread", cpu, tuple(c for c in core if c in online), topology)
        cache = _last_cache(folder / f"cpu{cpu}" / "cache")
        if cache is not None:
            level, cpus, path = cache
            shared = tuple(c for c in cpus if c in online)
            _check_siblings(lists, f"cache of level {level}", cpu, shared, path)
        package_id = number if number >= 0 else None  # -1: the default of linux/topology.h
        places[cpu] = CpuPlace(package_id, core[0], cache[1][0] if cache else None)
    return places


def _clusters(folder: Path, nodes: Iterable[ImportedNode]) -> Iterator[int]:
    """Yield the sizes of clusters of several cores that are smaller than the last-level cache."""
    online = frozenset(cpu for node in nodes for cpu in node.cpus)
    for cpu in sorted(online):
        topology = folder / f"cpu{cpu}" / "topology"
        path, threads = topology / "cluster_cpus_list", topology / "thread_siblings_list"
        cache = _last_cache(folder / f"cpu{cpu}" / "cache")
        if cache is None or not (path.exists() and threads.exists()):
            continue
        cluster = online.intersection(_cpulist(path))
        if online.intersection(_cpulist(threads)) < cluster < online.intersection(cache[1]):
            yield len(cluster)


def _uneven_speeds(folder: Path, nodes: Iterable[ImportedNode]) -> str:
    """Return the name of a file by which CPUs have several speeds, "" if there is none."""
    cpus = [folder / f"cpu{cpu}" for node in nodes for cpu in node.cpus]
    for name in ("cpu_capacity", "cpufreq/cpuinfo_max_freq"):
        texts = {_text(cpu / name) for cpu in cpus if _is_readable(cpu / name)}
        if len(texts - {""}) > 1:  # empty: a copy of a file that could not be read
            return name
    return ""


def _is_readable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.R_OK)


def _number(path: Path) -> int:
    text = _text(path)
    if not _NUMBER.fullmatch(text):
        raise UserError("not a number", file=path)  # a link may lead to any file: its text stays
    return int(text)


def _last_cache(folder: Path) -> tuple[int, tuple[int, ...], Path] | None:
    """Return the level of a CPU's last-level cache, the CPUs that share it, and its folder."""
    levels = [
        (_number(index / "level"), index)
        for index in folder.glob("index[0-9]*")
        if (index / "level").exists()
        and not ((index / "type").exists() and _text(index / "type") == "Instruction")
    ]
    for level, index in sorted(levels, reverse=True):
        shared = index / "shared_cpu_list", index / "shared_cpu_map"
        if any(path.exists() for path in shared) and (cpus := _either(*shared)):
            return level, cpus, index
    return None
