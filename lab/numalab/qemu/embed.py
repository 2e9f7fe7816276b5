"""The state folders (roots) of libvirt's embedded driver, and their cleanup after a crash.

Only one process at a time may use a root. So there are several below `cache_dir("libvirt")`, and
a process holds the lock of its root until it ends. A root without a lock in which a QEMU still
runs belonged to a numalab that was killed.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

from numalab.errors import HostError
from numalab.files import replacing
from numalab.host.processes import start_time
from numalab.places import cache_dir

_MOST_ROOTS = 256
# A Unix socket's path has at most 107 bytes (unix(7)); libvirt adds up to 55 for the monitor's.
_LONGEST_ROOT = 50

# Differences from a system daemon, with reasons.
_CONFIG = """\
# Written by numalab at each start.
# QEMU starts as the user who runs numalab, to reach that user's files and nobody else's; started
# by root it gives that up (lab/numalab/host/privilege.py).
user = "{user}"
group = "{group}"
dynamic_ownership = 0
remember_owner = 0
# No AppArmor or SELinux profile knows this folder.
security_driver = "none"
# numalab asks for QEMU's sandbox itself; libvirt's would not let QEMU give up root.
seccomp_sandbox = 0
# No cgroups and no mount namespace: they would need a privileged and undivided host.
cgroup_controllers = []
namespaces = []
# No virtlogd.
stdio_handler = "file"
max_core = 0
"""


@dataclass(frozen=True)
class Root:
    """A root of the embedded driver, and the descriptor that holds its lock.

    `short` holds the lock of the short folder that a deep cache needs.
    """

    path: Path
    lock: int
    short: int | None = None

    def release(self) -> None:
        """End leftover QEMUs and unlock the root.

        The last process that unlocks the short folder removes it.
        """
        end_leftovers(self.path)
        self.unlock()

    def unlock(self) -> None:
        """Unlock the root, in which nothing runs."""
        with contextlib.suppress(OSError):
            os.close(self.lock)
        if self.short is not None:
            with contextlib.suppress(OSError):  # another process has it
                flock(self.short, LOCK_EX | LOCK_NB)
                shutil.rmtree(self.path.parent, ignore_errors=True)
            with contextlib.suppress(OSError):
                os.close(self.short)


def take_root(first: Path | None = None) -> Root:
    """Lock and return a free root, after ending leftovers of dead processes in all roots.

    Prefers `first`: libvirt opens only one root in a process, even after it has lost the
    connection. Raises HostError when no root is free.
    """
    base, short = _base()
    mine: Root | None = None
    paths = [base / str(number) for number in range(_MOST_ROOTS)]
    running: tuple[int, ...] | None = None  # the QEMUs of this host, for the roots beside ours
    for path in sorted(paths, key=lambda path: path != first):
        if mine is not None and not path.exists():
            return mine
        root = _try_lock(path)
        if root is None:
            continue
        if mine is None:
            end_leftovers(root.path)
            mine = replace(root, short=short)
            _prepare(path)
        else:
            running = _processes("") if running is None else running
            end_leftovers(root.path, running)
            root.unlock()
    if mine is None:
        if short is not None:
            os.close(short)
        raise HostError(f"{_MOST_ROOTS} numalab processes are running already")
    return mine


def end_leftovers(root: Path, pids: Iterable[int] | None = None) -> tuple[int, ...]:
    """End each QEMU that a dead owner of this folder left running; returns their process ids.

    The caller holds the folder's lock. The command line of a guest, or of a QEMU that libvirt
    probes, names the folder. Only `pids` are looked at, None meaning all processes.
    """
    mark = f"{root}/lib/qemu/"
    ended = []
    for pid in _processes(mark) if pids is None else pids:
        with contextlib.suppress(OSError):
            if _end_qemu(pid, mark):
                ended.append(pid)
    # The notes about running domains; the cache of QEMU's capabilities stays.
    for name in ("run", "lib"):
        shutil.rmtree(root / name, ignore_errors=True)
    return tuple(ended)


@contextlib.contextmanager
def runtime_folder(root: Path) -> Iterator[None]:
    """Set XDG_RUNTIME_DIR to a folder of `root` meanwhile, where the user has none.

    virHostdevManagerNew() of libvirt makes a folder in it, whatever the root of the connection is.
    Without the variable it takes ~/.cache, and a home may be read-only. GLib reads the variable
    once in a process (g_get_user_runtime_dir()).
    """
    name = "XDG_RUNTIME_DIR"
    before = os.environ.get(name)
    if before and os.access(before, os.W_OK | os.X_OK):
        yield
        return
    folder = root / "runtime"
    folder.mkdir(mode=0o700, exist_ok=True)
    os.environ[name] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _end_qemu(pid: int, mark: str) -> bool:
    """Kill a process if it is a QEMU whose command line holds `mark`; wait until it is gone.

    A descriptor holds the process between check and kill, so that no other process can get its
    id.
    """
    if not _is_qemu_of(pid, mark):
        return False
    descriptor = os.pidfd_open(pid)
    try:
        if not _is_qemu_of(pid, mark):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while start_time(pid) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        return True
    finally:
        os.close(descriptor)


def _processes(mark: str) -> tuple[int, ...]:
    """Return the QEMUs whose command line holds `mark`."""
    qemus = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _is_qemu_of(int(path.name), mark):
                qemus.append(int(path.name))
    return tuple(qemus)


def _is_qemu_of(pid: int, mark: str) -> bool:
    command = Path(f"/proc/{pid}/cmdline").read_bytes()
    program = command.partition(b"\0")[0]
    return b"qemu-system" in program and os.fsencode(mark) in command


def _base() -> tuple[Path, int | None]:
    """Return the folder of all roots, and the lock descriptor if it is a short folder."""
    base = cache_dir("libvirt")
    if len(str(base)) <= _LONGEST_ROOT:
        return base, None
    # A deep cache folder: a short name elsewhere, for this user only, as long as it is used.
    digest = hashlib.sha256(str(base).encode()).hexdigest()[:8]
    short = Path(tempfile.gettempdir()) / f"numalab-{os.getuid()}-{digest}"
    while True:
        with contextlib.suppress(FileExistsError):
            short.mkdir(mode=0o700)
        status = short.lstat()
        if (
            not stat.S_ISDIR(status.st_mode)
            or status.st_uid != os.getuid()
            or status.st_mode & 0o077
        ):
            raise HostError(
                f"{short} belongs to somebody else", hint="set NUMALAB_CACHE to a short path"
            )
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(short, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            flock(descriptor, LOCK_SH)
            # Another process may have removed it in between.
            if _is(short, descriptor):
                return short, descriptor
            os.close(descriptor)


def _try_lock(path: Path) -> Root | None:
    path.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(path / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return Root(path, descriptor)


def _is(path: Path, descriptor: int) -> bool:
    """Return whether `path` is still the opened folder."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _prepare(path: Path) -> None:
    # One cache of QEMU's capabilities for all folders: probing QEMU takes seconds.
    capabilities = cache_dir("libvirt", "capabilities")
    cache = path / "cache" / "qemu"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    link = cache / "capabilities"
    if not link.is_symlink() or link.readlink() != capabilities:
        if link.is_symlink():
            link.unlink()
        shutil.rmtree(link, ignore_errors=True)
        link.symlink_to(capabilities)
    (path / "etc").mkdir(mode=0o700, exist_ok=True)
    with replacing(path / "etc" / "qemu.conf") as temporary:
        text = _CONFIG.format(user=f"+{os.getuid()}", group=f"+{os.getgid()}")
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def on_one_cpu() -> Iterator[None]:
    """Keep this thread on one CPU meanwhile.

    libvirt caches QEMU's capabilities together with the host's CPUID, and CPUID holds the number
    of the CPU that was asked. On another CPU the cache would be thrown away, and QEMU probed again
    for seconds. libvirt sets QEMU's own affinity itself.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
