"""A running guest: its QEMU process, its monitor and its end."""

import json
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from numalab.errors import HostError
from numalab.files import create
from numalab.host.processes import killed_by, oom_kills, qemu_process
from numalab.qemu.binding import (
    LibvirtDomain,
    asking_qemu,
    ignored,
    library_version,
    monitor_command,
    monitor_command_with_file,
    translated,
)
from numalab.qemu.ending import Ending, EndKind

_SAVE_SECONDS = 120.0  # to write or read a state of some hundred MB
_EXIT_SECONDS = 10.0  # for the files of a plugin
_LOOK = 0.005


class Guest:
    """A domain that was started and is not yet ended.

    `console` is the socket of its first console; None: nobody can type there. A QEMU that
    `writes_at_exit` has a plugin whose files are complete only when it ends by itself.
    """

    def __init__(
        self, log: Path | None, console: Path | None = None, *, writes_at_exit: bool = False
    ) -> None:
        self.console = console
        self._writes_at_exit = writes_at_exit
        self._domain: LibvirtDomain | None = None
        self._log = log
        self._ended = threading.Event()
        self._ending: Ending | None = None
        self._stopped = False  # libvirt has seen QEMU end, and its process id may be used again
        self._gone = False  # QEMU has been ended here, and is not there any more
        self._threads: tuple[int, ...] = ()
        self._pid: int | None = None
        self._versions: dict[str, str] = {}
        self._oom_kills = oom_kills()

    @property
    def domain(self) -> LibvirtDomain:
        """The libvirt domain."""
        assert self._domain is not None
        return self._domain

    @domain.setter
    def domain(self, domain: LibvirtDomain) -> None:
        self._domain = domain

    @property
    def pid(self) -> int:
        """The process id of QEMU on this host."""
        if self._pid is None:
            self._pid = qemu_process(self.vcpu_threads()[0], self.domain.name())
        return self._pid

    def vcpu_threads(self) -> tuple[int, ...]:
        """Return the host thread id of each vCPU, by vCPU number (QMP query-cpus-fast)."""
        if not self._threads:
            cpus = self.monitor("query-cpus-fast")
            by_number = sorted(cpus, key=lambda cpu: int(cpu["cpu-index"]))
            self._threads = tuple(int(cpu["thread-id"]) for cpu in by_number)
        return self._threads

    def monitor(self, command: str, **arguments: object) -> Any:
        """Run a QMP command and return its result. Raises HostError."""
        text = json.dumps({"execute": command, "arguments": arguments})
        with asking_qemu(f"QEMU's monitor did not answer {command}"):
            return json.loads(monitor_command(self.domain, text))["return"]

    def host_address(self, address: int) -> int:
        """Return where QEMU has a guest physical address in its own memory. Raises HostError."""
        line = f"gpa2hva {address:#x}"
        text = str(self.monitor("human-monitor-command", **{"command-line": line}))
        word = text.strip().rpartition(" is ")[2]
        if not word.startswith("0x"):
            raise HostError(f"QEMU's monitor did not answer {line}: {text.strip()[:200]}")
        return int(word, 16)

    def versions(self) -> dict[str, str]:
        """Return the versions of libvirt (the library in this process) and of QEMU.

        QEMU is asked once, before its CPUs run: a command that wakes its main loop while they do
        can move the clock of mode icount. icount_start_warp_timer() then finds all CPUs halted
        before the last instructions have been counted (softmmu/icount.c, 7.2).
        """
        if not self._versions:
            qemu = self.monitor("query-version")["qemu"]
            number = f"{qemu['major']}.{qemu['minor']}.{qemu['micro']}"
            self._versions = {"libvirt": library_version()[1], "qemu": number}
        return self._versions

    def stop(self) -> None:
        """Stop the guest's CPUs and its clock. Raises HostError."""
        self.monitor("stop")

    def registers(self) -> str:
        """Return the registers of all CPUs, as QEMU's monitor prints them. Raises HostError."""
        return str(self.monitor("human-monitor-command", **{"command-line": "info registers -a"}))

    def save_state(self, path: Path) -> None:
        """Write the state of a guest that is stopped to a file. Raises HostError.

        Memory that is a file on the host, as of NVDIMMs and in memfds, is not in it.
        """
        with create(path) as file:
            self._migrate("migrate", file.fileno())

    def load_state(self, path: Path) -> None:
        """Read the state of a guest that was started with `-incoming defer`. Raises HostError."""
        with path.open("rb") as file:
            self._migrate("migrate-incoming", file.fileno())

    def _migrate(self, command: str, descriptor: int) -> None:
        """Write or read a state. QEMU 7.2 crashes if it writes to an NVDIMM that is read-only."""
        capability = {"capability": "x-ignore-shared", "state": True}
        self.monitor("migrate-set-capabilities", capabilities=[capability])
        # Announcements to networks come by the host's clock, and each ends the turn of a CPU.
        self.monitor("migrate-set-parameters", **{"announce-rounds": 0})
        text = json.dumps({"execute": "getfd", "arguments": {"fdname": "state"}})
        with translated("QEMU's monitor took no file"):
            monitor_command_with_file(self.domain, text, descriptor)
        self.monitor(command, uri="fd:state")
        deadline = time.monotonic() + _SAVE_SECONDS
        while (status := self.monitor("query-migrate").get("status")) != "completed":
            if status in ("failed", "cancelled") or time.monotonic() > deadline:
                raise HostError(f"QEMU did not {command} the guest's state: {status}")
            time.sleep(_LOOK)

    def resume(self) -> None:
        """Let the guest's CPUs run."""
        with asking_qemu("the guest could not be started"):
            self.domain.resume()

    def wait(self, seconds: float) -> Ending | None:
        """Wait until the domain has ended, at most `seconds`; None if it still runs."""
        self._ended.wait(seconds)
        if self._ending is None or self._ending.kind != "failed" or self._pid is None:
            return self._ending
        self._await_process(1)
        return Ending("failed", killed_by(self._pid), self.host_ran_out())

    def host_ran_out(self) -> bool:
        """Return whether the host's OOM killer ran since the guest started."""
        return oom_kills() > self._oom_kills

    def end(self) -> None:
        """End QEMU if it still runs. Safe to call again; libvirt knows it after `let_go`."""
        if self._gone:
            return
        if self._pid is not None and not self._stopped:
            if self._writes_at_exit and self._ending is not None and self._ending.kind == "off":
                self._await_process(_EXIT_SECONDS)  # libvirt has asked it to end
            # SIGKILL is immediate; else QEMU has nothing to write back.
            with suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
            self._await_process(5)
            self.note("failed")  # libvirt says so too, 0.2 s later
            self._stopped = True
            self._gone = not Path(f"/proc/{self._pid}").exists()
        if not self._gone:
            self._destroy()

    def let_go(self) -> None:
        """Let libvirt forget the domain, then remove QEMU's log: each domain has one of its own.

        libvirt 9.0 takes 0.2 s for that: its monitor ends a moment before QEMU does, and libvirt
        waits for processes in steps of that length (virProcessKillPainfullyDelay()).
        """
        self._destroy()
        self.forget_log()

    def _destroy(self) -> None:
        with ignored():
            self.domain.destroy()
        self._await_process(10)

    def log(self, limit: int = 65536) -> str:
        """Return the end of QEMU's own log, or an empty text where there is none."""
        try:
            data = self._log.read_bytes() if self._log else b""
        except OSError:
            return ""
        return data[-limit:].decode("utf-8", "replace")

    def forget_log(self) -> None:
        """Remove QEMU's log."""
        if self._log is not None:
            self._log.unlink(missing_ok=True)

    def stopped(self) -> None:
        """Note that libvirt has seen QEMU end. Called from the event loop's thread."""
        self._stopped = True

    def note(self, kind: EndKind) -> None:
        """Note how the domain ended, the first time. Called from the event loop's thread."""
        if self._ending is None:
            self._ending = Ending(kind)
            self._ended.set()

    def _await_process(self, seconds: float) -> None:
        """Wait until QEMU is gone, at most `seconds`."""
        deadline = time.monotonic() + seconds
        while self._pid is not None and Path(f"/proc/{self._pid}").exists():
            if time.monotonic() > deadline:
                return
            time.sleep(0.002)
