"""The user and privileges of QEMU while the guest runs.

Started by root, QEMU opens its files as root and then changes to a user without files of its own
(`-run-with user=`, before 9.1 `-runas`), before the guest runs. So no file needs to be copied or
made accessible to other users.
"""

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

_USER = "libvirt-qemu"  # made by Debian's libvirt-daemon-system for this very purpose
# linux/capability.h. Without the last one, root may not read the memory of another user's process.
_CAP_SETGID, _CAP_SETUID, _CAP_SYS_PTRACE = 6, 7, 19
_RUN_WITH = (9, 1)  # the first QEMU with -run-with user=
_NEEDED = 1 << _CAP_SETGID | 1 << _CAP_SETUID | 1 << _CAP_SYS_PTRACE


@dataclass(frozen=True)
class Privilege:
    """As whom QEMU runs. `own_sandbox`: libvirt runs in this process, and leaves that to us.

    `run_as`: user and group id to become; `runs_with`: QEMU calls that `-run-with`, and since 10.0
    no longer `-runas`. `label`: those that a libvirt daemon, run by root, is to start QEMU with.
    """

    own_sandbox: bool
    run_as: tuple[int, int] | None = None
    runs_with: bool = False
    label: tuple[int, int] | None = None


def privilege(*, embedded: bool, version: tuple[int, ...] = ()) -> Privilege:
    """Return the user of QEMU: this user, or for root one with fewer privileges.

    `version` is that of the QEMU.
    """
    if os.geteuid() != 0:
        return Privilege(own_sandbox=embedded)
    if not embedded:
        return Privilege(own_sandbox=False, label=(os.geteuid(), os.getegid()))
    try:
        user = pwd.getpwnam(_USER)
    except KeyError:
        return Privilege(own_sandbox=True)
    may = effective_capabilities() & _NEEDED == _NEEDED
    # A group of its own, not the user's, which is kvm.
    run_as = (user.pw_uid, user.pw_uid) if may else None
    return Privilege(own_sandbox=True, run_as=run_as, runs_with=version >= _RUN_WITH)


def render_privilege(privilege: Privilege) -> list[str]:
    """Render QEMU's arguments for it.

    The sandbox is the one libvirt asks for (no new processes, no obsolete calls, no change of
    priorities), except that QEMU may change its user id where it has one to give up. Afterwards it
    has no capability to take another, and no set-user-id program helps (no_new_privs is set).
    """
    if not privilege.own_sandbox:
        return []
    elevate = "deny" if privilege.run_as is None else "allow"
    sandbox = f"on,obsolete=deny,elevateprivileges={elevate},spawn=deny,resourcecontrol=deny"
    if privilege.run_as is None:
        return ["-sandbox", sandbox]
    user = "{}:{}".format(*privilege.run_as)
    return [
        "-sandbox",
        sandbox,
        *(("-run-with", f"user={user}") if privilege.runs_with else ("-runas", user)),
    ]


def effective_capabilities() -> int:
    """Return the effective capabilities of this process, capabilities(7), as a mask."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return int(value, 16)
    return 0
