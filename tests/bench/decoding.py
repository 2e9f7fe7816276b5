"""How fast a recording is decoded and measured, beside `trace-cmd report`."""

import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.boot import NUMALAB
from bench.guests import machine
from bench.large import repeat
from numalab.analysis.analyse import analyse
from numalab.campaign.build import Builds
from numalab.capture.decode import decode_trace
from numalab.guest.run import run_guest
from numalab.machine.model import Job
from numalab.recording.recording import Recording
from numalab.results.run_files import scan_events
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

EVENTS = ("sched", "migrate")
EVENTS_OF_LOOP = 260  # about 600,000 events with 2300 loops


@dataclass(frozen=True)
class Decoding:
    """Wall and CPU seconds of both sides, seconds of the measures, and the peak in MiB."""

    ours: float
    reference: float
    ours_cpu: float
    reference_cpu: float
    measures: float
    memory: float


def recorded(builds: Builds, folder: Path, events: int) -> RunDir:
    """Record hackbench in ring-4; return the run's folder."""
    directory = RunDir(folder / "large")
    large = replace(machine(builds, "large"), trace_memory_mib=96, job_disk_mib=256)
    command = ("hackbench", "-g", "3", "-l", str(events // EVENTS_OF_LOOP))
    outcome = run_guest(large, Job(command, events=EVENTS), directory)
    if outcome.status:
        raise RuntimeError(directory.stderr.read_text())
    return directory


def measure_decoding(builds: Builds, folder: Path, events: int, rounds: int) -> Decoding:
    """Decode a recording of hackbench and let trace-cmd print it, in turns."""
    directory = recorded(builds, folder, events)
    ring = load_topology("ring-4")
    ours, reference = [], []
    for _ in range(rounds):
        ours.append(
            _spent(
                lambda: decode_trace(directory.trace, ring, directory.events), resource.RUSAGE_SELF
            )
        )
        reference.append(_spent(lambda: _report(directory.trace), resource.RUSAGE_CHILDREN))
    run = Recording(scan_events(directory), ring, tasks=())
    measures = [_spent(lambda: analyse(run), resource.RUSAGE_SELF)[0] for _ in range(rounds)]
    return Decoding(
        median(wall for wall, _ in ours),
        median(wall for wall, _ in reference),
        median(cpu for _, cpu in ours),
        median(cpu for _, cpu in reference),
        median(measures),
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    )


def measure_long(trace: Path, folder: Path, events: int) -> tuple[float, float]:
    """Measure a recording of `events` events at least; return minutes and the peak in MiB.

    Its pages are those of `trace` again and again.
    """
    path = folder / "long.dat"
    times = -(-events // decode_trace(trace, None, folder / "events.parquet").events)
    repeat(trace, path, times)
    argv = [*NUMALAB, "trace", str(path), "--topology", "ring-4", "--json"]
    # Its own child: the peak of all children would be that of the largest.
    program = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    began = time.monotonic()
    command = [sys.executable, "-c", program, *argv]
    done = subprocess.run(command, check=True, capture_output=True, timeout=7200)
    path.unlink()
    return (time.monotonic() - began) / 60, int(done.stdout) / 1024


def _report(trace: Path) -> None:
    null = subprocess.DEVNULL
    subprocess.run(["trace-cmd", "report", str(trace)], stdout=null, stderr=null, check=True)


def _spent(part: Callable[[], object], who: int) -> tuple[float, float]:
    """Return wall and CPU seconds of a call: CPU of this process, or of its children."""
    before, began = resource.getrusage(who), time.monotonic()
    part()
    wall, after = time.monotonic() - began, resource.getrusage(who)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
