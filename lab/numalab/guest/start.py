"""Prepare a guest's files, start it, and prove its placement before its first instruction."""

import itertools
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.capture.spec import TRACE_INSTANCE
from numalab.errors import HostError
from numalab.files import create, write_text
from numalab.guest.saved_guest_artifact import SavedGuest, read_saved, saved_entry
from numalab.guest.witness import Witness
from numalab.host.privilege import privilege
from numalab.host.processes import this_process
from numalab.machine.memory import (
    HeldMemory,
    Region,
    backed_mib,
    check_addressable,
    hold_memory,
    node_addresses,
    trace_region,
    unwanted_regions,
)
from numalab.machine.model import NVDIMM_ALIGNMENT, Job, Machine, Plugin
from numalab.placement.admission import admit_machine, locks_memory
from numalab.placement.planner import Placement
from numalab.qemu.cmdline import render_cmdline
from numalab.qemu.domain_xml import Drive, GuestFiles, render_domain
from numalab.qemu.emulator import one_thread_emulator, qemu_version
from numalab.qemu.guest import Guest
from numalab.qemu.hypervisor import Hypervisor
from numalab.qemu.jobdisk import make_job_disk, render_job
from numalab.run_dir import RunDir, check_guest_path
from numalab.scratch import scratch_folder
from numalab.topology.memory.costs import render_parameters
from numalab.topology.memory.timing import memory_model
from numalab.topology.predict.firmware import as_guest_numbers, node_numbers

_MIB = 1 << 20
ORACLE_SLICE_NS = 10_000_000  # of the memory model's tables
_counter = itertools.count(1)


@dataclass(frozen=True)
class PreparedGuest:
    """A guest that is ready to start: its domain, plan and trace region.

    `socket` is that of a console at which somebody types. `held` is its part of the host and the
    folder of the socket, until `started` closes it. `saved` is the guest that it continues; else
    `entry` is where it can be saved, if it can.
    """

    name: str
    xml: str
    cmdline: str
    placement: Placement
    region: Region | None
    socket: Path | None
    held: ExitStack
    entry: Path | None
    saved: SavedGuest | None


def prepare(
    machine: Machine,
    job: Job,
    run_dir: RunDir,
    *,
    embedded: bool = True,
    restore: tuple[Path, Region] | None = None,
) -> PreparedGuest:
    """Write the guest's files to `run_dir` and render its domain, without starting it.

    It continues a saved guest where there is one, unless the machine is `cold`. Raises UserError
    for host CPUs that do not exist, HostError where other guests have them.
    """
    check_guest_path(run_dir.path)
    placement, admission = admit_machine(machine)
    with ExitStack() as undo:
        undo.callback(admission.release)
        if machine.memory_model is not None:
            machine = _with_memory(machine, machine.memory_model, run_dir)
        if machine.mode != "kvm":
            check_addressable(machine.topology)
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
        emulator = _emulator(machine)
        entry = None
        if not (restore or machine.cold):
            entry = saved_entry(machine, cmdline, emulator, interactive=job.mode == "shell")
        saved = read_saved(entry) if entry is not None else None
        # Not in the run directory: a socket's path has at most 107 bytes (unix(7)).
        folder = scratch_folder(Path(tempfile.gettempdir()), "numalab-console-")
        socket = undo.enter_context(folder) / "socket" if job.mode == "shell" else None
        files = GuestFiles(
            console=run_dir.console.absolute(),
            heartbeat=run_dir.heartbeat.absolute(),
            rootfs=_rootfs(machine.rootfs),
            job=Drive(
                run_dir.job_disk.absolute(), (machine.job_disk_mib + machine.inbox_mib) * _MIB
            ),
            socket=socket,
            emulator=emulator,
        )
        xml = render_domain(
            machine,
            placement,
            files,
            name=name,
            cmdline=cmdline,
            owner=this_process(),
            locked=locks_memory(machine, placement),
            privilege=privilege(embedded=embedded, version=qemu_version(emulator)),
            restore=restore,
            incoming=saved is not None,
        )
        write_text(run_dir.domain_xml, xml)
        job_files = render_job(job, TRACE_INSTANCE if region else "", machine.seed)
        make_job_disk(run_dir.job_disk, job_files, machine.job_disk_mib)
        if saved is not None:
            _copy_files(saved, run_dir, machine)
        if machine.inbox_mib:
            os.truncate(run_dir.job_disk, (machine.job_disk_mib + machine.inbox_mib) * _MIB)
        held = undo.pop_all()
        return PreparedGuest(name, xml, cmdline, placement, region, socket, held, entry, saved)


def _copy_files(saved: SavedGuest, run_dir: RunDir, machine: Machine) -> None:
    try:
        saved.copy_files(run_dir, machine.plugins)
    except OSError as error:
        raise HostError(f"cannot write {run_dir.path}: {error.strerror}") from None


def _with_memory(machine: Machine, plugin: Path, run_dir: RunDir) -> Machine:
    """Write the parameters of the memory model, and add its plugin to QEMU."""
    # What is counted has the node numbers of the guest's kernel, as all that is measured.
    numbers, topology = node_numbers(machine.topology), as_guest_numbers(machine.topology)
    text = render_parameters(
        topology,
        memory_model(topology),
        window_ns=machine.turn_ns,
        slice_ns=ORACLE_SLICE_NS,
        qemu_nodes=[numbers.index(node.id) for node in topology.nodes],
    )
    write_text(run_dir.memory_parameters, text)
    wanted = machine.places
    tables = [run_dir.memory_counts, run_dir.memory_traffic]
    for path in [*tables, run_dir.memory_places] if wanted is not None else tables:
        create(path).close()  # private: QEMU has the umask of libvirt, which lets other users read
    files = {
        "parameters": run_dir.memory_parameters,
        "counts": run_dir.memory_counts,
        "traffic": run_dir.memory_traffic,
    }
    if wanted is not None:
        files["places"] = run_dir.memory_places
    arguments = {key: str(path.absolute()) for key, path in files.items()}
    if wanted is not None:
        functions = {"mark": wanted.mark, "born": wanted.born}
        arguments |= {key: f"{vaddr:x}" for key, vaddr in functions.items() if vaddr}
    if wanted is not None and wanted.barriers:
        arguments["barriers"] = "+".join(wanted.barriers)
    added = Plugin(plugin, arguments, begins_anew=run_dir.memory_parameters)
    return replace(machine, plugins=(*machine.plugins, added))


def _emulator(machine: Machine) -> Path | None:
    """Return the QEMU to start, None for the host's own. Raises HostError."""
    if machine.mode == "tcg":
        return one_thread_emulator()
    if machine.mode == "timed" and machine.emulator is None:
        raise HostError(
            "the host's QEMU has one clock for all CPUs and cannot run mode timed",
            hint="numalab emulator build",
        )
    return machine.emulator


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
    hypervisor: Hypervisor,
    machine: Machine,
    prepared: PreparedGuest,
) -> Iterator[tuple[Guest, HeldMemory, Witness]]:
    """Start a guest, prove its placement and let it run; end and remove it at the end."""
    with ExitStack() as stack:
        stack.enter_context(prepared.held)
        stack.callback(hypervisor.forget, prepared.name)
        # The memory model writes its last slice when QEMU exits.
        timed = machine.mode == "timed"
        guest = hypervisor.start(prepared.name, prepared.xml, prepared.socket, writes_at_exit=timed)
        stack.callback(guest.end)
        memory = _hold(guest, machine, writable=prepared.saved is not None)
        stack.callback(memory.close)
        threads = guest.vcpu_threads()
        witness = Witness(guest.pid, threads, memory, machine, prepared.placement)
        witness.started()
        if prepared.saved is not None:
            prepared.saved.load(guest, memory)
        guest.versions()  # asked now, and not while it runs
        guest.resume()
        yield guest, memory, witness


def _hold(guest: Guest, machine: Machine, *, writable: bool) -> HeldMemory:
    sizes = [backed_mib(node) * _MIB for node in machine.topology.nodes]
    if machine.pages != "anonymous":
        return hold_memory(guest.pid, sizes, writable=writable)
    starts = map(guest.host_address, node_addresses(machine.topology))
    return HeldMemory((), tuple(zip(starts, sizes, strict=True)))
