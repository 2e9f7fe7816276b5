"""How a guest's domain ended, and whether the guest is lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from numalab.errors import HostError, LossCause
from numalab.process import signal_name

EndKind = Literal["off", "rebooted", "crashed", "failed", "destroyed", "unreachable"]

# QEMU's reasons for the stop of the machine (ShutdownCause in QEMU's qapi/run-state.json).
# libvirt calls both a shutdown, and says so 0.2 s later, when it has waited for QEMU's process.
SHUTDOWN_REASONS: Mapping[str, EndKind] = {"guest-shutdown": "off", "guest-reset": "rebooted"}

OUT_OF_MEMORY = (
    "the host, or the cgroup of this process, ran out of memory meanwhile, and the kernel ended a"
    " process"
)

# How the reasons begin for which a guest's own kernel ended it.
CRASHED = ("the guest rebooted", "the guest's kernel panicked")


@dataclass(frozen=True)
class Loss:
    """Why a guest is lost: the cause, guest or host, and the reason in words."""

    cause: LossCause
    reason: str


_LOSSES: Mapping[EndKind, Loss] = {
    "rebooted": Loss(LossCause.GUEST, CRASHED[0]),
    "crashed": Loss(LossCause.GUEST, CRASHED[1]),
    "destroyed": Loss(LossCause.HOST, "somebody else ended the guest"),
    "failed": Loss(LossCause.HOST, "QEMU ended unexpectedly"),
}


@dataclass(frozen=True)
class Ending:
    """How a domain ended: `off` or `rebooted` by itself, `crashed` (it reported a panic; QEMU still
    stands), `failed` (QEMU died; `signal` is what killed it, where that is known), `destroyed`, or
    `unreachable` (libvirt is gone, and nothing more will be heard of the domain). `oom_kill`: the
    host's kernel ended some process for want of memory while it ran.
    """

    kind: EndKind
    signal: int | None = None
    oom_kill: bool = False

    def loss(self) -> Loss | None:
        """Return why the guest is lost; None for a guest that powered off.

        Raises HostError where libvirt is gone.
        """
        if self.kind == "unreachable":
            raise HostError(
                "the connection to libvirt was lost while the guest was running, which was ended",
                hint="see that its daemon runs (systemctl status libvirtd), and do it again",
            )
        if self.signal is not None:
            name = signal_name(self.signal)
            why = f"; {OUT_OF_MEMORY}" if self.oom_kill else ""
            return Loss(LossCause.HOST, f"QEMU was killed by {name}{why}")
        return _LOSSES.get(self.kind)
