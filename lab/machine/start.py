"""Prepare a guest's files and start it, its placement proved before its first instruction."""

import itertools
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab.errors import HostError
from lab.machine.admission import admit_machine, may_lock_memory
from lab.machine.budget import Admission
from lab.machine.cmdline import TRACE_INSTANCE, render_cmdline
from lab.machine.domain_xml import DomainFiles, Drive, render_domain
from lab.machine.emulator import one_thread_emulator
from lab.machine.hypervisor import Guest, Hypervisor
from lab.machine.jobdisk import make_job_disk, render_job
from lab.machine.machine import NVDIMM_ALIGNMENT, Job, Machine
from lab.machine.memory import (
    HeldMemory,
    Region,
    backed_mib,
    hold_memory,
    node_addresses,
    trace_region,
    unwanted_regions,
)
from lab.machine.owner import this_process
from lab.machine.placement import Placement
from lab.machine.privilege import privilege
from lab.machine.witness import Witness
from lab.store import RunDir, write_text

_MIB = 1 << 20
_counter = itertools.count(1)


@dataclass(frozen=True)
class Prepared:
    """A guest that could be started: its domain, plan and trace region.

    It has `admission` to what it takes of the host, until that is released (`started` does).
    """

    name: str
    xml: str
    cmdline: str
    placement: Placement
    region: Region | None
    admission: Admission


def prepare(
    machine: Machine,
    job: Job,
    run_dir: RunDir,
    *,
    embedded: bool = True,
    restore: tuple[Path, Region] | None = None,
) -> Prepared:
    """Write what the guest needs to `run_dir` and render its domain, without starting it.

    Raises UserError for host CPUs that there are not, HostError where other guests have them.
    """
    placement, admission = admit_machine(machine)
    try:
        admitted = (placement, admission)
        return _prepare(machine, job, run_dir, admitted, embedded=embedded, restore=restore)
    except BaseException:
        admission.release()
        raise


def _prepare(
    machine: Machine,
    job: Job,
    run_dir: RunDir,
    admitted: tuple[Placement, Admission],
    *,
    embedded: bool,
    restore: tuple[Path, Region] | None,
) -> Prepared:
    placement, admission = admitted
    region = trace_region(machine.topology, machine.trace_memory_mib)
    cmdline = render_cmdline(
        region,
        mode=machine.mode,
        unwanted=unwanted_regions(machine.topology),
        extra=machine.extra_cmdline,
        release=machine.release,
        modular=machine.initrd is not None,
    )
    name = f"{machine.name}-{os.getpid()}-{next(_counter)}"
    try:
        run_dir.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for stale in (run_dir.console, run_dir.heartbeat):
            stale.unlink(missing_ok=True)
    except OSError as error:
        raise HostError(f"cannot write {run_dir.path}: {error.strerror}") from None
    files = DomainFiles(
        console=run_dir.console.absolute(),
        heartbeat=run_dir.heartbeat.absolute(),
        rootfs=_rootfs(machine.rootfs),
        job=Drive(run_dir.job_disk.absolute(), machine.job_disk_mib * _MIB),
        emulator=one_thread_emulator() if machine.mode == "tcg" else None,
    )
    xml = render_domain(
        machine,
        placement,
        files,
        name=name,
        cmdline=cmdline,
        owner=this_process(),
        locked=placement.dedicated and not machine.shares_cpus and may_lock_memory(),
        interactive=job.mode == "shell",
        privilege=privilege(embedded=embedded),
        restore=restore,
    )
    write_text(run_dir.domain_xml, xml)
    trace = TRACE_INSTANCE if region else ""
    make_job_disk(run_dir.job_disk, render_job(job, trace), machine.job_disk_mib)
    return Prepared(name, xml, cmdline, placement, region, admission)


def _rootfs(path: Path) -> Drive:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise HostError(f"cannot read the root file system {path}: {error.strerror}") from None
    if size == 0 or size % NVDIMM_ALIGNMENT:
        raise HostError(f"{path} has {size} bytes, not a multiple of {NVDIMM_ALIGNMENT}")
    return Drive(path.absolute(), size)


@contextmanager
def started(
    hypervisor: Hypervisor, machine: Machine, prepared: Prepared
) -> Iterator[tuple[Guest, HeldMemory, Witness]]:
    """Start a guest, prove its placement, then let it run; at the end nothing of it is left."""
    with ExitStack() as stack:
        stack.callback(prepared.admission.release)
        stack.callback(hypervisor.forget, prepared.name)
        guest = hypervisor.start(prepared.name, prepared.xml)
        stack.callback(guest.end)
        memory = _hold(guest, machine)
        stack.callback(memory.close)
        threads = guest.vcpu_threads()
        witness = Witness(guest.pid, threads, memory, machine, prepared.placement)
        witness.started()
        guest.resume()
        yield guest, memory, witness


def _hold(guest: Guest, machine: Machine) -> HeldMemory:
    sizes = [backed_mib(node) * _MIB for node in machine.topology.nodes]
    if machine.pages != "anonymous":
        return hold_memory(guest.pid, sizes)
    starts = map(guest.host_address, node_addresses(machine.topology))
    return HeldMemory((), tuple(zip(starts, sizes, strict=True)))
