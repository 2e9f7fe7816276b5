"""Guests that lie: /proc, sysfs, the kernel log and the workload's output as no kernel writes them.

Each case spoils the texts beside the events of a committed run, and has the run measured as after
its boot. Either it is measured, and then read back whole as a report does, or it has failed in one
message: the runs beside it keep their report.
"""

import random
from collections.abc import Callable
from pathlib import Path

from numalab.campaign.check import check_topology
from numalab.capture.samples import MAX_LINES
from numalab.capture.spec import CaptureSpec, TraceEvent
from numalab.errors import LabError
from numalab.kernel.patched_kernel import find_kernel
from numalab.results.reader import load_domains, load_findings, load_run, load_timeline
from numalab.results.run_files import RunFiles
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from numalab.workload.workload import load_workload, resolve
from support.example_results import RUNS, copy_example

CASES, FEW = 1000, 8
CAPTURE = CaptureSpec(
    tuple(TraceEvent(f"sched:{name}") for name in ("sched_switch", "sched_migrate_task")),
    perf_stat=("instructions", "cache-misses"),
    sample=("vmstat", "schedstat", "tasks", "numa_maps"),
    sample_ms=10,
    numastat=True,
)
_NUMBERS = [
    "0", "-1", "1", "9" * 18, "9" * 20, "9" * 30, "9" * 5000, "18446744073709551615", "1e308",
    "1e999", "-9223372036854775808", "9223372036854775807", "nan", "inf", "0x10", "١٢", "½", "",
    "1.5", "1:2",
]  # fmt: skip
_TEXTS = [
    b"\0",
    b"\xff\xfe",
    b"\x1b[2J",
    b"\n" * 5000,
    b"a" * 100_000,
    b" ",
    b":",
    b",",
    b"\r",
    b'"',
    b"{}",
]

Text = bytearray


def case(seed: int, scratch: Path) -> str:
    """Spoil what a guest has left, measure the run, and read it back."""
    rng = random.Random(seed)
    directory = RunDir(copy_example(scratch / "results") / "runs" / RUNS[0])
    _leave(rng, directory)
    texts = sorted(path for path in directory.out.rglob("*") if path.is_file())
    for _ in range(rng.choice([0, 1, 1, 2, 3, 10])):
        path = rng.choice(texts)
        if path.is_file():
            _spoil(rng, path)
    topology, workload = load_topology("ring-4"), load_workload("bound-hogs")
    asked: dict[str, str | int | float] = {"start_node": 1, "allowed_nodes": "1,3"}
    files = RunFiles(directory)
    try:
        check_topology(
            topology, find_kernel("debian-6.12"), files.guest_view, reserved_mib=0, allow=True
        )
        files.measure(topology, resolve(workload, asked, topology), CAPTURE)
    except (LabError, OSError, ValueError) as error:  # those that a run fails by, and no other
        assert len(str(error)) < 20_000
        return "failed"
    run = load_run(directory)
    assert run.measures
    assert load_findings(directory) is not None
    load_timeline(directory, ("hog",))
    load_domains(directory)
    return "measured"


def _leave(rng: random.Random, directory: RunDir) -> None:
    """Write what a sound guest leaves."""
    directory.out.mkdir(exist_ok=True)
    for path in (directory.analysis, directory.measures):
        path.unlink()
    growth = rng.randrange(1000)
    counters = (
        "numa_hint_faults",
        "numa_hint_faults_local",
        "numa_pages_migrated",
        "pgmigrate_success",
    )
    for path, more in ((directory.vmstat_before, 0), (directory.vmstat_after, growth)):
        path.write_text("".join(f"{name} {10 + more}\n" for name in counters))
    for path, more in ((directory.schedstat_before, 0), (directory.schedstat_after, growth)):
        rows = "".join(
            f"cpu{cpu} 0 0 0 0 0 0 {9 + more} {8 + more} {7 + more}\n" for cpu in range(8)
        )
        path.write_text(f"version 16\ntimestamp 4294\n{rows}")
    for path, more in ((directory.numastat_before, 0), (directory.numastat_after, growth)):
        lines = (f"/sys/node/node{node}/numastat:{name} {5 + more}\n" for node in range(4)
                 for name in ("numa_hit", "numa_miss", "other_node"))  # fmt: skip
        path.write_text("".join(lines))
    for node in range(4):
        folder = directory.sysfs / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{2 * node}-{2 * node + 1}\n")
        (folder / "distance").write_text("10 20 30 20\n")
        (folder / "meminfo").write_text(f"Node {node} MemTotal:  1000000 kB\n")
    directory.sched_domains.write_text("cpu0/domain0/name:MC\ncpu0/domain0/flags:SD_NUMA \n")
    directory.times.write_text("elapsed 1.5\nuser 1.0\nsystem 0.5\n")
    directory.perf_stat.write_text(
        "12,,instructions,1,100.00,,\n<not counted>,,cache-misses,0,0,,\n"
    )
    directory.absent_events.write_text("sched:sched_move_numa\n")
    directory.trace_stats.write_text(
        "cpu0\nentries: 5\noverrun: 0\ncommit overrun: 0\ndropped events: 0\n"
    )
    directory.stdout.write_text("hog 0 pid 7 cpu_seconds 1.5 last_cpu 2 loops 9\n"
                                "total loops 9 per_second 12.5\n")  # fmt: skip
    directory.samples.write_text("".join(_samples(rng)))


def _samples(rng: random.Random) -> list[str]:
    lines = []
    for step in range(rng.choice([1, 5, 50])):
        lines.append(f"@ {step * 10_000_000}\nvmstat numa_hint_faults {step}\n")
        lines += [f"schedstat cpu{cpu} 0 0 0 0 0 0 {step} {step} {step}\n" for cpu in range(8)]
        lines.append(
            f"task 7 7 {step % 4} 7 686f67 0:{step}:1:2:3 1:4:5:6:7\npages 7 0:{step} 1:9\n"
        )
    assert len(lines) < MAX_LINES
    return lines


def _spoil(rng: random.Random, path: Path) -> None:
    text = Text(path.read_bytes())
    rng.choice(_WAYS)(rng, text)
    path.write_bytes(text)
    if rng.random() < 0.03:
        path.unlink()
        if rng.random() < 0.5:
            path.mkdir()


def _number(rng: random.Random, text: Text) -> None:
    """Put a number that no kernel has in the place of one."""
    places = [at for at, byte in enumerate(text) if chr(byte).isdigit()]
    if places:
        first = last = rng.choice(places)
        while last < len(text) and chr(text[last]).isdigit():
            last += 1
        while first and chr(text[first - 1]).isdigit():
            first -= 1
        text[first:last] = rng.choice(_NUMBERS).encode()


def _insert(rng: random.Random, text: Text) -> None:
    at = rng.randrange(len(text) + 1)
    text[at:at] = rng.choice(_TEXTS)


def _flip(rng: random.Random, text: Text) -> None:
    for _ in range(rng.choice([1, 20])):
        if text:
            text[rng.randrange(len(text))] = rng.randrange(256)


def _repeat(rng: random.Random, text: Text) -> None:
    """Say it again, much oftener than a kernel does, or leave the end out."""
    lines = bytes(text).splitlines(keepends=True)
    if not lines:
        return
    at = rng.randrange(len(lines))
    if rng.random() < 0.4:
        lines[at:] = []
    else:
        lines[at:at] = [rng.choice(lines)] * rng.choice([1, 10, 20_000])
    text[:] = b"".join(lines)


_WAYS: list[Callable[[random.Random, Text], None]] = [
    _number,
    _number,
    _number,
    _insert,
    _flip,
    _repeat,
]
