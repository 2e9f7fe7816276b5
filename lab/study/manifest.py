"""What a run's manifest says: everything that went in, and how it came out (docs/formats.md)."""

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lab.capture.counters import BufferStats
from lab.capture.decode import Decoded
from lab.kernel.build import BuiltKernel
from lab.machine.kvm import Choice
from lab.machine.run import Outcome
from lab.store import FORMAT
from lab.study.plan import Plan, PlannedRun
from lab.study.prepare import Prepared
from lab.topology.load import topology_to_dict

Record = dict[str, Any]

# Runs that differ in one of these cannot stand beside each other as repetitions.
IDENTITY = ("kernel", "image", "mode", "workload", "machine", "tunables")


def inputs(plan: Plan, run: PlannedRun, prepared: Prepared, choice: Choice) -> Record:
    """Describe what goes into all runs of a variant in a cell; `run` is one of them."""
    workload = plan.workload_of(run)
    kernel = prepared.kernels[plan.study.variants[run.variant].kernel]
    return {
        "format": FORMAT,
        "run": "",
        "study": plan.name,
        "digest": plan.digest,
        "topology": run.topology,
        "machine": topology_to_dict(plan.topologies[run.topology]),
        "variant": run.variant,
        "seed": 0,
        "mode": choice.mode,
        "mode_reason": choice.reason,
        "pages": plan.study.machine.pages,
        "kernel": _kernel(kernel),
        "tunables": dict(plan.study.variants[run.variant].tunables),
        "workload": {
            "name": workload.name,
            "label": run.workload,
            "argv": list(workload.argv),
            "parameters": dict(workload.parameters),
            "tasks": list(workload.tasks),
            "allowed_cpus": list(workload.allowed_cpus),
        },
        "image": {
            "name": prepared.image.name,
            "digest": prepared.image.digest,
            "packages": list(prepared.image.packages),
        },
    }


def here() -> Record:
    """Describe where and when a run starts."""
    return {"host": host(), "started": datetime.now(UTC).isoformat(timespec="seconds")}


def _kernel(kernel: BuiltKernel) -> Record:
    return {
        "name": kernel.spec_name,
        "release": kernel.release,
        "config_hash": kernel.config_hash,
        "digest": kernel.digest,
        "bzimage_sha256": kernel.bzimage_sha256,
        "series": [asdict(series) for series in kernel.series],
        "source_version": kernel.source_version,
        "compiler": kernel.compiler,
    }


def host() -> Record:
    """Describe this host without naming it: kernel, processor, CPUs and memory (MiB)."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "kernel": platform.release(),
        "processor": _processor(),
        "cpus": os.cpu_count(),
        "memory_mib": pages >> 20,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def outcome(result: Outcome) -> Record:
    """Describe how a run came out whose command ended."""
    return {
        "exit_status": result.status,
        "guest_seconds": result.guest_seconds,
        "wall_seconds": {name: round(value, 3) for name, value in result.wall_seconds.items()},
        "cmdline": result.cmdline,
        "versions": dict(result.versions),
        "proof": asdict(result.proof),
        "timing": asdict(result.timing),
        "notes": list(result.notes),
    }


def trace(decoded: Decoded, stats: Sequence[BufferStats]) -> Record:
    """Describe a recording: how much of it there is, and what is known to be missing.

    Where an overwritten buffer only shows that events are missing, the ring buffer's own
    statistics say how many.
    """
    lost = max(decoded.lost, sum(cpu.lost for cpu in stats))
    return {**asdict(decoded), "lost": lost, "whole": decoded.whole and not lost}
