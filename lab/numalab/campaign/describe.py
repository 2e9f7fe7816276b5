"""What a run's manifest says: everything that went in, and how it came out."""

import hashlib
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from numalab.campaign.prepare import Builds
from numalab.capture.counters import BufferStats
from numalab.capture.decode import Decoded
from numalab.guest.kvm import Choice
from numalab.guest.run import Outcome
from numalab.kernel.kernel_build import BuiltKernel
from numalab.machine.model import SHIFTS
from numalab.results.manifest import (
    CacheFacts,
    EmulatorFacts,
    HostFacts,
    ImageFacts,
    KernelFacts,
    Manifest,
    MemoryFacts,
    RecordingFacts,
    Versions,
    WorkloadFacts,
)
from numalab.results.plan import PlannedRun
from numalab.study.guest import guest_of, tunables_of
from numalab.study.plan import Plan
from numalab.topology.load import topology_to_dict
from numalab.topology.memory.model import memory_model
from numalab.topology.model import Topology


def inputs(plan: Plan, run: PlannedRun, prepared: Builds, choice: Choice) -> Manifest:
    """Describe what goes into a run, and but for its name and seed into all of its variant."""
    workload, variant = plan.workload_of(run), plan.study.variants[run.variant]
    emulator = choice.emulator
    image = prepared.image
    return Manifest(
        run=run.id,
        study=plan.name,
        digest=plan.digest,
        topology=run.topology,
        machine=topology_to_dict(plan.topologies[run.topology]),
        variant=run.variant,
        seed=run.seed,
        mode=choice.mode,
        mode_reason=_reason(plan, choice),
        emulator=EmulatorFacts.model_validate(emulator, from_attributes=True) if emulator else None,
        pages=guest_of(plan.study, plan.topologies[run.topology], run.workload).pages,
        kernel=_kernel(prepared.kernels[variant.kernel]),
        tunables=tunables_of(plan.study, run.variant, run.workload),
        workload=WorkloadFacts(
            name=workload.name,
            label=run.workload,
            argv=workload.argv,
            files={
                name: hashlib.sha256(data).hexdigest()
                for name, data in sorted(prepared.files[workload.name].items())
            },
            parameters=dict(workload.parameters),
            tasks=workload.tasks,
            allowed_cpus=workload.allowed_cpus,
        ),
        image=ImageFacts(name=image.name, digest=image.digest, packages=image.packages),
    )


def _reason(plan: Plan, choice: Choice) -> str:
    """Say why this mode; of mode timed also what its times are made of."""
    if choice.mode != "timed":
        return choice.reason
    table = plan.study.machine
    times = table.slow_motion
    instruction_ns = (table.instruction_ns or 1 << SHIFTS["timed"]) * times
    return (
        f"{choice.reason}; quantum of {table.quantum_ns * times / 1000:g} us,"
        f" a vCPU executes {1000 / instruction_ns:g} million instructions a second"
        f"{f', in slow motion ({times} times)' if times > 1 else ''}"
    )


def memory(topology: Topology) -> MemoryFacts:
    """Describe what the memory model makes of a machine."""
    model, nodes = memory_model(topology), range(len(topology.nodes))
    l1, l2, llc = (
        CacheFacts.model_validate(each, from_attributes=True)
        for each in (model.l1, model.l2, model.llc)
    )
    return MemoryFacts(
        latency_ns=model.latency_ns,
        bandwidth_mb_s=tuple(
            tuple(round(model.bandwidth_mb_s(a, b), 1) for b in nodes) for a in nodes
        ),
        interrupt_ns=model.interrupt_ns,
        l1=l1,
        l2=l2,
        llc=llc,
        llc_groups=len(set(model.groups)),
    )


def here(inputs: Manifest) -> Manifest:
    """Add where and when a run starts."""
    return inputs.but(host=host(), started=datetime.now(UTC).isoformat(timespec="seconds"))


def _kernel(kernel: BuiltKernel) -> KernelFacts:
    return KernelFacts(
        name=kernel.spec_name,
        release=kernel.release,
        config_hash=kernel.config_hash,
        digest=kernel.digest,
        bzimage_sha256=kernel.bzimage_sha256,
        series=kernel.series,
        source_version=kernel.source_version,
        compiler=kernel.compiler,
    )


def host() -> HostFacts:
    """Describe this host without naming it: kernel, processor, CPUs and memory (MiB)."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return HostFacts(
        kernel=platform.release(),
        processor=_processor(),
        cpus=os.cpu_count(),
        memory_mib=pages >> 20,
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def outcome(run: Manifest, result: Outcome) -> Manifest:
    """Add how a run came out whose command ended."""
    return run.but(
        exit_status=result.status,
        guest_seconds=result.guest_seconds,
        wall_seconds={name: round(value, 3) for name, value in result.wall_seconds.items()},
        cmdline=result.cmdline,
        versions=Versions(**result.versions),
        proof=result.proof,
        timing=result.timing,
        notes=tuple(result.notes),
    )


def recording(decoded: Decoded, stats: Sequence[BufferStats]) -> RecordingFacts:
    """Describe a recording: how much of it there is, and what is known to be missing.

    Where an overwritten buffer only shows that events are missing, the ring buffer's own
    statistics say how many.
    """
    lost = max(decoded.lost, sum(cpu.lost for cpu in stats))
    facts = asdict(decoded) | {"lost": lost, "whole": decoded.whole and not lost}
    return RecordingFacts.model_validate(facts)
