"""Control groups of a process: a copy of their files, and real groups on this host."""

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from numalab.process import run

V1, V2 = "cgroup", "cgroup2"


def write_group(
    root: Path, files: Mapping[str, str], *, path: str = "/", mounted: str = "/", kind: str = V2
) -> Path:
    """Write a host at `root` whose process is in the group `path`, with these files; return it.

    `mounted` is the group that is mounted at /sys/fs/cgroup: in a container, its own.
    """
    folder = root / "sys/fs/cgroup" / os.path.relpath(path, mounted)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(f"{text}\n")
    me = root / "proc/self"
    me.mkdir(parents=True, exist_ok=True)
    controllers, options = ("", "rw") if kind == V2 else ("cpu,memory", "rw,cpu,memory")
    (me / "cgroup").write_text(f"3:{controllers}:{path}\n")
    (me / "mountinfo").write_text(
        "22 1 8:1 / / rw - ext4 /dev/sda rw\n"
        f"30 22 0:26 {mounted} /sys/fs/cgroup rw,nosuid shared:4 - {kind} none {options}\n"
    )
    return folder


@contextlib.contextmanager
def limited_memory(mib: int) -> Iterator[list[str]]:
    """Yield words that start a command in a new group with so much memory. Raises OSError.

    The group is below this process's, or below the top one where that cannot have any.
    """
    text = Path("/proc/self/mountinfo").read_text()
    mounts = [line.split() for line in text.splitlines()]
    first = [m for m in mounts if V1 in m and "memory" in m[-1].split(",")]
    second = [m for m in mounts if V2 in m]
    name = "memory.limit_in_bytes" if first else "memory.max"
    if not first and not second:
        raise OSError("no control groups are mounted")
    group = Path((first or second)[0][4]) / f"numalab-test-{os.getpid()}"
    group.mkdir()
    try:
        (group / name).write_text(str(mib << 20))
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
    finally:
        run(["sh", "-c", f"until rmdir {group} 2>/dev/null; do sleep 0.1; done"], timeout=60)
