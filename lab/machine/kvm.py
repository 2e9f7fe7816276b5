"""Whether KVM can run a guest here: only a boot under a deadline tells, so it is tried once.

/dev/kvm proves nothing. On some nested hosts it opens and runs the firmware, and then an ordinary
kernel hangs for ever, or QEMU aborts for some CPU models.
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from lab.errors import GuestLost, HostError, LabError, UserError
from lab.machine.console import Beat
from lab.machine.hypervisor import EMBED
from lab.machine.machine import CPU_MODELS, MODES, CpuModel, Job, Machine, Mode
from lab.machine.run import run_guest
from lab.machine.watch import Limits
from lab.process import find_program, run
from lab.store import RunDir, cache_dir, read_json, write_json
from lab.topology.model import CpuShape, Node, Topology

AskedMode = Literal["auto", "kvm", "tcg", "icount"]
ASKED_MODES: tuple[AskedMode, ...] = ("auto", *MODES)

_DEVICE = Path("/dev/kvm")
_SECONDS = 15.0  # a guest that runs is at its init within 3 s
# Two CPUs: that the second one starts needs interrupts between them, which broken hosts lack.
_PROBE = Topology(
    name="kvm-probe",
    summary="One node with two CPUs",
    source="lab.machine.kvm",
    nodes=(Node(0, (0, 1), 512),),
    distances=((10,),),
    cpu_shape=CpuShape(1, 1, 2, 1),
)


@dataclass(frozen=True)
class Choice:
    """The mode to run in, the CPU model for it, and why, in words."""

    mode: Mode
    cpu_model: CpuModel
    reason: str


@dataclass(frozen=True)
class Verdict:
    """Whether KVM runs this kernel on this host, with which CPU model, and what was seen."""

    works: bool
    cpu_model: CpuModel
    reason: str


def pick_mode(
    asked: str,
    bzimage: Path,
    rootfs: Path,
    *,
    initrd: Path | None = None,
    connection: str = EMBED,
    on_progress: Callable[[str, float | None], None] | None = None,
) -> Choice:
    """Choose the mode for a kernel: `auto` is kvm where a guest really runs in it, else icount.

    The first time, `auto` and `kvm` boot a small guest, which takes 15 s at most; the verdict is
    kept for this boot of the host, this QEMU and this kernel. Raises UserError for an unknown
    mode, HostError where `kvm` was asked for and does not work.
    """
    if asked not in ASKED_MODES:
        raise UserError(f"unknown mode {asked!r}", key="mode", choices=ASKED_MODES)
    if asked == "tcg":
        return Choice("tcg", "host", "asked for")
    if asked == "icount":
        return Choice("icount", "host", "asked for")
    verdict = known_verdict(bzimage)
    if verdict is None:
        if on_progress is not None:
            on_progress("trying whether KVM runs a guest here", None)
        verdict = _try_kvm(bzimage, initrd, rootfs, connection)
        _remember(bzimage, verdict)
    if verdict.works:
        return Choice("kvm", verdict.cpu_model, verdict.reason)
    if asked == "kvm":
        raise HostError(
            f"KVM does not run this kernel here: {verdict.reason}", mend="leave out --mode kvm"
        )
    return Choice("icount", "host", f"KVM does not run a guest here: {verdict.reason}")


def known_verdict(bzimage: Path) -> Verdict | None:
    """Return what was found out about this kernel on this boot of the host, if anything was."""
    unusable = unusable_device()
    if unusable:
        return Verdict(False, "host", unusable)
    path = _verdict_path(bzimage)
    if not path.exists():
        return None
    try:
        data = read_json(path)
        model = data["cpu_model"]
        if model not in CPU_MODELS:
            return None
        return Verdict(bool(data["works"]), model, str(data["reason"]))
    except (UserError, KeyError, TypeError):
        return None  # half written by a host that went down; it is found out again


def any_verdict() -> Verdict | None:
    """Return the latest verdict for any kernel on this boot of the host, for `numalab doctor`."""
    unusable = unusable_device()
    if unusable:
        return Verdict(False, "host", unusable)
    found = sorted(cache_dir("kvm").glob(f"{_host_key()}-*.json"), key=_modified)
    for path in reversed(found):
        try:
            data = read_json(path)
            return Verdict(bool(data["works"]), data["cpu_model"], str(data["reason"]))
        except (UserError, KeyError, TypeError):
            continue
    return None


def unusable_device() -> str:
    """Say why /dev/kvm cannot even be opened; an empty text if it can."""
    if not _DEVICE.exists():
        return "there is no /dev/kvm"
    if not os.access(_DEVICE, os.R_OK | os.W_OK):
        return "/dev/kvm may not be opened by this user"
    return ""


def _try_kvm(bzimage: Path, initrd: Path | None, rootfs: Path, connection: str) -> Verdict:
    """Boot a small guest; a CPU model with which QEMU does not even start gives way to the next."""
    machine = Machine(
        _PROBE, bzimage, rootfs, "kvm", 1, "kvm-probe", trace_memory_mib=0, shares_cpus=True,
        initrd=initrd,
    )  # fmt: skip
    reasons = []
    for model in CPU_MODELS:
        reason, started = _try_model(replace(machine, cpu_model=model), connection)
        if not reason:
            return Verdict(True, model, f"a guest with CPU model {model} reached its init")
        reasons.append(f"{reason} (CPU model {model})")
        if started:
            break
    return Verdict(False, "host", "; ".join(reasons))


class _Reached(Exception):
    """The probe has seen enough."""


def _stop(_beat: Beat) -> None:
    raise _Reached


def _try_model(machine: Machine, connection: str) -> tuple[str, bool]:
    """Boot one guest until its first beat.

    Returns what went wrong (empty: nothing), and whether the guest had been running.
    """
    limits = Limits(boot=_SECONDS)
    with tempfile.TemporaryDirectory(prefix="kvm-", dir=cache_dir("kvm")) as scratch:
        run_dir = RunDir(Path(scratch) / "run")
        try:
            run_guest(
                machine,
                Job(("true",)),
                run_dir,
                connection=connection,
                limits=limits,
                on_beat=_stop,
                rescue=False,
            )
        except _Reached:
            return "", True
        except GuestLost as lost:
            return lost.reason.splitlines()[0], "QEMU" not in lost.reason
        except LabError as error:
            return str(error).splitlines()[0][:200], False
    return "", True


def _remember(bzimage: Path, verdict: Verdict) -> None:
    write_json(_verdict_path(bzimage), asdict(verdict))


def _verdict_path(bzimage: Path) -> Path:
    kernel = hashlib.sha256(bzimage.read_bytes()).hexdigest()[:16]
    return cache_dir("kvm") / f"{_host_key()}-{kernel}.json"


def _host_key() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    qemu = run([find_program("qemu-system-x86_64", "qemu-system-x86"), "--version"]).stdout
    return hashlib.sha256(f"{boot} {qemu}".encode()).hexdigest()[:16]


def _modified(path: Path) -> float:
    return path.stat().st_mtime
