"""How a guest's domain ended, and what that means for the run."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from lab.errors import HostError

EndKind = Literal["off", "rebooted", "crashed", "failed", "destroyed", "unreachable"]

# Why QEMU says that the guest's machine stopped (ShutdownCause in QEMU's qapi/run-state.json).
# libvirt calls both a shutdown, and says so 0.2 s later, when it has waited for QEMU's process.
SHUTDOWN_REASONS: Mapping[str, EndKind] = {"guest-shutdown": "off", "guest-reset": "rebooted"}

_WHY: Mapping[EndKind, str] = {
    "off": "",
    "rebooted": "the guest rebooted",
    "crashed": "the guest's kernel panicked",
    "destroyed": "somebody else ended the guest",
    "failed": "QEMU ended unexpectedly",
}


@dataclass(frozen=True)
class Ending:
    """How a domain ended: `off` or `rebooted` by itself, `crashed` (it reported a panic; QEMU still
    stands), `failed` (QEMU died; `signal` is what killed it, where that is known), `destroyed`, or
    `unreachable` (libvirt is gone, and nothing more will be heard of the domain).
    """

    kind: EndKind
    signal: int | None = None

    def why_lost(self) -> str:
        """Say why the guest is lost; an empty text for one that powered off.

        Raises HostError where it is not the guest that ended, but libvirt.
        """
        if self.kind == "unreachable":
            raise HostError(
                "the connection to libvirt was lost while the guest was running, which was ended",
                mend="see that its daemon runs (systemctl status libvirtd), and do it again",
            )
        if self.signal is not None:
            return f"QEMU was killed by {signal.Signals(self.signal).name}"
        return _WHY[self.kind]
