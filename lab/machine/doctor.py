"""What this host has and lacks, each miss with the command that mends it. Prints nothing."""

import os
import pwd
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.errors import HostError
from lab.machine.kvm import any_verdict, unusable_device
from lab.machine.privilege import privilege
from lab.process import CommandFailed, find_program, run
from lab.store import cache_dir
from lab.units import format_size

_GIB = 1 << 30
_NEEDED_MEMORY = 4 * _GIB
_NEEDED_DISK = 10 * _GIB
_NEEDED_LIBVIRT = 9_000_000
_NEEDED_QEMU = (7, 2)


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it is well, what was found, and what mends it (or nothing).

    `needed` is False for what only some uses need; such a miss is no reason not to start.
    """

    name: str
    ok: bool
    found: str
    mend: str = ""
    needed: bool = True


def checks() -> tuple[Check, ...]:
    """Look at everything. No check raises; each takes well under a second."""
    return (
        _qemu(),
        _libvirt(),
        _libvirt_user(),
        _kvm(),
        _auto(),
        _program("trace-cmd", "trace-cmd", ("-V",), "trace.dat is decoded with it"),
        _program("mmdebstrap", "mmdebstrap", ("--version",), "builds images"),
        _program("mkfs.erofs", "erofs-utils", ("-V",), "packs images"),
        _program("mke2fs", "e2fsprogs", ("-V",), "makes job disks"),
        _program("debugfs", "e2fsprogs", ("-V",), "reads job disks"),
        _program("gcc", "gcc", ("--version",), "builds kernels"),
        _program("make", "make", ("--version",), "builds kernels"),
        _program("flex", "flex", ("--version",), "builds kernels"),
        _program("bison", "bison", ("--version",), "builds kernels"),
        _kernel_source(),
        _user_namespaces(),
        _cpus(),
        _memory(),
        _disk(),
        _hugepages(),
    )


def _qemu() -> Check:
    mend = "apt-get install qemu-system-x86"
    return _guarded("QEMU", mend, _qemu_version)


def _qemu_version(name: str, mend: str) -> Check:
    path = find_program("qemu-system-x86_64", "qemu-system-x86")
    text = run([path, "--version"], timeout=20).stdout.splitlines()[0]
    words = text.partition("version ")[2].split(".")
    version = tuple(int(word) for word in words[:2] if word.isdecimal())
    if version < _NEEDED_QEMU:
        return Check(name, False, f"{text}; 7.2 or later is needed", mend)
    return Check(name, True, text)


def _libvirt() -> Check:
    mend = "apt-get install libvirt-daemon-system libvirt-dev && make setup"
    return _guarded("libvirt", mend, _libvirt_connection)


def _libvirt_connection(name: str, mend: str) -> Check:
    try:
        # Imported here: a host without libvirt is one of the things to report.
        from lab.machine.hypervisor import EMBED, connect, library_version  # noqa: PLC0415
    except ImportError as error:
        return Check(name, False, str(error), mend)
    number, text = library_version()
    if number < _NEEDED_LIBVIRT:
        return Check(name, False, f"{text}; 9.0 or later is needed", mend)
    connect(EMBED)
    return Check(name, True, f"{text}, {EMBED} opens")


def _libvirt_user() -> Check:
    name = "user libvirt-qemu"
    if os.getuid() != 0:
        return Check(name, True, "only root needs it")
    try:
        pwd.getpwnam("libvirt-qemu")
    except KeyError:
        mend = "apt-get install libvirt-daemon-system"
        return Check(name, False, "libvirt run by root does not start without it", mend)
    if privilege(embedded=True).run_as is None:
        lacks = "exists, but QEMU stays root: CAP_SETUID, CAP_SETGID or CAP_SYS_PTRACE is missing"
        return Check(name, True, lacks)
    return Check(name, True, "exists; QEMU becomes it before a guest runs")


def _kvm() -> Check:
    name = "KVM"
    try:
        verdict = any_verdict()
    except HostError as error:
        return Check(name, False, str(error).splitlines()[0], "", needed=False)
    if verdict is None:
        found = "/dev/kvm opens; whether it runs a guest has not been tried since the host's start"
        return Check(name, False, found, "numalab boot ring-4 -- true", needed=False)
    if verdict.works:
        return Check(name, True, verdict.reason, needed=False)
    mend = "none needed: emulation is used (--mode icount); timing figures need KVM"
    if "may not be opened" in verdict.reason:
        mend = f"adduser {pwd.getpwuid(os.getuid()).pw_name} kvm, and log in again"
    return Check(name, False, verdict.reason, mend, needed=False)


def _auto() -> Check:
    """Explain what `--mode auto` does here."""
    name = "mode auto"
    try:
        verdict = any_verdict()
    except HostError as error:
        return Check(name, True, f"icount: {str(error).splitlines()[0]}", needed=False)
    kept = "kept for this kernel, this QEMU and this boot of the host"
    if verdict is None:
        found = "not decided: the first guest tries for 15 s whether KVM reaches its init"
    elif verdict.works:
        found = f"kvm: {verdict.reason} ({kept})"
    elif unusable_device():
        found = f"icount: {verdict.reason}"
    else:
        found = f"icount, after a guest under KVM was tried: {verdict.reason} ({kept})"
    return Check(name, True, found, needed=False)


def _program(program: str, package: str, version: tuple[str, ...], why: str) -> Check:
    def look(name: str, _mend: str) -> Check:
        path = find_program(program, package)
        completed = run([path, *version], timeout=20, check=False)
        lines = (completed.stdout.strip() or completed.stderr.strip()).splitlines()
        return Check(name, True, lines[0].strip() if lines else str(path))

    checked = _guarded(program, f"apt-get install {package}", look)
    return (
        checked if checked.ok else Check(program, False, f"{checked.found} ({why})", checked.mend)
    )


def _guarded(name: str, mend: str, look: Callable[[str, str], Check]) -> Check:
    try:
        return look(name, mend)
    except CommandFailed as error:
        return Check(name, False, error.completed.stderr.strip()[:200] or "does not run", mend)
    except HostError as error:
        return Check(name, False, str(error).splitlines()[0], error.mend or mend)


def _kernel_source() -> Check:
    name = "kernel source"
    path = Path("/usr/src/linux-source-6.12.tar.xz")
    if path.exists():
        return Check(name, True, str(path))
    return Check(name, False, f"{path} is missing", "apt-get install linux-source-6.12")


def _user_namespaces() -> Check:
    name = "user namespaces"
    if os.getuid() == 0:
        return Check(name, True, "root builds images without them")
    path = Path("/proc/sys/kernel/unprivileged_userns_clone")
    if path.exists() and path.read_text(encoding="ascii").strip() == "0":
        mend = "sysctl kernel.unprivileged_userns_clone=1"
        return Check(name, False, "images cannot be built without root", mend)
    return _guarded(name, "apt-get install uidmap", _newuidmap)


def _newuidmap(name: str, _mend: str) -> Check:
    return Check(name, True, str(find_program("newuidmap", "uidmap")))


def _cpus() -> Check:
    count = len(os.sched_getaffinity(0))
    return Check("CPUs", True, f"{count} usable")


def _memory() -> Check:
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    fields = dict(line.split(":", 1) for line in text.splitlines())
    free = int(fields["MemAvailable"].split()[0]) << 10
    ok = free >= _NEEDED_MEMORY
    found = f"{format_size(free)} available"
    return Check("memory", ok, found, "" if ok else "free memory: 4 GiB are needed")


def _disk() -> Check:
    path = cache_dir()
    free = shutil.disk_usage(path).free
    ok = free >= _NEEDED_DISK
    found = f"{format_size(free)} free at {path}"
    mend = "" if ok else "free some space, or set NUMALAB_CACHE to a larger disk: 10 GiB are needed"
    return Check("disk", ok, found, mend)


def _hugepages() -> Check:
    name = "hugepages"
    counts = {}
    for path in sorted(Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")):
        size = int(path.name.removeprefix("hugepages-").removesuffix("kB")) << 10
        counts[size] = int((path / "nr_hugepages").read_text(encoding="ascii"))
    if not any(counts.values()):
        mend = "sysctl vm.nr_hugepages=1024 (only timing runs gain from them)"
        return Check(name, False, "none reserved", mend, needed=False)
    text = ", ".join(f"{count} of {format_size(size)}" for size, count in counts.items() if count)
    return Check(name, True, text, needed=False)
