"""Runs inside the test bed's host: reads from /proc and /sys how QEMU's processes lie on it.

It shares no code with numalab, whose own proof it is compared with. Prints one JSON object.
`evidence.py N` first waits until N QEMUs have a guest whose workload runs, or until nobody is left
who may start one; it then prints what there is.
"""

import json
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any


def cpus(text: str) -> list[int]:
    """Expand `0-3,8`."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def fields(path: Path) -> dict[str, str]:
    """Read a file of `name: value` lines."""
    lines = [line.partition(":") for line in path.read_text().splitlines()]
    return {name: value.strip() for name, _, value in lines}


def processes(program: str = "qemu-system") -> list[int]:
    """Return the processes of a program, in the order in which they were started."""
    pids = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdecimal() and program in str((folder / "exe").readlink()):
                pids.append(int(folder.name))
        except OSError:
            continue
    return sorted(pids)


def threads(pid: int) -> list[dict[str, Any]]:
    """Return each thread's name and the CPUs that it may run on."""
    listed = []
    for folder in Path(f"/proc/{pid}/task").iterdir():
        try:
            status = fields(folder / "status")
        except OSError:
            continue
        allowed = cpus(status["Cpus_allowed_list"])
        listed.append({"tid": int(folder.name), "name": status["Name"], "allowed": allowed})
    return listed


def memory(pid: int) -> list[dict[str, Any]]:
    """Return the guest's memory, a mapping each in the order in which QEMU has opened the files."""
    files = Path(f"/proc/{pid}/fd")
    opened = []
    for number in sorted(int(entry.name) for entry in files.iterdir()):
        with suppress(OSError):  # closed meanwhile
            if "memory-backend" in str((files / str(number)).readlink()):
                opened.append((files / str(number)).stat().st_ino)
    inodes = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and "memory-backend" in words[5]:
            inodes[int(words[0].partition("-")[0], 16)] = int(words[4])
    files_of_memory = []
    for line in Path(f"/proc/{pid}/numa_maps").read_text().splitlines():
        address, policy, *words = line.split()
        if int(address, 16) in inodes:
            pages = {
                w[1:].split("=")[0]: int(w.split("=")[1]) for w in words if re.match(r"N\d", w)
            }
            size = [int(w.split("=")[1]) for w in words if w.startswith("kernelpagesize_kB=")]
            place = opened.index(inodes[int(address, 16)])
            files_of_memory.append((place, policy, pages, size[0] if size else 0))
    return [{"policy": p, "pages": n, "page_kib": s} for _, p, n, s in sorted(files_of_memory)]


def pools() -> dict[str, dict[str, list[int]]]:
    """Return by node and page size how many huge pages there are, and how many are free."""
    sizes: dict[str, dict[str, list[int]]] = {}
    for folder in Path("/sys/devices/system/node").glob("node*/hugepages/hugepages-*"):
        node = folder.parts[-3].removeprefix("node")
        size = folder.name.removeprefix("hugepages-")
        numbers = [int((folder / name).read_text()) for name in ("nr_hugepages", "free_hugepages")]
        sizes.setdefault(node, {})[size] = numbers
    return sizes


def at_work() -> int:
    """Count the guests whose last sign of life came from their workload.

    A daemon has virtlogd write what QEMU writes elsewhere.
    """
    opened = set()
    for pid in (*processes(), *processes("virtlogd")):
        with suppress(OSError):  # it has ended meanwhile
            opened |= {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir()}
    count = 0
    for path in opened:
        if path.endswith("/heartbeat.jsonl"):
            with suppress(OSError):
                lines = Path(path).read_text(errors="replace").splitlines()
                count += bool(lines) and '"workload"' in lines[-1]
    return count


def starters() -> int:
    """Count the numalab processes that may still start a guest."""
    count = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):
                words = (folder / "cmdline").read_bytes().split(b"\0")
                count += any(word.endswith(b"/bin/numalab") for word in words[:2])
    return count


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    begun = time.monotonic()
    # A guest that was just asked for has no process yet.
    while at_work() < wanted and (starters() or time.monotonic() < begun + 30):
        time.sleep(8)  # a look takes most of a second of an emulated CPU
    qemus = []
    for pid in processes():
        status = fields(Path(f"/proc/{pid}/status"))
        qemus.append(
            {
                "pid": pid,
                "starter": int(status["PPid"]),
                "asked": Path(f"/proc/{status['PPid']}/cmdline").read_text().split("\0"),
                "threads": threads(pid),
                "memory": memory(pid),
                "locked_kib": int(status["VmLck"].split()[0]),
                "resident_kib": int(status["VmRSS"].split()[0]),
                "huge_kib": int(status["HugetlbPages"].split()[0]),
                "command": Path(f"/proc/{pid}/cmdline").read_text().split("\0"),
            }
        )
    print(json.dumps({"at_work": at_work(), "qemus": qemus, "pools": pools()}))


if __name__ == "__main__":
    main()
