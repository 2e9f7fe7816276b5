"""`make bench`: how fast things are, each against a reference that runs beside it on this host.

A ratio says more than seconds: both sides meet the same host, load and cache. The two sides of a
pair take turns, and the middle one of several rounds counts.
"""

import json
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bench import boot, matrix, report, timed, topology
from numalab.analysis.analyse import analyse
from numalab.campaign.build import Builds, build
from numalab.capture.decode import decode_trace
from numalab.capture.spec import load_capture, render_events
from numalab.guest.run import run_guest
from numalab.guest.start import prepare as prepare_guest
from numalab.image.recipe import load_recipe
from numalab.kernel.patched_kernel import find_kernel
from numalab.machine.model import Job, Machine
from numalab.qemu.hypervisor import connect
from numalab.recording.recording import Recording
from numalab.results.run_files import scan_events
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

ROUNDS = 3
EVENTS = ("sched", "migrate")
HACKBENCH = ("hackbench", "-g", "3", "-l", "2300")  # about 600,000 events


@dataclass(frozen=True)
class Row:
    """One figure: what, ours and the reference in one unit, and what is aimed at."""

    what: str
    ours: float
    reference: float | None
    goal: str
    unit: str = "s"

    @property
    def ratio(self) -> float | None:
        """Ours as a multiple of the reference."""
        return self.ours / self.reference if self.reference else None


def main() -> None:
    """Measure everything and print it, as a table or with --json."""
    prepared = build([find_kernel("debian-6.12")], load_recipe("base"))
    with tempfile.TemporaryDirectory(prefix="numalab-bench-") as folder:
        rows = [
            *boots(),
            *runs(prepared, Path(folder)),
            *decoding(prepared, Path(folder)),
            *matrices(prepared, Path(folder)),
            *speeds(prepared, Path(folder)),
            *commands(),
            *prediction(),
            *reports(Path(folder)),
        ]
    if "--json" in sys.argv[1:]:
        print(json.dumps([{**asdict(row), "ratio": row.ratio} for row in rows], indent=1))
        return
    table = Table(box=None)
    for heading in ("what", "ours", "reference", "ratio", "goal"):
        table.add_column(heading, justify="left" if heading in ("what", "goal") else "right")
    for row in rows:
        reference = "" if row.reference is None else f"{row.reference:.2f} {row.unit}"
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        table.add_row(row.what, f"{row.ours:.2f} {row.unit}", reference, ratio, row.goal)
    Console(width=110).print(table)


def boots() -> Iterator[Row]:
    """Boot ring-4 for one short command as a user types it, beside virtme-ng if it is there."""
    for mode, goal in (("tcg", "<= 5 s"), ("icount", "<= 7 s")):
        ours, theirs = boot.measure(mode, ROUNDS)
        beside = " / virtme-ng" if theirs else ""
        what = f"numalab boot, {mode}, prompt to prompt{beside}"
        yield Row(what, ours.wall, theirs.wall if theirs else None, goal)
        yield Row("CPU time of that", ours.cpu, theirs.cpu if theirs else None, "")


def machine(prepared: Builds, name: str) -> Machine:
    """Return the machine that is booted: ring-4, in icount mode, which does the same each time."""
    kernel = prepared.kernels["debian-6.12"]
    ring = load_topology("ring-4")
    return Machine(ring, kernel.bzimage, prepared.image.path, "icount", seed=1, name=name)


def runs(prepared: Builds, folder: Path) -> Iterator[Row]:
    """Boot by numalab and by hand in turns."""
    ours, by_hand, outside = [], [], []
    for number in range(ROUNDS):
        directory = RunDir(folder / f"run-{number}")
        job = Job(("true",), events=render_events(load_capture({}, Path("bench"))))
        outcome = run_guest(machine(prepared, "bench"), job, directory)
        wall = outcome.wall_seconds
        decoded = _seconds(lambda d=directory: _decode(d))  # type: ignore[misc]
        outside.append(wall["prepare"] + wall["start"] + wall["gather"] + decoded)
        ours.append(wall["start"] + wall["boot"])
        by_hand.append(_boot_by_hand(machine(prepared, "hand"), RunDir(folder / f"hand-{number}")))
    yield Row(
        "start to the guest's init / the same QEMU by hand", median(ours), median(by_hand), "<= 1.1"
    )
    yield Row("a run outside the guest", median(outside), None, "<= 1.5 s")


def _boot_by_hand(machine: Machine, directory: RunDir) -> float:
    """Start the QEMU that libvirt would start, without libvirt; return seconds to the init."""
    prepared = prepare_guest(machine, Job(("true",)), directory)
    words = shlex.split(connect().command_line(prepared.xml))
    argv: list[str] = []
    skip = False
    for word, after in zip(words, [*words[1:], ""], strict=True):
        # Its monitor and secrets are libvirt's own; -S would wait for it.
        if skip or word in ("-S", "-daemonize") or ("=" in word.partition("/")[0] and not argv):
            skip = False
        elif word in ("-mon", "-pidfile") or "monitor" in after or "masterKey" in after:
            skip = True
        else:
            argv.append(word)
    began = time.monotonic()
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        while not (directory.heartbeat.exists() and directory.heartbeat.stat().st_size):
            if process.poll() is not None or time.monotonic() - began > 120:
                errors = process.stderr.read().decode() if process.stderr else ""
                raise RuntimeError(f"QEMU by hand did not boot: {errors}\n{shlex.join(argv)}")
            time.sleep(0.01)
        return time.monotonic() - began
    finally:
        process.kill()
        process.wait()


def decoding(prepared: Builds, folder: Path) -> Iterator[Row]:
    """Decode a large recording, and let trace-cmd print it."""
    directory = RunDir(folder / "large")
    large = replace(machine(prepared, "large"), trace_memory_mib=96, job_disk_mib=256)
    outcome = run_guest(large, Job(HACKBENCH, events=EVENTS), directory)
    if outcome.status:
        raise RuntimeError(directory.stderr.read_text())
    pairs = [
        (_seconds(lambda: _decode(directory)), _seconds(lambda: _trace_cmd_report(directory.trace)))
        for _ in range(ROUNDS)
    ]
    events = _decode(directory)
    ours, reference = (median(side) for side in zip(*pairs, strict=True))
    yield Row(f"decode {events} events / trace-cmd report", ours, reference, "<= 1.0")
    ring = load_topology("ring-4")
    analysed = _median(lambda: analyse(Recording(scan_events(directory), ring, tasks=())))
    yield Row("take all measures and findings of them", analysed, None, "")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    yield Row("memory at the peak of all this", peak, None, "<= 1024 MiB", "MiB")


def _decode(directory: RunDir) -> int:
    return decode_trace(directory.trace, load_topology("ring-4"), directory.events).events


def _trace_cmd_report(trace: Path) -> None:
    with Path("/dev/null").open("w") as null:
        subprocess.run(["trace-cmd", "report", str(trace)], stdout=null, stderr=null, check=True)


def matrices(prepared: Builds, folder: Path) -> Iterator[Row]:
    """Run eight guests one after the other and two at once; list and query many runs."""
    serial, parallel = (matrix.run_all(prepared, folder, jobs) for jobs in (1, 2))
    yield Row("8 runs in icount mode: --jobs 1 / --jobs 2", serial[0], parallel[0], ">= 1.7")
    yield Row("CPU time of that", serial[1], parallel[1], ">= 0.9")
    listed, asked = matrix.list_and_query(folder)
    yield Row(f"list {matrix.RUNS_LISTED} runs", listed, None, "<= 1 s")
    yield Row(f"a query over the measures of {matrix.RUNS_LISTED} runs", asked, None, "<= 2 s")


def speeds(prepared: Builds, folder: Path) -> Iterator[Row]:
    """Emulate loops on 8 and 16 vCPUs: CPU time beside icount, guest time beside the host's."""
    for cpus in timed.TOPOLOGIES:
        reference = None
        for number, (name, machine) in enumerate(timed.machines(prepared, cpus)):
            speed = timed.measure(machine, folder / f"{cpus}-{number}")
            if reference is None:
                reference = speed.cpu
                continue
            what = f"loops on {cpus} vCPUs, {name} / icount, CPU time"
            yield Row(what, speed.cpu, reference, "<= 1.1" if "no" in name else "")
            ratio = speed.guest / speed.cpu
            yield Row("guest seconds in a second of that", ratio, None, "", "s")


def commands() -> Iterator[Row]:
    """Time commands as whole processes, start of Python included."""
    python = _median(lambda: _run("-c", "pass"))
    show = _median(lambda: _numalab("topology", "show", "ring-4"))
    yield Row("numalab topology show ring-4 / python -c pass", show, python, "<= 0.5 s")


def prediction() -> Iterator[Row]:
    """Predict the largest machine in every shape; the slowest counts."""
    sizes = topology.measure_all()
    what = f"predict {topology.NODES} nodes, {topology.NODES * topology.CPUS_OF_NODE} CPUs"
    seconds, mib = max(size.seconds for size in sizes), max(size.mib for size in sizes)
    yield Row(what, seconds, None, f"<= {topology.LIMIT_SECONDS:.0f} s")
    yield Row("memory of that", mib, None, f"<= {topology.LIMIT_MIB} MiB", "MiB")


def reports(folder: Path) -> Iterator[Row]:
    """Report 30 runs with a million events, and open the page."""
    results = report.make_results(folder / "report")
    seconds, mib = report.measure(results.path)
    runs = f"{2 * report.SEEDS} runs, {report.EVENTS:,} events"
    yield Row(f"report of {runs}", seconds, None, f"<= {report.LIMIT_SECONDS:.0f} s")
    yield Row("memory of that", mib, None, f"<= {report.LIMIT_MIB} MiB", "MiB")
    if (ready := report.ready(results.html)) is not None:
        yield Row("its page ready in Chromium", ready, None, f"<= {report.LIMIT_READY:.0f} s")


def _numalab(*words: str) -> None:
    _run("-c", "from numalab.cli.entry import main; main()", *words)


def _run(*words: str) -> None:
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)


def _median(measured: Callable[[], object]) -> float:
    return median(_seconds(measured) for _ in range(ROUNDS))


def _seconds(measured: Callable[[], object]) -> float:
    began = time.monotonic()
    measured()
    return time.monotonic() - began


if __name__ == "__main__":
    main()
