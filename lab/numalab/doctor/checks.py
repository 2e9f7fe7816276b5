"""What this host has and lacks, each miss with the command that fixes it. Prints nothing."""

import os
import pwd
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.emulator.emulator_artifact import built_emulator, lacking_packages
from numalab.emulator.emulator_specs import find_emulator
from numalab.errors import HostError
from numalab.guest.verdicts import DeviceProblem, any_verdict, unusable_device
from numalab.host.privilege import privilege
from numalab.host.read import available_mib
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run, version_line
from numalab.qemu.binding import library_version
from numalab.qemu.emulator import parse_qemu_version
from numalab.qemu.hypervisor import EMBED, connect
from numalab.units import format_size

_GIB = 1 << 30
_NEEDED_MEMORY = 4 * _GIB
_NEEDED_DISK = 10 * _GIB
_NEEDED_LIBVIRT = 9_000_000
_NEEDED_QEMU = (7, 2)
# The binding is built from source when it is installed: headers, a compiler and pkg-config.
_LIBVIRT = (
    "libvirt-daemon",
    "libvirt-daemon-system",
    "libvirt-clients",
    "libvirt-dev",
    "pkg-config",
    "gcc",
    "python3-dev",
)


@dataclass(frozen=True)
class Check:
    """One thing looked at: whether it is well, what was found, and what fixes it (or nothing).

    `needed` is False for what only some uses need; such a miss is no reason not to start.
    `packages` are Debian's, and `python` PyPI's, that bring what is missing (`doctor --fix`).
    """

    name: str
    ok: bool
    finding: str
    hint: str = ""
    needed: bool = True
    packages: tuple[str, ...] = ()
    python: tuple[str, ...] = ()


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
        _program("gcc", "gcc", ("--version",), "builds kernels"),
        _program("git", "git", ("--version",), "applies patch series"),
        _program("bc", "bc", ("--version",), "builds kernels"),
        _program("cpio", "cpio", ("--version",), "builds kernels"),
        _program("xz", "xz-utils", ("--version",), "unpacks sources"),
        _program("lz4", "lz4", ("--version",), "packs kernels"),
        _program("depmod", "kmod", ("--version",), "reads modules"),
        _header("libelf.h", "libelf-dev"),
        _header("openssl/ssl.h", "libssl-dev"),
        _program("make", "make", ("--version",), "builds kernels"),
        _program("flex", "flex", ("--version",), "builds kernels"),
        _program("bison", "bison", ("--version",), "builds kernels"),
        _kernel_source(),
        _emulator(),
        _user_namespaces(),
        _cpus(),
        _memory(),
        _disk(),
        _hugepages(),
    )


def components() -> tuple[tuple[str, str], ...]:
    """Return what else results depend on, by name: QEMU and libvirt, or that they are missing."""
    versions = []
    try:
        line = version_line("qemu-system-x86_64", "qemu-system-x86")
        versions.append(("QEMU", line.removeprefix("QEMU emulator version ")))
    except HostError as error:
        versions.append(("QEMU", str(error).partition("\n")[0]))
    try:
        versions.append(("libvirt", library_version()[1]))
    except HostError:
        versions.append(("libvirt", "its Python binding is not installed"))
    return tuple(versions)


def _qemu() -> Check:
    checked = _guarded("QEMU", "apt-get install qemu-system-x86", _qemu_version)
    return checked if checked.ok else replace(checked, packages=("qemu-system-x86", "seabios"))


def _qemu_version(name: str, hint: str) -> Check:
    text = version_line("qemu-system-x86_64", "qemu-system-x86")
    if parse_qemu_version(text) < _NEEDED_QEMU:
        return Check(name, False, f"{text}; 7.2 or later is needed", hint)
    return Check(name, True, text)


def _libvirt() -> Check:
    checked = _guarded("libvirt", "numalab doctor --fix", _libvirt_connection)
    return checked if checked.ok else replace(checked, packages=_LIBVIRT)


def _libvirt_connection(name: str, hint: str) -> Check:
    try:
        number, text = library_version()
    except HostError as error:
        finding = str(error).splitlines()[0]
        return Check(name, False, finding, hint, python=("libvirt-python",))
    if number < _NEEDED_LIBVIRT:
        return Check(name, False, f"{text}; 9.0 or later is needed", hint)
    connect(EMBED)
    return Check(name, True, f"{text}, {EMBED} opens")


def _libvirt_user() -> Check:
    name = "user libvirt-qemu"
    if os.getuid() != 0:
        return Check(name, True, "only root needs it")
    try:
        pwd.getpwnam("libvirt-qemu")
    except KeyError:
        hint = "apt-get install libvirt-daemon-system"
        finding = "libvirt run by root does not start without it"
        return Check(name, False, finding, hint, packages=("libvirt-daemon-system",))
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
        finding = (
            "/dev/kvm opens; whether it runs a guest has not been tried since the host's start"
        )
        return Check(name, False, finding, "numalab boot ring-4 -- true", needed=False)
    finding = ", ".join(filter(None, [verdict.reason, verdict.age()]))
    if verdict.works:
        return Check(name, True, finding, needed=False)
    hint = "none needed: emulation is used (--mode icount); timing figures need KVM"
    if unusable_device() is DeviceProblem.FORBIDDEN:
        hint = f"adduser {_user()} kvm, and log in again"
    elif verdict.at:
        hint += "; to try anew: numalab doctor --probe-again"
    return Check(name, False, finding, hint, needed=False)


def _auto() -> Check:
    """Explain what `--mode auto` does here."""
    name = "mode auto"
    try:
        verdict = any_verdict()
    except HostError as error:
        return Check(name, True, f"icount: {str(error).splitlines()[0]}", needed=False)
    kept = "kept for this kernel, this QEMU and this boot of the host"
    if verdict is not None and verdict.slow:
        kept = "kept for ten minutes: it was slow, and went on"
    if verdict is None:
        finding = "not decided: the first guest tries for a while whether KVM reaches its init"
    elif verdict.works:
        finding = f"kvm: {verdict.reason} ({kept})"
    elif unusable_device():
        finding = f"icount: {verdict.reason}"
    else:
        finding = f"icount, after a guest under KVM was tried: {verdict.reason} ({kept})"
    return Check(name, True, finding, needed=False)


def _program(program: str, package: str, version: tuple[str, ...], why: str) -> Check:
    def look(name: str, _hint: str) -> Check:
        path = find_program(program, package)
        completed = run([path, *version], timeout=20, check=False)
        lines = (completed.stdout.strip() or completed.stderr.strip()).splitlines()
        return Check(name, True, lines[0].strip() if lines else str(path))

    checked = _guarded(program, f"apt-get install {package}", look)
    if checked.ok:
        return checked
    return replace(checked, finding=f"{checked.finding} ({why})", packages=(package,))


def _header(name: str, package: str) -> Check:
    """Look for a header where a compiler does: /usr/include, or the folder of this processor's."""
    for folder in (Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu")):
        if (folder / name).exists():
            return Check(name, True, str(folder / name))
    finding = f"{name} is not installed (builds kernels)"
    return Check(name, False, finding, f"apt-get install {package}", packages=(package,))


def _guarded(name: str, hint: str, look: Callable[[str, str], Check]) -> Check:
    try:
        return look(name, hint)
    except CommandFailed as error:
        return Check(name, False, error.completed.stderr.strip()[:200] or "does not run", hint)
    except HostError as error:
        return Check(name, False, str(error).splitlines()[0], error.hint or hint)


def _kernel_source() -> Check:
    name = "kernel source"
    path = Path("/usr/src/linux-source-6.12.tar.xz")
    if path.exists():
        return Check(name, True, str(path))
    hint = "apt-get install linux-source-6.12"
    return Check(name, False, f"{path} is missing", hint, packages=("linux-source-6.12",))


def _emulator() -> Check:
    name = "emulator"
    lacking = lacking_packages()
    if lacking:
        finding = f"{', '.join(lacking)} not installed (builds QEMU for mode timed)"
        hint = f"apt-get install {' '.join(lacking)}"
        return Check(name, False, finding, hint, needed=False, packages=lacking)
    spec = find_emulator()
    built = built_emulator(spec)
    state = f"version {built.version}" if built else "not built yet: numalab emulator build"
    return Check(name, True, f"{spec.name}, {state}", needed=False)


def _user_namespaces() -> Check:
    name = "user namespaces"
    if os.getuid() == 0:
        return Check(name, True, "root builds images without them")
    path = Path("/proc/sys/kernel/unprivileged_userns_clone")
    if path.exists() and path.read_text(encoding="ascii").strip() == "0":
        hint = "sysctl kernel.unprivileged_userns_clone=1"
        return Check(name, False, "images cannot be built without root", hint)
    return _guarded(name, "apt-get install uidmap", _newuidmap)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as any id
        return str(os.getuid())


def _newuidmap(name: str, _hint: str) -> Check:
    return Check(name, True, str(find_program("newuidmap", "uidmap")))


def _cpus() -> Check:
    count = len(os.sched_getaffinity(0))
    return Check("CPUs", True, f"{count} usable")


def _memory() -> Check:
    free = available_mib() << 20
    ok = free >= _NEEDED_MEMORY
    finding = f"{format_size(free)} available"
    return Check("memory", ok, finding, "" if ok else "free memory: 4 GiB are needed")


def _disk() -> Check:
    path = cache_dir()
    free = shutil.disk_usage(path).free
    ok = free >= _NEEDED_DISK
    finding = f"{format_size(free)} free at {path}"
    hint = "" if ok else "free some space, or set NUMALAB_CACHE to a larger disk: 10 GiB are needed"
    return Check("disk", ok, finding, hint)


def _hugepages() -> Check:
    name = "hugepages"
    counts = {}
    for path in sorted(Path("/sys/kernel/mm/hugepages").glob("hugepages-*kB")):
        size = int(path.name.removeprefix("hugepages-").removesuffix("kB")) << 10
        counts[size] = int((path / "nr_hugepages").read_text(encoding="ascii"))
    if not any(counts.values()):
        hint = "sysctl vm.nr_hugepages=1024 (only timing runs gain from them)"
        return Check(name, False, "none reserved", hint, needed=False)
    text = ", ".join(f"{count} of {format_size(size)}" for size, count in counts.items() if count)
    return Check(name, True, text, needed=False)
