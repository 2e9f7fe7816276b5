"""Reads the host: this one, a copy of its sysfs and /proc, or a recorded host file (JSON)."""

import json
import os
import re
import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from numalab.cpulist import MAX_CPUS, format_cpulist, parse_cpulist
from numalab.document import Document, Listed, check_document
from numalab.errors import HostError, UserError
from numalab.files import bound_json, read_bounded
from numalab.host.facts import (
    Host,
    HostCpu,
    HostNode,
    PagePool,
    parse_chosen,
    parse_load,
    parse_meminfo,
    parse_numbers,
    parse_steal,
    parse_switch,
)
from numalab.limits.cgroup import cpu_limit, memory_limit

_NODE = re.compile(r"node(\d{1,4})")
_POOL = re.compile(r"hugepages-(\d{1,9})kB")
_MAX_FILE = 1 << 16
_MAX_RECORDING = 16 << 20
_MAX_NODES = 1024
# Of a recording: 1024 nodes with distances and 8192 CPUs, whose errors take 2 KB for each key.
_MOST_VALUES, _MOST_KEYS = 1_200_000, 100_000
_MOST_THREADS, _MOST_SHARING = 256, 2048  # CPUs of a core, of a last-level cache


def read_host(root: Path = Path("/")) -> Host:
    """Read the host whose /sys and /proc lie below `root`.

    A kernel without NUMA is one node. Raises HostError for missing files that every host has.
    """
    try:
        return _read(root)
    except OSError as error:
        raise HostError(f"cannot read {error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise HostError(f"cannot read the host below {root}: {error}") from None


def _read(root: Path) -> Host:
    system = root / "sys/devices/system"
    online = set(parse_cpulist(_text(system / "cpu/online")))
    nodes, distances = _nodes(root, system, online)
    if not online:
        raise ValueError("no CPU is online")
    if homeless := online - {cpu for node in nodes for cpu in node.cpus}:
        raise ValueError(f"no node has CPU {format_cpulist(homeless)}, which is online")
    return Host(
        nodes=nodes,
        distances=distances,
        cpus=tuple(_cpu(system / f"cpu/cpu{cpu}", cpu, online) for cpu in sorted(online)),
        isolated=_optional_list(system / "cpu/isolated"),
        nohz_full=_optional_list(system / "cpu/nohz_full"),
        boost=_boost(system / "cpu"),
        numa_balancing=parse_switch(_optional(root / "proc/sys/kernel/numa_balancing")),
        ksm=parse_switch(_optional(root / "sys/kernel/mm/ksm/run")),
        transparent_hugepages=parse_chosen(
            _optional(root / "sys/kernel/mm/transparent_hugepage/enabled")
        ),
        steal_percent=parse_steal(_optional(root / "proc/stat")),
        load=parse_load(_text(root / "proc/loadavg")),
    )


def _nodes(
    root: Path, system: Path, online: set[int]
) -> tuple[tuple[HostNode, ...], tuple[tuple[int, ...], ...]]:
    folder = system / "node"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    numbers = sorted(int(match[1]) for name in names if (match := _NODE.fullmatch(name)))
    if not numbers:
        total, free = parse_meminfo(_text(root / "proc/meminfo"))
        pools = _pools(root / "sys/kernel/mm/hugepages")
        return (HostNode(0, tuple(sorted(online)), total, free, pools),), ((10,),)
    nodes, distances = [], []
    for number in numbers:
        place = folder / f"node{number}"
        cpus = tuple(cpu for cpu in parse_cpulist(_text(place / "cpulist")) if cpu in online)
        total, free = parse_meminfo(_text(place / "meminfo"))
        nodes.append(HostNode(number, cpus, total, free, _pools(place / "hugepages")))
        distances.append(parse_numbers(_text(place / "distance")))
    # Some kernels print a distance for each number up to the last node's.
    if all(len(row) == numbers[-1] + 1 for row in distances):
        distances = [tuple(row[number] for number in numbers) for row in distances]
    if any(len(row) != len(nodes) for row in distances):
        raise ValueError("the distances are no square table")
    return tuple(nodes), tuple(distances)


def _pools(folder: Path) -> tuple[PagePool, ...]:
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    sizes = sorted(int(match[1]) for name in names if (match := _POOL.fullmatch(name)))
    return tuple(
        PagePool(size, _number(place / "nr_hugepages"), _number(place / "free_hugepages"))
        for size in sizes
        for place in (folder / f"hugepages-{size}kB",)
    )


def _cpu(place: Path, cpu: int, online: set[int]) -> HostCpu:
    siblings = _optional_list(place / "topology/thread_siblings_list")
    socket = _optional(place / "topology/physical_package_id").strip()
    return HostCpu(
        id=cpu,
        socket=int(socket) if socket.isdecimal() else 0,
        siblings=tuple(sorted({cpu, *siblings} & online)),
        llc=tuple(sorted({cpu, *_last_cache(place / "cache")} & online)),
        governor=_optional(place / "cpufreq/scaling_governor").strip()[:40],
    )


def _last_cache(folder: Path) -> tuple[int, ...]:
    """Return the CPUs that share the cache of the highest level."""
    caches = []
    for place in folder.glob("index*") if folder.is_dir() else ():
        level = _optional(place / "level").strip()
        if level.isdecimal():
            caches.append((int(level), _optional_list(place / "shared_cpu_list")))
    return max(caches, default=(0, ()))[1]


def _boost(folder: Path) -> bool | None:
    """Read acpi-cpufreq's and amd-pstate's `boost`, or intel_pstate's `no_turbo`, its opposite."""
    no_turbo = parse_switch(_optional(folder / "intel_pstate/no_turbo"))
    if no_turbo is not None:
        return not no_turbo
    return parse_switch(_optional(folder / "cpufreq/boost"))


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FILE).decode("utf-8", "replace")


def _optional(path: Path) -> str:
    try:
        return _text(path)
    except OSError:
        return ""


def _optional_list(path: Path) -> tuple[int, ...]:
    text = _optional(path).strip()
    # nohz_full prints "(null)" where it is not in use (kernel/time/tick-sched.c).
    return () if text == "(null)" else parse_cpulist(text)


def _number(path: Path) -> int:
    return int(_text(path))


Count = Annotated[int, Field(ge=0, lt=1 << 40)]
Cpu = Annotated[int, Field(ge=0, lt=MAX_CPUS)]
Distance = Annotated[int, Field(ge=1, le=255)]


def _cpus(value: object) -> object:
    return parse_cpulist(value) if isinstance(value, str) else value


Cpulist = Annotated[Listed[Cpu], BeforeValidator(_cpus)]
Distances = Annotated[Listed[Distance], Field(max_length=_MAX_NODES)]


class PagePoolTable(Document):
    """Hugepages of one size on one node."""

    size_kib: Annotated[int, Field(gt=0, lt=1 << 40)]
    total: Count
    free: Count


class HostNodeTable(Document):
    """A node of the host: its CPUs as a list (`0-3,8`), its memory."""

    id: Annotated[int, Field(ge=0, lt=_MAX_NODES)]
    cpus: Cpulist
    memory_mib: Count
    free_mib: Count
    hugepages: Listed[PagePoolTable]


class HostCpuTable(Document):
    """A CPU of the host: its socket, the CPUs of its core and of its last-level cache."""

    id: Cpu
    socket: Annotated[int, Field(ge=0)]
    siblings: Annotated[Cpulist, Field(max_length=_MOST_THREADS)]
    llc: Annotated[Cpulist, Field(max_length=_MOST_SHARING)]
    governor: Annotated[str, Field(max_length=40)]


class HostFile(Document):
    """A host, as `numalab host show --json` prints it and `--host` takes it."""

    nodes: Annotated[Listed[HostNodeTable], Field(min_length=1, max_length=_MAX_NODES)]
    distances: Annotated[Listed[Distances], Field(max_length=_MAX_NODES)]
    cpus: Annotated[Listed[HostCpuTable], Field(min_length=1, max_length=MAX_CPUS)]
    isolated: Cpulist
    nohz_full: Cpulist
    boost: bool | None
    numa_balancing: bool | None
    ksm: bool | None
    transparent_hugepages: Annotated[str, Field(max_length=40)]
    steal_percent: Annotated[float, Field(ge=0, le=100)] | None
    load: Annotated[float, Field(ge=0)]

    @model_validator(mode="after")
    def _agrees(self) -> "HostFile":
        numbers = [cpu.id for cpu in self.cpus]
        size = len(self.nodes)
        if len({node.id for node in self.nodes}) != size:
            raise ValueError("two nodes have the same id")
        if len(self.distances) != size or any(len(row) != size for row in self.distances):
            raise ValueError(f"distances is no table of {size} x {size} numbers")
        if len(set(numbers)) != len(numbers):
            raise ValueError("cpus: two CPUs have the same id")
        self._check_nodes(set(numbers))
        for cpu in self.cpus:
            if cpu.id not in cpu.siblings or cpu.id not in cpu.llc:
                raise ValueError(f"CPU {cpu.id} is not among its own siblings or its own llc")
            if not {*cpu.siblings, *cpu.llc} <= set(numbers):
                raise ValueError(f"CPU {cpu.id} has siblings or llc that are not in cpus")
        return self

    def _check_nodes(self, cpus: set[int]) -> None:
        """Raise ValueError unless each of `cpus`, and no other CPU, is in one node."""
        node_of: dict[int, int] = {}
        for place, node in enumerate(self.nodes):
            for cpu in node.cpus:
                if cpu not in cpus:
                    raise ValueError(f"nodes[{place}].cpus: CPU {cpu} is not in cpus")
                if cpu in node_of:
                    raise ValueError(
                        f"nodes[{place}].cpus: CPU {cpu} is in nodes[{node_of[cpu]}] as well"
                    )
                node_of[cpu] = place
        if lost := sorted(cpus - node_of.keys()):
            raise ValueError(f"cpus: CPUs {format_cpulist(lost)} are in no node")


_HOST = TypeAdapter(Host)


def read_host_file(path: Path) -> Host:
    """Read a host that `numalab host show --json` recorded.

    Raises UserError with the file and the key for anything that is not such a host.
    """
    try:
        value = json.loads(_bounded(read_bounded(path, _MAX_RECORDING)))
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", file=path) from None
    if not isinstance(value, dict):
        raise UserError("not a recorded host: no JSON object", file=path)
    return host_from_json(value, path)


def _bounded(data: bytes) -> bytes:
    """Return a recording. Raises ValueError for more values or keys than a host has."""
    if (keys := data.count(b":")) > _MOST_KEYS:
        raise ValueError(f"{keys} keys, and at most {_MOST_KEYS} are read")
    return bound_json(data, _MOST_VALUES)


def host_from_json(value: dict[str, Any], path: Path) -> Host:
    """Return the host of a recording's JSON values; errors (UserError) name `path`."""
    return _HOST.validate_python(check_document(value, HostFile, path).model_dump())


def available_mib(root: Path = Path("/")) -> int:
    """Return how much memory this process could use without swapping.

    That is MemAvailable (proc(5)), or less where the limit of a cgroup is closer.
    """
    limit = memory_limit(root)
    available = _meminfo_mib("MemAvailable", root)
    return available if limit is None else min(available, limit.free >> 20)


def total_mib(root: Path = Path("/")) -> int:
    """Return the memory of the host (proc(5), MemTotal), or a lower limit of a cgroup."""
    limit = memory_limit(root)
    total = _meminfo_mib("MemTotal", root)
    return total if limit is None else min(total, limit.limit >> 20)


def _meminfo_mib(name: str, root: Path) -> int:
    path = root / "proc/meminfo"
    for line in path.read_text(encoding="ascii").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) >> 10
    raise HostError(f"{path} has no {name}")


_WORK, _ORDINARY = 60_000, 0.004  # squares, and their CPU seconds (Python 3.11 at 3 GHz)


def slowness(root: Path = Path("/"), *, load: bool = True) -> float:
    """Return how many times slower this host is now than an idle host of ordinary speed.

    The CPU time of a fixed computation, times the load of the last minute per CPU, times the part
    of a CPU that a cgroup withholds from this process; at least 1. Without `load` for limits that
    do not count the time in which a process waits for a CPU.
    """
    began = time.process_time()
    sum(number * number for number in range(_WORK))
    speed = (time.process_time() - began) / _ORDINARY
    crowd = os.getloadavg()[0] / len(os.sched_getaffinity(0)) if load else 1.0
    throttled = 1.0 / min(1.0, max(0.01, cpu_limit(root) or 1.0))
    return max(1.0, speed) * max(1.0, crowd) * throttled
