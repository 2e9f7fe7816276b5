"""The limits that control groups (cgroups(7)) set to this process: memory and CPU time.

In a container or on a CI runner, /proc/meminfo and sched_getaffinity(2) show the whole host.
Nothing here raises: a file that is missing or not as documented sets no limit.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_UNLIMITED = 1 << 60  # cgroup v1 writes the largest number of pages instead of `max`
# Memory that the kernel takes back from files and caches before it ends a process.
_RECLAIMABLE = ("inactive_file", "active_file", "slab_reclaimable")


@dataclass(frozen=True)
class MemoryLimit:
    """The memory of this process's tightest group, in bytes: `limit`, and `free` of it."""

    limit: int
    free: int


def memory_limit(root: Path = Path("/")) -> MemoryLimit | None:
    """Return the tightest memory limit of this process's groups; None where there is none.

    `root` holds /proc and /sys of the host.
    """
    limits: list[int] = []
    free: list[int] = []
    for folder in _folders("memory", root):
        for file, usage in _MEMORY_FILES:
            limit = _number(folder / file)
            if limit is not None and limit < _UNLIMITED:
                used = max(0, (_number(folder / usage) or 0) - _reclaimable(folder))
                limits.append(limit)
                free.append(max(0, limit - used))
    return MemoryLimit(min(limits), min(free)) if limits else None


# The files of a limit and of the use, in cgroup v2 and v1. Above memory.high, processes sleep.
_MEMORY_FILES = (
    ("memory.max", "memory.current"),
    ("memory.high", "memory.current"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def cpu_limit(root: Path = Path("/")) -> float | None:
    """Return the CPU seconds a second that this process's groups may use; None for no limit."""
    limits = []
    for folder in _folders("cpu", root):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        quota = quota or _text(folder / "cpu.cfs_quota_us")
        period = period or _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            limits.append(int(quota) / int(period))
    return min(limits, default=None)


def usable_cpus(root: Path = Path("/")) -> int:
    """Return how many CPUs this process can keep busy: by its affinity and its CPU limit."""
    cpus = len(os.sched_getaffinity(0))
    limit = cpu_limit(root)
    return cpus if limit is None else max(1, min(cpus, int(limit)))


def _folders(controller: str, root: Path) -> Iterator[Path]:
    """Yield the visible folders of this process's group and of all groups above it."""
    paths = dict(_groups(root))
    for kind, options, mounted, point in _mounts(root):
        name = "" if kind == "cgroup2" else controller
        if name not in paths or (name and controller not in options):
            continue
        top = root / point.lstrip("/")
        inner = Path(paths[name])
        # In a container, the path may be the host's, and the mount begins at the container's group.
        within = inner.relative_to(mounted) if inner.is_relative_to(mounted) else Path()
        folder = top / within if ".." not in within.parts else top
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _groups(root: Path) -> Iterator[tuple[str, str]]:
    """Yield controller and path of each line of /proc/self/cgroup; cgroup v2 has no controller."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if path.startswith("/"):
            yield from ((controller, path) for controller in controllers.split(","))


def _mounts(root: Path) -> Iterator[tuple[str, list[str], str, str]]:
    """Yield type, options, root and mount point of each mount of cgroups: proc_pid_mountinfo(5)."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, system = before.split(" "), after.split(" ")
        if len(fields) >= 5 and len(system) >= 3 and system[0] in ("cgroup", "cgroup2"):
            yield system[0], system[2].split(","), _unescaped(fields[3]), _unescaped(fields[4])


def _unescaped(path: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)


def _reclaimable(folder: Path) -> int:
    """Return the bytes of files and caches of a group and of those below it."""
    amounts: dict[str, int] = {}
    for line in _text(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if value.isdecimal():
            amounts[name] = int(value)
    # In cgroup v1, the sums over the groups below have names of their own.
    return sum(amounts.get(f"total_{name}", amounts.get(name, 0)) for name in _RECLAIMABLE)


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""
