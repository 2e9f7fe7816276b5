"""Checks of this host: each is a small function with a finding and the command that fixes a miss.

`checks` is the list of them. Nothing here prints.
"""

import grp
import math
import os
import pwd
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from numalab.emulator.emulator_artifact import built_emulator, lacking_packages
from numalab.emulator.emulator_specs import find_emulator
from numalab.errors import HostError, LabError, UserError
from numalab.files import free_space
from numalab.guest.verdicts import (
    KVM_DEVICE,
    DeviceProblem,
    Verdict,
    any_verdict,
    unusable_device,
)
from numalab.host.privilege import privilege
from numalab.host.read import available_mib
from numalab.image.package_tarball import choose_mode
from numalab.limits.cgroup import cpu_limit, memory_limit
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run, version_line
from numalab.qemu.binding import library_version
from numalab.qemu.emulator import parse_qemu_version
from numalab.qemu.hypervisor import EMBED, connect
from numalab.scheduler import clang
from numalab.units import format_size

_GIB = 1 << 30
_NEEDED_MEMORY = 4 * _GIB
_NEEDED_DISK = 10 * _GIB
_NEEDED_LIBVIRT = 9_000_000
_NEEDED_QEMU = (7, 2)
# pip builds the binding from source: it needs headers, a compiler and pkg-config.
_LIBVIRT = (
    "libvirt-daemon",
    "libvirt-daemon-system",
    "libvirt-clients",
    "libvirt-dev",
    "pkg-config",
    "gcc",
    "python3-dev",
)
# Program, Debian package, option that prints the version, use.
_PROGRAMS = (
    ("trace-cmd", "trace-cmd", "-V", "decodes trace.dat"),
    ("mmdebstrap", "mmdebstrap", "--version", "builds images"),
    ("mkfs.erofs", "erofs-utils", "-V", "packs and lists images"),
    ("mke2fs", "e2fsprogs", "-V", "makes job disks"),
    ("gcc", "gcc", "--version", "builds kernels"),
    ("git", "git", "--version", "applies patch series"),
    ("bc", "bc", "--version", "builds kernels"),
    ("cpio", "cpio", "--version", "builds kernels"),
    ("xz", "xz-utils", "--version", "unpacks sources"),
    ("lz4", "lz4", "--version", "packs kernels"),
    ("depmod", "kmod", "--version", "reads modules"),
    ("make", "make", "--version", "builds kernels"),
    ("flex", "flex", "--version", "builds kernels"),
    ("bison", "bison", "--version", "builds kernels"),
)
_HEADERS = (("libelf.h", "libelf-dev"), ("openssl/ssl.h", "libssl-dev"))


@dataclass(frozen=True)
class Check:
    """The result of a check: whether it passed, the finding, and the fix of a miss as `hint`.

    `needed` is False where only some uses need it; such a miss does not fail `doctor`.
    `doctor --fix` installs `packages` with apt and `python` with pip.
    """

    name: str
    ok: bool
    found: str  # key of doctor --json
    hint: str = ""
    needed: bool = True
    packages: tuple[str, ...] = ()
    python: tuple[str, ...] = ()


def checks() -> tuple[Check, ...]:
    """Run all checks. No check raises; each takes well under a second."""
    all_checks: tuple[Callable[[], Check], ...] = (
        check_qemu,
        check_libvirt,
        check_libvirt_user,
        check_kvm,
        check_auto_mode,
        *(partial(check_program, *program) for program in _PROGRAMS),
        *(partial(check_header, *header) for header in _HEADERS),
        check_kernel_source,
        check_emulator,
        check_sched_ext,
        check_user_namespaces,
        check_cpus,
        check_memory,
        check_disk,
        check_hugepages,
    )
    return tuple(check() for check in all_checks)


def components() -> tuple[tuple[str, str], ...]:
    """Return the versions of QEMU and libvirt by name, or why there is none."""
    versions = []
    try:
        line = version_line("qemu-system-x86_64", "qemu-system-x86")
        versions.append(("QEMU", line.removeprefix("QEMU emulator version ")))
    except HostError as error:
        versions.append(("QEMU", _first_line(error)))
    try:
        versions.append(("libvirt", library_version()[1]))
    except HostError:
        versions.append(("libvirt", "its Python binding is not installed"))
    return tuple(versions)


def check_qemu() -> Check:
    """Check that QEMU runs and is recent enough."""
    miss = Check(
        "QEMU", False, "", "apt-get install qemu-system-x86",
        packages=("qemu-system-x86", "seabios"),
    )  # fmt: skip

    def version() -> str:
        text = version_line("qemu-system-x86_64", "qemu-system-x86")
        if parse_qemu_version(text) < _NEEDED_QEMU:
            raise HostError(f"{text}; 7.2 or later is needed")
        return text

    return _checked(miss, version)


def check_libvirt() -> Check:
    """Check that libvirt is recent enough and its embedded driver opens."""
    miss = Check("libvirt", False, "", "numalab doctor --fix", packages=_LIBVIRT)
    try:
        number, text = library_version()
    except HostError as error:
        return replace(miss, found=_first_line(error), python=("libvirt-python",))
    if number < _NEEDED_LIBVIRT:
        return replace(miss, found=f"{text}; 9.0 or later is needed")

    def connection() -> str:
        connect(EMBED)
        return f"{text}, {EMBED} opens"

    return _checked(miss, connection)


def check_libvirt_user() -> Check:
    """Check that root has a user to which QEMU can change."""
    name = "user libvirt-qemu"
    if os.getuid() != 0:
        return Check(name, True, "only root needs it")
    try:
        pwd.getpwnam("libvirt-qemu")
    except KeyError:
        package = "libvirt-daemon-system"
        finding = "root cannot start libvirt without this user"
        return Check(name, False, finding, f"apt-get install {package}", packages=(package,))
    if privilege(embedded=True).run_as is None:
        lacks = "exists, but QEMU stays root: CAP_SETUID, CAP_SETGID or CAP_SYS_PTRACE is missing"
        return Check(name, True, lacks)
    return Check(name, True, "exists; QEMU changes to it before a guest runs")


def check_kvm() -> Check:
    """Check that KVM runs a guest, by the verdict of the last trial."""
    miss = Check("KVM", False, "", needed=False)
    try:
        verdict = any_verdict()
    except HostError as error:
        return replace(miss, found=_first_line(error), hint=error.hint or "")
    if verdict is None:
        finding = "/dev/kvm opens; no guest has been tried in it since this host started"
        return replace(miss, found=finding, hint="numalab boot ring-4 -- true")
    finding = ", ".join(filter(None, [verdict.reason, verdict.age()]))
    if verdict.works:
        return replace(miss, ok=True, found=finding)
    hint = "none needed: emulation is used (--mode icount); timing figures need KVM"
    if unusable_device() is DeviceProblem.FORBIDDEN:
        hint = device_hint(KVM_DEVICE)
    elif verdict.at:
        hint += "; to try again: numalab doctor --probe-again"
    return replace(miss, found=finding, hint=hint)


def device_hint(device: Path) -> str:
    """Return what lets this user open a device: its group if that may, else its group and mode."""
    status = device.stat()
    group = "kvm"
    commands = f"groupadd -f -r kvm; chown root:kvm {device}; chmod 660 {device}; "
    with suppress(KeyError):  # a container may not name it
        if status.st_gid and status.st_mode & 0o060 == 0o060:
            group, commands = grp.getgrgid(status.st_gid).gr_name, ""
    return f"as root: {commands}adduser {_user()} {group}; then log in again"


def check_auto_mode() -> Check:
    """Return which mode `--mode auto` selects on this host, and why."""
    try:
        finding = _auto_mode(any_verdict())
    except HostError as error:
        finding = f"icount: {_first_line(error)}"
    return Check("mode auto", True, finding, needed=False)


def _auto_mode(verdict: Verdict | None) -> str:
    if verdict is None:
        return "not decided: the first guest tries whether KVM reaches its init"
    kept = "kept for this kernel, this QEMU and this boot of the host"
    if verdict.slow:
        kept = "kept for ten minutes: the guest was slow, but still running"
    if verdict.works:
        return f"kvm: {verdict.reason} ({kept})"
    if unusable_device():
        return f"icount: {verdict.reason}"
    return f"icount, because a guest under KVM failed: {verdict.reason} ({kept})"


def check_program(program: str, package: str, option: str, use: str) -> Check:
    """Check that a program runs; `option` prints its version."""
    miss = Check(program, False, "", f"apt-get install {package}", packages=(package,))

    def version() -> str:
        path = find_program(program, package)
        completed = run([path, option], timeout=20, check=False)
        lines = (completed.stdout.strip() or completed.stderr.strip()).splitlines()
        line = lines[0].strip() if lines else str(path)
        # 126 and 127 are a loader's or a shell's; some programs print a version and exit with 255.
        if completed.returncode < 0 or completed.returncode in (126, 127):
            raise HostError(f"it does not start: {line}")
        return line

    check = _checked(miss, version)
    return check if check.ok else replace(check, found=f"{check.found} ({use})")


def check_header(name: str, package: str) -> Check:
    """Check for a C header in the folders in which the compiler looks."""
    for folder in (Path("/usr/include"), Path("/usr/include/x86_64-linux-gnu")):
        if (folder / name).exists():
            return Check(name, True, str(folder / name))
    finding = f"{name} is not installed (builds kernels)"
    return Check(name, False, finding, f"apt-get install {package}", packages=(package,))


def check_kernel_source() -> Check:
    """Check for Debian's kernel source."""
    name, package = "kernel source", "linux-source-6.12"
    path = Path(f"/usr/src/{package}.tar.xz")
    if path.exists():
        return Check(name, True, str(path))
    hint = f"apt-get install {package}"
    return Check(name, False, f"{path} is missing", hint, packages=(package,))


def check_emulator() -> Check:
    """Check that the QEMU of mode timed is built, or can be."""
    name = "emulator"
    lacking = lacking_packages()
    if lacking:
        finding = f"{', '.join(lacking)} not installed (builds QEMU for mode timed)"
        hint = f"apt-get install {' '.join(lacking)}"
        return Check(name, False, finding, hint, needed=False, packages=lacking)
    return _checked(Check(name, False, "", needed=False), _emulator_state)


def _emulator_state() -> str:
    spec = find_emulator()
    built = built_emulator(spec)
    state = f"version {built.version}" if built else "not built yet: numalab emulator build"
    return f"{spec.name}, {state}"


def check_sched_ext() -> Check:
    """Check that schedulers that are BPF programs, and kernels for them, can be built."""
    name = "sched_ext"
    if lacking := clang.lacking_packages():
        finding = f"{', '.join(lacking)} not installed (only for studies that name a scheduler)"
        hint = f"apt-get install {' '.join(lacking)}"
        return Check(name, False, finding, hint, needed=False, packages=lacking)
    try:
        crates = f"crates with {clang.find_cargo()[1]}"
    except HostError as error:
        crates = f"no crates: {_first_line(error)}"
    return Check(name, True, f"schedulers are built with {clang.find_clang().name}; {crates}")


def check_user_namespaces() -> Check:
    """Check that this user can build images."""
    miss = Check("user namespaces", False, "", "apt-get install uidmap")
    if os.getuid() == 0:
        return replace(miss, ok=True, found="root builds images without them", hint="")
    return _checked(miss, lambda: f"images are built without root, in mode {choose_mode()}")


def check_cpus() -> Check:
    """Count the CPUs of this process, and what its cgroup leaves of them."""
    cpus, limit = len(os.sched_getaffinity(0)), cpu_limit()
    quota = "" if limit is None else f"; the cgroup limits their time to that of {limit:g}"
    return Check("CPUs", True, f"{cpus} usable{quota}")


def check_memory(needed: int = _NEEDED_MEMORY) -> Check:
    """Check that `needed` bytes of memory are available."""
    free, limit = available_mib() << 20, memory_limit()
    ok = free >= needed
    of_limit = "" if limit is None else f", of {format_size(limit.limit)} that the cgroup allows"
    finding = f"{format_size(free)} available{of_limit}"
    return Check("memory", ok, finding, "" if ok else "free memory: 4 GiB are needed")


def check_disk(needed: int = _NEEDED_DISK) -> Check:
    """Check that the disk of the cache has `needed` bytes free."""
    hint = "free some space, or set NUMALAB_CACHE to a larger disk: 10 GiB are needed"

    def state() -> str:
        path = cache_dir()
        free = free_space(path)
        amount = format_size(int(free)) if math.isfinite(free) else "an unknown amount"
        finding = f"{amount} free at {path}"
        if free < needed:
            raise HostError(finding)
        return finding

    return _checked(Check("disk", False, "", hint), state)


def check_hugepages() -> Check:
    """Check that hugepages are reserved."""
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


def _checked(miss: Check, finding: Callable[[], str]) -> Check:
    """Return a passed check with its finding, or `miss` with the reason that `finding` raises."""
    try:
        return Check(miss.name, True, finding(), needed=miss.needed)
    except CommandFailed as error:
        return replace(miss, found=error.completed.stderr.strip()[:200] or "does not run")
    except HostError as error:
        return replace(miss, found=_first_line(error), hint=error.hint or miss.hint)
    except UserError as error:
        return replace(miss, found=_first_line(error))


def _first_line(error: LabError) -> str:
    return str(error).partition("\n")[0]


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may run as any id
        return str(os.getuid())
