"""Stored verdicts on KVM of this host, and how long they are valid."""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from numalab.document import read_record
from numalab.files import write_json
from numalab.host.processes import boot_id
from numalab.machine.model import CpuModel
from numalab.places import cache_dir
from numalab.process import find_program

KVM_DEVICE = Path("/dev/kvm")
LONGEST_BRIEF = 55  # characters
_SLOW_KEPT = 600.0  # seconds: a host that was busy a while ago may be idle now


@dataclass(frozen=True)
class Verdict:
    """Whether KVM runs a kernel on this host, with which CPU model, and the reason.

    `at` is the time of the trial in seconds since 1970, 0 without a trial. `slow`: the trial guest
    still ran at its time limit, so a later trial may succeed.
    """

    works: bool
    cpu_model: CpuModel
    reason: str
    at: float = 0.0
    slow: bool = False

    @property
    def refusal(self) -> str:
        """Why KVM is not taken, by the last trial; `reason` lists all CPU models tried."""
        last = self.reason.splitlines()[0] if self.reason else ""
        last = last.rpartition("; ")[2].partition(" (CPU model")[0]
        brief = last if len(last) <= LONGEST_BRIEF else f"{last[: LONGEST_BRIEF - 3]}..."
        return f"KVM does not run a guest here: {brief}"

    def age(self) -> str:
        """Return in words how long ago the trial was; empty without a trial."""
        if not self.at:
            return ""
        minutes = max(0.0, time.time() - self.at) / 60
        if minutes < 1:
            return "tried just now"
        text = f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
        return f"tried {text} ago"


def known_verdict(
    bzimage: Path, words: Sequence[str] = (), device: Path = KVM_DEVICE
) -> Verdict | None:
    """Return the valid verdict on a kernel for this boot of the host.

    `words` are added to the kernel's command line. A failure without words decides for all: no
    word mends a QEMU that cannot start a guest.
    """
    unusable = unusable_device(device)
    if unusable:
        return Verdict(False, "host", unusable)
    plain = _load(_path(bzimage, ()))
    if not words or (plain and not plain.works):
        return plain
    return _load(_path(bzimage, words))


def any_verdict() -> Verdict | None:
    """Return what the trials of all kernels on this boot of the host say of KVM.

    That is the latest trial that succeeded, else the latest: a kernel, or words of its command
    line, may fail where KVM works.
    """
    unusable = unusable_device()
    if unusable:
        return Verdict(False, "host", unusable)
    latest_first = filter(None, map(_load, _files()))
    return max(latest_first, key=lambda verdict: verdict.works, default=None)


class DeviceProblem(StrEnum):
    """Why /dev/kvm cannot be opened."""

    ABSENT = "there is no /dev/kvm"
    FORBIDDEN = "/dev/kvm may not be opened by this user"


def unusable_device(device: Path = KVM_DEVICE) -> DeviceProblem | None:
    """Return why the device of KVM cannot be opened; None if it can."""
    if not device.exists():
        return DeviceProblem.ABSENT
    if not os.access(device, os.R_OK | os.W_OK):
        return DeviceProblem.FORBIDDEN
    return None


def remember(bzimage: Path, words: Sequence[str], verdict: Verdict) -> None:
    """Keep a verdict for this boot of the host, this QEMU, this kernel and these words."""
    write_json(_path(bzimage, words), asdict(verdict))


def forget_verdicts() -> None:
    """Remove the verdicts of this boot of the host."""
    for path in _files():
        path.unlink(missing_ok=True)


def _load(path: Path) -> Verdict | None:
    verdict = read_record(path, Verdict)
    if verdict is not None and verdict.slow and not 0 <= time.time() - verdict.at <= _SLOW_KEPT:
        return None
    return verdict


def _files() -> Iterator[Path]:
    """Return the verdict files of this boot of the host, the latest first."""
    files = cache_dir("kvm").glob(f"{_host_key()}-*.json")
    return iter(sorted(files, key=lambda path: path.lstat().st_mtime, reverse=True))


def _path(bzimage: Path, words: Sequence[str]) -> Path:
    digest = hashlib.sha256(bzimage.read_bytes())
    if words:
        digest.update(repr(tuple(words)).encode())
    return cache_dir("kvm") / f"{_host_key()}-{digest.hexdigest()[:16]}.json"


def _host_key() -> str:
    qemu = find_program("qemu-system-x86_64", "qemu-system-x86").stat()
    text = f"{boot_id()} {qemu.st_size} {qemu.st_mtime_ns}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
