"""What numalab adds to a guest: beside the same QEMU by hand, outside of it, and in a hunt."""

import json
import resource
import shlex
import subprocess
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from bench.boot import NUMALAB
from numalab.campaign.boot import boot
from numalab.campaign.build import Builds
from numalab.capture.decode import decode_trace
from numalab.capture.spec import load_capture, render_events
from numalab.guest.run import run_guest
from numalab.guest.start import prepare as prepare_guest
from numalab.kernel.patched_kernel import find_kernel
from numalab.machine.model import Job, Machine, Mode
from numalab.qemu.hypervisor import connect
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology

KERNEL = "debian-6.12"


def machine(builds: Builds, name: str, mode: Mode = "icount") -> Machine:
    """Return the machine that is booted: ring-4."""
    ring, kernel = load_topology("ring-4"), builds.kernels[KERNEL]
    return Machine(ring, kernel.bzimage, builds.image.path, mode, seed=1, name=name)


@dataclass(frozen=True)
class Start:
    """Seconds to the guest's init by numalab and by hand, and those outside of the guest."""

    ours: float
    by_hand: float
    outside: float


def measure_start(builds: Builds, folder: Path, rounds: int) -> Start:
    """Boot by numalab and by hand in turns; the middle one of each counts."""
    ours, by_hand, outside = [], [], []
    job = Job(("true",), events=render_events(load_capture({}, Path("bench"))))
    for number in range(rounds):
        directory = RunDir(folder / f"run-{number}")
        cold = replace(machine(builds, "bench"), cold=True)
        wall = run_guest(cold, job, directory).wall_seconds
        began = time.monotonic()
        decode_trace(directory.trace, load_topology("ring-4"), directory.events)
        decoding = time.monotonic() - began
        outside.append(wall["prepare"] + wall["start"] + wall["gather"] + decoding)
        ours.append(wall["start"] + wall["boot"])
        hand = replace(cold, name="hand")
        by_hand.append(_boot_by_hand(hand, RunDir(folder / f"hand-{number}")))
    return Start(median(ours), median(by_hand), median(outside))


def _boot_by_hand(machine: Machine, directory: RunDir) -> float:
    """Start the QEMU that libvirt would start, without libvirt; return seconds to the init."""
    prepared = prepare_guest(machine, Job(("true",)), directory)
    if directory.heartbeat.exists():
        raise RuntimeError("the guest is to boot, not to continue a saved one")
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


@dataclass(frozen=True)
class Rate:
    """Guests in a second, and the CPU seconds of this process for each."""

    per_second: float
    own_cpu: float


def measure_small(builds: Builds, guests: int) -> Rate:
    """Run `true` in guests one after the other, in mode tcg, after one that is not counted."""
    spec = find_kernel(KERNEL)
    began = used = 0.0
    for number in range(guests + 1):
        if number == 1:
            began, used = time.monotonic(), time.process_time()
        booted = boot(machine(builds, f"small-{number}", "tcg"), spec, ("true",))
        if booted.outcome.status:
            raise RuntimeError(booted.stderr.decode("utf-8", "replace"))
    own = (time.process_time() - used) / guests
    return Rate(guests / (time.monotonic() - began), own)


def measure_hunt(folder: Path, machines: int) -> float:
    """Hunt on a few machines, and return the CPU seconds of a load, QEMU and all included."""
    words = ["hunt", "--survey", "--against", "none", "--jobs", "1", "--budget", "1h", "--json"]
    argv = [*NUMALAB, *words, "--machines", str(machines), "--output", str(folder / "hunt")]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(argv, check=True, capture_output=True, timeout=3600)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(cpu / json.loads(done.stdout)["loads"])
