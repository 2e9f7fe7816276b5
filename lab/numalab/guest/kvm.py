"""Choose the mode of a guest, after one trial boot that shows whether KVM works here.

/dev/kvm proves nothing. On some nested hosts it opens and runs the firmware, but then an ordinary
kernel hangs, or QEMU aborts for some CPU models.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from numalab.emulator.emulator_artifact import BuiltEmulator
from numalab.errors import GuestLost, HostError, LossCause, QemuFailed, UserError
from numalab.guest.console import Beat
from numalab.guest.run import run_guest
from numalab.guest.verdicts import KVM_DEVICE, Verdict, known_verdict, remember
from numalab.guest.watch import Limits
from numalab.host.read import slowness
from numalab.machine.model import CPU_MODELS, MODES, CpuModel, Job, Machine, Mode
from numalab.places import cache_dir
from numalab.progress import Progress
from numalab.qemu.ending import CRASHED, OUT_OF_MEMORY
from numalab.qemu.hypervisor import EMBED
from numalab.run_dir import RunDir
from numalab.scratch import scratch_folder
from numalab.topology.topology import CpuShape, Node, Topology

AskedMode = Literal["auto", "kvm", "tcg", "icount", "timed"]
ASKED_MODES: tuple[AskedMode, ...] = ("auto", *MODES)

# A guest reaches its init within 3 s on an idle host of ordinary speed.
_SECONDS, _MOST_SECONDS = 15.0, 900.0
# Two CPUs: the second one starts by interrupts between CPUs, which fail on broken hosts.
_PROBE = Topology(
    name="kvm-probe",
    summary="One node with two CPUs",
    source="numalab.guest.kvm",
    nodes=(Node(0, (0, 1), 512),),
    distances=((10,),),
    cpu_shape=CpuShape(1, 1, 2, 1),
)


@dataclass(frozen=True)
class Choice:
    """The mode to run in, its CPU model, and the reason in words.

    `emulator`: the QEMU built for it; mode timed needs one, icount may have one. `cold`: every
    guest boots, even if there is a saved one.
    """

    mode: Mode
    cpu_model: CpuModel
    reason: str
    emulator: BuiltEmulator | None = None
    cold: bool = False

    @property
    def has_long_turns(self) -> bool:
        """Whether a busy vCPU may keep others waiting for many milliseconds, as in QEMU 7.2."""
        return self.mode in ("icount", "tcg") and self.emulator is None


def pick_mode(
    asked: str,
    bzimage: Path,
    rootfs: Path,
    *,
    initrd: Path | None = None,
    words: Sequence[str] = (),
    connection: str = EMBED,
    on_progress: Progress | None = None,
    device: Path = KVM_DEVICE,
) -> Choice:
    """Choose the mode for a kernel: `auto` is kvm where a trial guest boots in it, else icount.

    The first time, `auto` and `kvm` boot a small guest, for at most 15 s on a host that is
    neither slow nor busy, and another one with the `words` added to the kernel's command line if
    the first succeeds. The verdicts are kept for this boot of the host, this QEMU and this kernel.
    Raises UserError for an unknown mode, HostError where `asked` is `kvm` and KVM does not work.
    """
    if asked not in ASKED_MODES:
        raise UserError(f"unknown mode {asked!r}", key="mode", choices=ASKED_MODES)
    mode = next((mode for mode in MODES if mode == asked), None)
    if mode is not None and mode != "kvm":
        return Choice(mode, "host", "asked for")

    def verdict_on(added: tuple[str, ...]) -> Verdict:
        verdict = known_verdict(bzimage, added, device)
        if verdict is None:
            if on_progress is not None:
                on_progress("testing whether KVM runs a guest here", None)
            verdict = _try_kvm(bzimage, initrd, rootfs, added, connection)
            remember(bzimage, added, verdict)
        return verdict

    verdict = verdict_on(())
    if words and verdict.works:
        verdict = verdict_on(tuple(words))
    if verdict.works:
        return Choice("kvm", verdict.cpu_model, verdict.reason)
    if asked == "kvm":
        why = ", ".join(filter(None, [verdict.reason, verdict.age()]))
        hint = "leave out --mode kvm, or test again: numalab doctor --probe-again"
        raise HostError(f"KVM does not run this kernel here: {why}", hint=hint)
    return Choice("icount", "host", verdict.refusal)


def _try_kvm(
    bzimage: Path, initrd: Path | None, rootfs: Path, words: tuple[str, ...], connection: str
) -> Verdict:
    """Boot a small guest with the first CPU model with which QEMU starts.

    One that crashes at once boots a second time: where KVM is emulated, 1 of some 100 does.
    """
    machine = Machine(
        _PROBE, bzimage, rootfs, "kvm", 1, "kvm-probe", trace_memory_mib=0, shares_cpus=True,
        initrd=initrd, extra_cmdline=words,
    )  # fmt: skip
    reasons = []
    slow = False
    for model in CPU_MODELS:
        modelled = replace(machine, cpu_model=model)
        trial, before = _try_model(modelled, connection), ""
        if trial.crashed:
            trial, before = _try_model(modelled, connection), f", the second time ({trial.reason})"
        if not trial.reason:
            reason = f"a guest with CPU model {model} reached its init{before}"
            return Verdict(True, model, reason, at=time.time())
        reasons.append(f"{trial.reason} (CPU model {model})")
        slow = trial.slow
        if trial.started:
            break
    return Verdict(False, "host", "; ".join(reasons), at=time.time(), slow=slow)


@dataclass(frozen=True)
class _Trial:
    """A trial boot: its failure (empty: none), and whether QEMU started.

    `slow`: the guest still ran at its time limit. `crashed`: it rebooted or panicked before.
    """

    reason: str
    started: bool
    slow: bool = False
    crashed: bool = False


class _Reached(Exception):
    """Ends the probe at the first beat of its guest."""


def _stop(_beat: Beat) -> None:
    raise _Reached


def _try_model(machine: Machine, connection: str) -> _Trial:
    """Boot one guest until its first beat.

    What neither the guest nor QEMU did says nothing about KVM, and is raised: a full host, or an
    input that is wrong.
    """
    limit = min(_MOST_SECONDS, _SECONDS * slowness())
    with scratch_folder(cache_dir("kvm"), "kvm-") as scratch:
        run_dir = RunDir(scratch / "run")
        try:
            run_guest(
                machine,
                Job(("true",)),
                run_dir,
                connection=connection,
                limits=Limits(boot=limit),
                on_beat=_stop,
                rescue=False,
            )
        except _Reached:
            return _Trial("", started=True)
        except GuestLost as lost:
            if OUT_OF_MEMORY in lost.reason:
                raise
            slow = _went_on(run_dir.console, limit)
            crashed = lost.reason.startswith(CRASHED)
            started = lost.cause is LossCause.GUEST
            return _Trial(lost.reason, started=started, slow=slow, crashed=crashed)
        except QemuFailed as error:
            return _Trial(str(error).splitlines()[0][:200], started=False)
    return _Trial("", started=True)


def _went_on(console: Path, limit: float) -> bool:
    """Return whether a guest's kernel wrote output within the last third of the limit."""
    try:
        status = console.stat()
    except OSError:
        return False
    return status.st_size > 0 and time.time() - status.st_mtime < limit / 3
