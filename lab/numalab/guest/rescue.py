"""Get the trace out of the memory of a guest that was lost."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.errors import LabError
from numalab.guest.follow import End, follow
from numalab.guest.start import prepare, started
from numalab.guest.watch import Limits
from numalab.machine.memory import trace_region
from numalab.machine.model import Job, Machine, Mode
from numalab.qemu.collect import read_job_disk
from numalab.qemu.hypervisor import Hypervisor
from numalab.run_dir import RunDir


@dataclass(frozen=True)
class Rescue:
    """What came of a lost guest's trace: the file that has it, or in words why there is none."""

    trace: Path | None = None
    note: str = ""


def rescue_trace(
    hypervisor: Hypervisor,
    machine: Machine,
    job: Job,
    run_dir: RunDir,
    end: End,
) -> Rescue:
    """Boot a second guest that reads the lost one's trace memory.

    The memory must have been saved in `run_dir`. The second guest has the same kernel, topology and
    command line, and the memory is put back before it starts: the kernel then finds the ring
    buffer of "the previous boot" (kernel/trace/ring_buffer.c, rb_meta_valid() in 6.12). The trace
    goes to `run_dir.trace`.
    """
    region = trace_region(machine.topology, machine.trace_memory_mib)
    if not job.events or region is None:
        own = "its trace was in the guest's own memory, which is lost with its kernel"
        return Rescue(note=own if job.events else "nothing was being recorded")
    if "workload" not in end.phase_began:
        return Rescue(note="the guest was lost before the recording began")
    if run_dir.trace.exists():
        return Rescue(note="its trace had been written already")
    rescue_dir = run_dir.rescue
    # Not tcg: what reads a lost guest's trace should not be lost itself (see cmdline.py).
    mode: Mode = "kvm" if machine.mode == "kvm" else "icount"
    rescuer = replace(
        machine, mode=mode, plugins=(), memory_model=None, name=f"{machine.name[:70]}-rescue"
    )
    try:
        prepared = prepare(
            rescuer,
            Job(argv=(), mode="rescue", clock=job.clock),
            rescue_dir,
            embedded=hypervisor.embedded,
            restore=(run_dir.trace_memory.absolute(), region),
        )
        with started(hypervisor, rescuer, prepared) as (guest, _, witness):
            follow(guest, witness, rescue_dir, Limits(total=600.0), None)
            guest.end()
        collected = read_job_disk(rescue_dir.job_disk, rescue_dir.out)
    except (LabError, OSError) as error:
        return Rescue(note=f"its trace memory is kept, but could not be read: {error}")
    if rescue_dir.trace.name not in collected.files:
        return Rescue(note="its trace memory is kept, but held no trace that could be read")
    run_dir.out.mkdir(exist_ok=True)
    rescue_dir.trace.replace(run_dir.trace)
    if rescue_dir.trace_stats.exists():
        rescue_dir.trace_stats.replace(run_dir.trace_stats)
    shutil.rmtree(rescue_dir.path)
    return Rescue(run_dir.trace)
