"""The libvirt domain of a machine. Pure: value in, XML out.

Format: https://libvirt.org/formatdomain.html of libvirt 9.0. Options without an element of libvirt
go to QEMU directly (`qemu:commandline`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.host.privilege import Privilege, render_privilege
from numalab.host.processes import Owner
from numalab.machine.memory import Region, backed_mib
from numalab.machine.model import DETERMINISTIC, PAGE_KIB, Machine, Plugin
from numalab.placement.planner import Placement
from numalab.run_dir import check_option_path
from numalab.topology.export import numa_element

QEMU_NAMESPACE = "http://libvirt.org/schemas/domain/qemu/1.0"
OWNER_NAMESPACE = "https://numalab.invalid/owner"
# The same for all guests: it reaches the guest through SMBIOS, and its kernel stirs that into the
# random numbers that must be the same in two runs of one seed.
GUEST_UUID = "6e756d61-6c61-4b00-8000-000000000000"
HOST_ROOT_TAG = "host"  # mount tag of 9p, for workload/host-root.sh
_EPOCH = "1704067200"  # 2024-01-01T00:00:00Z
_MIB = 1 << 20


@dataclass(frozen=True)
class Drive:
    """A file that the guest sees as an NVDIMM, and its size in bytes."""

    path: Path
    size: int


@dataclass(frozen=True)
class GuestFiles:
    """The files of one guest on the host.

    `emulator`: its QEMU; None: libvirt chooses. `socket`: of its first console where a user or a
    program types; None: output only.
    """

    console: Path
    heartbeat: Path
    rootfs: Drive
    job: Drive
    emulator: Path | None = None
    socket: Path | None = None


def render_domain(
    machine: Machine,
    placement: Placement,
    files: GuestFiles,
    *,
    name: str,
    cmdline: str,
    owner: Owner,
    locked: bool = False,
    privilege: Privilege,
    restore: tuple[Path, Region] | None = None,
    incoming: bool = False,
) -> str:
    """Render the domain that boots `machine` as `name`.

    `locked` prevents swapping and migration of QEMU's memory. `privilege`: the user as which QEMU
    runs. `restore` loads a file into a region of
    the guest's memory before the start (the trace memory of a lost guest). `incoming`: QEMU waits
    for a saved state. Raises UserError for a file name with a comma, which QEMU's option syntax
    cannot contain.
    """
    ET.register_namespace("qemu", QEMU_NAMESPACE)
    ET.register_namespace("numalab", OWNER_NAMESPACE)
    domain = ET.Element("domain", type="kvm" if machine.mode == "kvm" else "qemu")
    _text(domain, "name", name)
    metadata = _add(domain, "metadata")
    _add(metadata, f"{{{OWNER_NAMESPACE}}}owner", pid=owner.pid, started=owner.started)
    _memory(domain, machine, placement, locked=locked)
    _vcpus(domain, machine, placement)
    _binding(domain, placement)
    _boot(domain, machine, cmdline)
    _features(domain, placement)
    _cpu(domain, machine)
    _clock(domain, machine)
    for event, action in (("poweroff", "destroy"), ("reboot", "destroy"), ("crash", "preserve")):
        _text(domain, f"on_{event}", action)
    devices = _devices(domain, files)
    if machine.host_root:
        _host_root(devices)
    arguments = [*_nvdimms(files), *_determinism(machine, interactive=files.socket is not None)]
    arguments += _plugins(machine.plugins)
    arguments += [*_loader(restore), *_debugger(machine.gdb), *render_privilege(privilege)]
    arguments += ["-incoming", "defer"] if incoming else []
    _security(domain, privilege)
    _qemu_arguments(domain, arguments)
    ET.indent(domain)
    return ET.tostring(domain, encoding="unicode") + "\n"


def parse_owner(text: str) -> Owner:
    """Read back the owner from the metadata of a domain. Raises ValueError."""
    try:
        element = ET.fromstring(text)
        return Owner(int(element.attrib["pid"]), int(element.attrib["started"]))
    except (ET.ParseError, KeyError) as error:
        raise ValueError(f"no owner in {text[:80]!r}") from error


def _memory(domain: ET.Element, machine: Machine, placement: Placement, *, locked: bool) -> None:
    # Room in the address space for the two NVDIMMs; they are no RAM of the guest.
    total = sum(map(backed_mib, machine.topology.nodes))
    _text(domain, "maxMemory", total + 4096, slots=2, unit="MiB")
    _text(domain, "memory", total, unit="MiB")
    backing = _add(domain, "memoryBacking")
    if machine.huge:
        huge = _add(backing, "hugepages")
        _add(huge, "page", size=PAGE_KIB[machine.pages], unit="KiB")
    if locked:
        _add(backing, "locked")
    if machine.pages == "anonymous":
        _add(backing, "source", type="anonymous")
    else:
        # A memfd for each node, shared: numalab holds it open and can read it after QEMU's death.
        _add(backing, "source", type="memfd")
        _add(backing, "access", mode="shared")
    if is_allocated(machine, placement):
        # All pages now, on their nodes, so that the guest's first touch of one costs nothing.
        _add(backing, "allocation", mode="immediate")


def is_allocated(machine: Machine, placement: Placement) -> bool:
    """Return whether all memory is allocated before the guest's first instruction."""
    return placement.dedicated or machine.huge


def _vcpus(domain: ET.Element, machine: Machine, placement: Placement) -> None:
    attributes = {"cpuset": format_cpulist(placement.host_cpus)} if placement.one_thread else {}
    _text(domain, "vcpu", machine.topology.cpu_count, placement="static", **attributes)
    tune = _add(domain, "cputune")
    if not placement.one_thread:
        # libvirt refuses vcpupin where all vCPUs are one thread; cpuset above pins that.
        for vcpu, cpu in enumerate(placement.vcpus):
            _add(tune, "vcpupin", vcpu=vcpu, cpuset=cpu)
    if not (placement.bound and is_allocated(machine, placement)):
        # QEMU allocates a node's memory by a thread that asks for that node's CPUs. A daemon with
        # cgroups refuses those that emulatorpin does not list. The witness pins those threads.
        _add(tune, "emulatorpin", cpuset=format_cpulist(placement.emulator))


def _binding(domain: ET.Element, placement: Placement) -> None:
    """Bind each guest node's memory to its host node; a host with one node needs no binding."""
    if not placement.bound:
        return
    mode = "strict" if placement.dedicated else "preferred"
    tune = _add(domain, "numatune")
    for node, host_node in enumerate(placement.host_nodes):
        _add(tune, "memnode", cellid=node, mode=mode, nodeset=host_node)


def _boot(domain: ET.Element, machine: Machine, cmdline: str) -> None:
    system = _add(domain, "os")
    _text(system, "type", "hvm", arch="x86_64", machine="q35")
    _text(system, "kernel", machine.bzimage)
    if machine.initrd is not None:
        _text(system, "initrd", machine.initrd)
    _text(system, "cmdline", cmdline)


def _features(domain: ET.Element, placement: Placement) -> None:
    features = _add(domain, "features")
    _add(features, "acpi")
    _add(features, "apic")
    if placement.dedicated:
        # The guest may rely on its vCPUs always running: no paravirtual spinlocks.
        _add(_add(features, "kvm"), "hint-dedicated", state="on")


def _cpu(domain: ET.Element, machine: Machine) -> None:
    topology = machine.topology
    if machine.mode != "kvm":
        cpu = _add(domain, "cpu", mode="maximum", check="none", migratable="off")
        # Random numbers of QEMU's process, which a saved guest would not find again.
        for name in ("rdrand", "rdseed"):
            _add(cpu, "feature", policy="disable", name=name)
    elif machine.cpu_model == "qemu64":
        cpu = _add(domain, "cpu", mode="custom", match="exact", check="none")
        _text(cpu, "model", "qemu64", fallback="forbid")
    else:
        cpu = _add(domain, "cpu", mode="host-passthrough", check="none", migratable="off")
    shape = topology.cpu_shape
    if shape is not None:
        _add(cpu, "topology", **vars(shape))
    if topology.llc == "none":
        _add(cpu, "cache", mode="disable")
    if machine.mode == "kvm" and machine.cpu_model == "host-no-arch-capabilities":
        _add(cpu, "feature", policy="disable", name="arch-capabilities")
    cpu.append(numa_element(topology, [backed_mib(node) for node in topology.nodes]))


def _clock(domain: ET.Element, machine: Machine) -> None:
    if machine.mode in DETERMINISTIC:
        # The guest's clock starts at a fixed date and follows its own virtual time.
        clock = _add(domain, "clock", offset="absolute", start=_EPOCH)
        _add(clock, "timer", name="rtc", track="guest")
    else:
        _add(domain, "clock", offset="utc")


def _devices(domain: ET.Element, files: GuestFiles) -> ET.Element:
    devices = _add(domain, "devices")
    if files.emulator is not None:
        _text(devices, "emulator", files.emulator)
    _add(devices, "controller", type="usb", model="none")
    for port, path in enumerate((files.console, files.heartbeat)):
        # Appending lets numalab cut a flooded file short while QEMU has it open.
        if files.socket is not None and port == 0:
            # No pty: QEMU looks only once a second whether it is open (pty_chr_timer()).
            serial = _add(devices, "serial", type="unix")
            _add(serial, "source", mode="bind", path=files.socket)
            _add(serial, "log", file=path, append="on")
        else:
            serial = _add(devices, "serial", type="file")
            _add(serial, "source", path=path, append="on")
        _add(serial, "target", type="isa-serial", port=port)
    _add(devices, "audio", id=1, type="none")
    _add(devices, "memballoon", model="none")
    _add(devices, "panic", model="isa")  # pvpanic
    return devices


def _host_root(devices: ET.Element) -> None:
    """Offer the root folder of this host by 9p: what QEMU's user may read, and no write."""
    # `remap`: inode numbers of several file systems may be the same.
    folder = _add(devices, "filesystem", type="mount", accessmode="squash", multidevs="remap")
    _add(folder, "source", dir="/")
    _add(folder, "target", dir=HOST_ROOT_TAG)
    _add(folder, "readonly")


def _nvdimms(files: GuestFiles) -> list[str]:
    # libvirt's own nvdimm would open the root for writing (a guest's root user could change the
    # file that all guests share) and touch every page of both before the start.
    root, job = files.rootfs, files.job
    check_option_path(root.path)
    check_option_path(job.path)
    # QEMU describes NVDIMMs to the guest in the order of a hash table of their ids. With these two
    # the root comes first; with other ids /dev/pmem0 may well be the job disk.
    return [
        *("-machine", "nvdimm=on"),
        "-object",
        f"memory-backend-file,id=rootfs,mem-path={root.path},share=on,readonly=on,size={root.size}",
        *("-device", "nvdimm,id=nvdimm0,memdev=rootfs,unarmed=on,slot=0"),
        *("-object", f"memory-backend-file,id=job,mem-path={job.path},share=on,size={job.size}"),
        *("-device", "nvdimm,id=nvdimm1,memdev=job,slot=1"),
    ]


def _determinism(machine: Machine, *, interactive: bool) -> list[str]:
    arguments = ["-uuid", GUEST_UUID]
    if machine.mode in DETERMINISTIC:
        # While a user waits, an idle guest's clock must not run ahead.
        sleep = "on" if interactive else "off"
        quantum = f",quantum={machine.turn_ns}" if machine.mode == "timed" else ""
        arguments += ["-icount", f"shift={machine.shift},sleep={sleep}{quantum}"]
        arguments += ["-seed", "1"]  # the seed of the run comes with its job
    return arguments


def _plugins(plugins: Sequence[Plugin]) -> list[str]:
    arguments: list[str] = []
    for plugin in plugins:
        words = [f"file={plugin.path}", *(f"{k}={v}" for k, v in plugin.arguments.items())]
        if any("," in word for word in words):
            raise UserError("QEMU cannot hand a comma to a plugin", file=plugin.path)
        arguments += ["-plugin", ",".join(words)]
    return arguments


def _loader(restore: tuple[Path, Region] | None) -> list[str]:
    if restore is None:
        return []
    path, region = restore
    check_option_path(path)
    return ["-device", f"loader,file={path},addr={region.address:#x},force-raw=on"]


def _debugger(socket: Path | None) -> list[str]:
    if socket is None:
        return []
    check_option_path(socket)
    # A socket in a folder of this user; a port would be open to everybody on the host.
    return ["-gdb", f"unix:{socket},server=on,wait=off"]


def _security(domain: ET.Element, privilege: Privilege) -> None:
    if privilege.label is not None:
        label = _add(domain, "seclabel", type="static", model="dac", relabel="no")
        _text(label, "label", "+{}:+{}".format(*privilege.label))


def _qemu_arguments(domain: ET.Element, arguments: Sequence[str]) -> None:
    line = _add(domain, f"{{{QEMU_NAMESPACE}}}commandline")
    for argument in arguments:
        _add(line, f"{{{QEMU_NAMESPACE}}}arg", value=argument)


def _add(parent: ET.Element, tag: str, /, **attributes: object) -> ET.Element:
    return ET.SubElement(parent, tag, {key: str(value) for key, value in attributes.items()})


def _text(parent: ET.Element, tag: str, value: object, /, **attributes: object) -> ET.Element:
    element = _add(parent, tag, **attributes)
    element.text = str(value)
    return element
