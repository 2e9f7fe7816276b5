"""The only module that speaks to libvirt: connections, domains and QEMU's monitor.

Facts it rests on, seen with libvirt 9.0: the embedded driver has no autodestroy, so whoever starts
a domain must end it; one process at a time may use an embedded root; the lifecycle events come
from an event loop that the application runs.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

# libvirt logs to stderr, and asks where to when it is imported. What matters comes as exceptions.
os.environ.setdefault("LIBVIRT_LOG_OUTPUTS", "4:file:/dev/null")

import libvirt
import libvirt_qemu

from lab.errors import HostError
from lab.machine import embed
from lab.machine.domain_xml import OWNER_NAMESPACE, parse_owner
from lab.machine.ending import SHUTDOWN_REASONS, Ending, EndKind
from lab.machine.mends import mend_for
from lab.machine.orphans import adopt_orphans, killed_by
from lab.machine.owner import is_alive, qemu_process

EMBED = "qemu:///embed"


class _Domain(Protocol):
    def name(self) -> str: ...
    def resume(self) -> int: ...
    def destroy(self) -> int: ...
    def state(self, flags: int = 0) -> list[int]: ...
    def metadata(self, type: int, uri: str, flags: int = 0) -> str: ...


class _Connection(Protocol):
    def createXML(self, xmlDesc: str, flags: int = 0) -> _Domain: ...  # noqa: N802, N803
    def domainXMLToNative(self, fmt: str, xml: str, flags: int = 0) -> str: ...  # noqa: N802
    def domainEventRegisterAny(  # noqa: N802
        self,
        dom: None,
        eventID: int,  # noqa: N803
        cb: Any,
        opaque: Any,
    ) -> int: ...
    def registerCloseCallback(self, cb: Any, opaque: Any) -> int: ...  # noqa: N802
    def listAllDomains(self, flags: int = 0) -> list[_Domain]: ...  # noqa: N802
    def getHostname(self) -> str: ...  # noqa: N802
    def close(self) -> int: ...


class Guest:
    """A domain that was started and is not yet ended."""

    def __init__(self, log: Path | None) -> None:
        self._domain: _Domain | None = None
        self._log = log
        self._ended = threading.Event()
        self._ending: Ending | None = None
        self._stopped = False  # libvirt has seen QEMU end, and its process id may be used again
        self._gone = False  # QEMU has been ended here, and is not there any more
        self._threads: tuple[int, ...] = ()
        self._pid: int | None = None

    @property
    def domain(self) -> _Domain:
        """The libvirt domain."""
        assert self._domain is not None
        return self._domain

    @domain.setter
    def domain(self, domain: _Domain) -> None:
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
        with _translated(f"QEMU's monitor did not answer {command}"):
            return json.loads(libvirt_qemu.qemuMonitorCommand(self.domain, text, 0))["return"]

    def console(self) -> Path:
        """Return the terminal that QEMU made for the guest's first console. Raises HostError."""
        for device in self.monitor("query-chardev"):
            kind, _, path = str(device["filename"]).partition(":")
            if kind == "pty":
                return Path(path)
        raise HostError("QEMU made no terminal for the guest's console")

    def host_address(self, address: int) -> int:
        """Return where QEMU has a guest physical address in its own memory. Raises HostError."""
        line = f"gpa2hva {address:#x}"
        text = str(self.monitor("human-monitor-command", **{"command-line": line}))
        word = text.strip().rpartition(" is ")[2]
        if not word.startswith("0x"):
            raise HostError(f"QEMU's monitor did not answer {line}: {text.strip()[:200]}")
        return int(word, 16)

    def versions(self) -> dict[str, str]:
        """Return the versions of libvirt (the library in this process) and of QEMU."""
        qemu = self.monitor("query-version")["qemu"]
        return {
            "libvirt": _version(libvirt.getVersion()),
            "qemu": f"{qemu['major']}.{qemu['minor']}.{qemu['micro']}",
        }

    def resume(self) -> None:
        """Let the guest's CPUs run."""
        with _translated("the guest could not be started"):
            self.domain.resume()

    def wait(self, seconds: float) -> Ending | None:
        """Wait until the domain has ended, at most `seconds`; None if it still runs."""
        self._ended.wait(seconds)
        if self._ending is None or self._ending.kind != "failed" or self._pid is None:
            return self._ending
        self._await_process(1)
        return Ending("failed", killed_by(self._pid))

    def end(self) -> None:
        """End QEMU if it still runs. Safe to call again; libvirt knows it after `let_go`."""
        if self._gone:
            return
        if self._pid is not None and not self._stopped:
            # SIGTERM lets QEMU write back nothing that matters; SIGKILL is done at once.
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
            self._await_process(5)
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
        with contextlib.suppress(libvirt.libvirtError):
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

    def _on_lifecycle(self, event: int, detail: int) -> None:
        """Note how the domain ended. Called from the event loop's thread."""
        if event == libvirt.VIR_DOMAIN_EVENT_CRASHED:
            self._note("crashed")
        elif event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            self._stopped = True
            self._note(_STOPPED.get(detail, "failed"))

    def _note(self, kind: EndKind) -> None:
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


_STOPPED: Mapping[int, EndKind] = {
    libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN: "off",
    libvirt.VIR_DOMAIN_EVENT_STOPPED_DESTROYED: "destroyed",
    libvirt.VIR_DOMAIN_EVENT_STOPPED_CRASHED: "crashed",
    libvirt.VIR_DOMAIN_EVENT_STOPPED_FAILED: "failed",
}


class Hypervisor:
    """One open connection to libvirt."""

    def __init__(self, uri: str, connection: _Connection, root: embed.Root | None) -> None:
        self.uri = uri
        self._connection = connection
        self._root = root
        self._guests: dict[str, Guest] = {}
        self._leaving: list[threading.Thread] = []  # each lets libvirt forget a guest
        connection.domainEventRegisterAny(
            None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, self._on_lifecycle, None
        )
        with contextlib.suppress(libvirt.libvirtError):  # only QEMU has a monitor
            register = libvirt_qemu.qemuMonitorEventRegister
            register(connection, None, "SHUTDOWN", self._on_shutdown, None)
        self.reachable = True
        connection.registerCloseCallback(self._on_close, None)
        self._end_leftovers()

    def start(self, name: str, xml: str) -> Guest:
        """Start a domain with its CPUs stopped. Raises HostError with QEMU's own words."""
        log = self._root.path / "log" / "qemu" / f"{name}.log" if self._root else None
        # Known before it exists, so that no event is missed.
        guest = self._guests[name] = Guest(log)
        try:
            with _translated("the guest could not be started"), embed.on_one_cpu():
                guest.domain = self._connection.createXML(xml, libvirt.VIR_DOMAIN_START_PAUSED)
        except BaseException:
            del self._guests[name]
            guest.forget_log()
            raise
        return guest

    @property
    def embedded(self) -> bool:
        """Tell whether libvirt runs in this process."""
        return self._root is not None

    @property
    def guests(self) -> tuple[str, ...]:
        """The names of the guests that this process has started and not yet forgotten."""
        return tuple(self._guests)

    def forget(self, name: str) -> None:
        """Forget a guest that has ended, with QEMU's log of it; nobody has to wait for that."""
        guest = self._guests.pop(name, None)
        if guest is not None:
            self._leaving = [thread for thread in self._leaving if thread.is_alive()]
            self._leaving.append(threading.Thread(target=guest.let_go, daemon=True))
            self._leaving[-1].start()

    def command_line(self, xml: str) -> str:
        """Return the QEMU command line that libvirt makes of a domain."""
        with _translated("libvirt cannot translate the domain"), embed.on_one_cpu():
            return self._connection.domainXMLToNative("qemu-argv", xml, 0)

    def close(self) -> None:
        """End the guests that are left and close the connection."""
        for name, guest in list(self._guests.items()):
            guest.end()
            self.forget(name)
        for thread in self._leaving:
            thread.join()
        with contextlib.suppress(libvirt.libvirtError):
            self._connection.close()
        if self._root is not None:
            self._root.release()

    def _on_lifecycle(
        self, _connection: object, domain: _Domain, event: int, detail: int, _opaque: object
    ) -> None:
        guest = self._guests.get(domain.name())
        if guest is not None:
            guest._on_lifecycle(event, detail)

    def _on_shutdown(self, _connection: object, domain: _Domain, *event: Any) -> None:
        """Note QEMU's own event; `event` is its name, time (two numbers), JSON and our None."""
        details: str | None = event[3]
        guest = self._guests.get(domain.name())
        kind = SHUTDOWN_REASONS.get(json.loads(details or "{}").get("reason", ""))
        if guest is not None and kind is not None:
            guest._note(kind)

    def _on_close(self, _connection: object, _reason: int, _opaque: object) -> None:
        self.reachable = False
        for guest in tuple(self._guests.values()):
            guest._note("unreachable")

    def _end_leftovers(self) -> None:
        """Destroy the domains of numalab processes that died (an embedded root has none left)."""
        for domain in self._connection.listAllDomains(0):
            with contextlib.suppress(libvirt.libvirtError, ValueError):
                text = domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, OWNER_NAMESPACE, 0)
                if not is_alive(parse_owner(text)):
                    domain.destroy()


def connect(uri: str = EMBED) -> Hypervisor:
    """Return this process's connection to `uri`, opening it the first time.

    `qemu:///embed` runs libvirt's QEMU driver inside this process; nothing has to be set up.
    Raises HostError where libvirt cannot be reached or runs guests on another host.
    """
    with _opening:
        if uri in _open and not _open[uri].reachable:
            _open.pop(uri).close()
        if uri not in _open:
            atexit.register(disconnect_all)
            _start_event_loop()
            _open[uri] = _open_embedded() if uri == EMBED else _open_uri(uri, uri, None)
        return _open[uri]


def library_version() -> tuple[int, str]:
    """Return the version of the libvirt library, as libvirt's number and as text."""
    number = int(libvirt.getVersion())
    return number, _version(number)


def disconnect_all() -> None:
    """End all guests of this process and close its connections. Safe to call again."""
    with _opening:
        while _open:
            _open.popitem()[1].close()


_open: dict[str, Hypervisor] = {}
_opening = threading.Lock()
_event_loop: threading.Thread | None = None


def _open_embedded() -> Hypervisor:
    adopt_orphans()
    root = embed.take_root()
    try:
        return _open_uri(EMBED, f"{EMBED}?root={root.path}", root)
    except BaseException:
        root.release()
        raise


def _open_uri(uri: str, full: str, root: embed.Root | None) -> Hypervisor:
    with _translated(f"cannot connect to libvirt at {uri}"), embed.on_one_cpu():
        connection = cast(_Connection, libvirt.open(full))
        host = connection.getHostname()
    if host.partition(".")[0] != socket.gethostname().partition(".")[0]:
        with contextlib.suppress(libvirt.libvirtError):
            connection.close()
        raise HostError(
            f"{uri} runs guests on {host}: their consoles, job disks and memory, and the proof of"
            " their placement in /proc, are there",
            mend=f"ssh {host} numalab ..., and copy the results",
        )
    return Hypervisor(uri, connection, root)


def _start_event_loop() -> None:
    global _event_loop  # noqa: PLW0603 - libvirt has one event loop for each process
    if _event_loop is not None:
        return
    # Errors come back as exceptions; libvirt would print them as well.
    libvirt.registerErrorHandler(lambda _context, _error: None, None)
    libvirt.virEventRegisterDefaultImpl()
    _event_loop = threading.Thread(target=_run_event_loop, name="libvirt events", daemon=True)
    _event_loop.start()


def _run_event_loop() -> None:
    while True:
        with contextlib.suppress(libvirt.libvirtError):
            libvirt.virEventRunDefaultImpl()


@contextlib.contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn libvirt's error into HostError, with the command that mends it where we know one."""
    try:
        yield
    except libvirt.libvirtError as error:
        message = str(error.get_error_message() or error)
        raise HostError(f"{what}: {message}", mend=mend_for(message)) from None


def _version(number: int) -> str:
    return f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"
