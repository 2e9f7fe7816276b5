"""A typed interface to libvirt's Python binding, which no other module imports.

Errors become HostError. With libvirt 9.0 the application itself runs the loop of lifecycle events.
"""
# ruff: noqa: D102 - the methods of the first two protocols are libvirt's own

import contextlib
import ctypes
import errno
import importlib
import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, cast

from numalab.errors import HostError, QemuFailed
from numalab.qemu.ending import EndKind

_INSTALL = "apt-get install libvirt-daemon-system qemu-system-x86"

_NO_RIGHTS = (
    "leave out --connect, or, as root: usermod --append --groups libvirt USER, and log in again"
)

_HINTS: Mapping[str, str] = {
    "Failed to parse user": _INSTALL,
    "no connection driver": _INSTALL,
    "Cannot find suitable emulator": _INSTALL,
    "No such file or directory: '/usr/bin/qemu": _INSTALL,
    "virtlogd-sock": "systemctl start virtlogd.socket",
    "': Permission denied": _NO_RIGHTS,  # of a socket, by its mode
    "polkit": _NO_RIGHTS,  # no agent to ask for a password
    "access denied": _NO_RIGHTS,
    "Failed to find user record for uid": (
        "leave out --connect: libvirt's daemon accepts only users of /etc/passwd"
    ),
    "Failed to connect socket": "systemctl start libvirtd, or leave out --connect",
    "Cannot allocate memory": "free memory on this host, or ask for a smaller topology",
    "/dev/kvm": "leave out --mode kvm, or load kvm_intel or kvm_amd",
}


# The host had no room: the guest may start at another time.
_NO_ROOM = tuple(
    os.strerror(number)
    for number in (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
)


def hint_for(message: str) -> str | None:
    """Return the command that fixes an error of libvirt, or None."""
    return next((hint for sign, hint in _HINTS.items() if sign in message), None)


libvirt: Any = None  # imported by `import_binding`: it is an extra, and most commands need none
libvirt_qemu: Any = None


class LibvirtDomain(Protocol):
    """The used methods of libvirt's virDomain."""

    def name(self) -> str: ...
    def resume(self) -> int: ...
    def destroy(self) -> int: ...
    def metadata(self, type: int, uri: str, flags: int = 0) -> str: ...


class Connection(Protocol):
    """The used methods of libvirt's virConnect."""

    def createXML(self, xmlDesc: str, flags: int = 0) -> LibvirtDomain: ...  # noqa: N802, N803
    def domainXMLToNative(self, fmt: str, xml: str, flags: int = 0) -> str: ...  # noqa: N802
    def domainEventRegisterAny(  # noqa: N802
        self,
        dom: None,
        eventID: int,  # noqa: N803
        cb: Any,
        opaque: Any,
    ) -> int: ...
    def registerCloseCallback(self, cb: Any, opaque: Any) -> int: ...  # noqa: N802
    def listAllDomains(self, flags: int = 0) -> list[LibvirtDomain]: ...  # noqa: N802
    def getHostname(self) -> str: ...  # noqa: N802
    def close(self) -> int: ...


class Listener(Protocol):
    """Receives events of domains, in the event loop's thread."""

    def on_ending(self, domain: str, kind: EndKind) -> None:
        """A domain has ended."""

    def on_stopped(self, domain: str) -> None:
        """libvirt reports the end of a domain's QEMU."""

    def on_shutdown(self, domain: str, details: str) -> None:
        """QEMU reports, in JSON, why the guest's machine stopped."""

    def on_close(self) -> None:
        """The connection is gone."""


_event_loop: threading.Thread | None = None
_loop_ends = threading.Event()


def import_binding() -> None:
    """Import libvirt's Python binding. Raises HostError where it is not installed."""
    global libvirt, libvirt_qemu  # noqa: PLW0603 - `doctor --fix` may have just installed it
    # libvirt logs to stderr, unless this variable is set at import. Errors raise exceptions too.
    os.environ.setdefault("LIBVIRT_LOG_OUTPUTS", "4:file:/dev/null")
    try:
        libvirt = importlib.import_module("libvirt")
        libvirt_qemu = importlib.import_module("libvirt_qemu")
    except ImportError:
        reason = "the Python binding of libvirt is not installed"
        raise HostError(reason, hint="numalab doctor --fix") from None


with contextlib.suppress(HostError):
    import_binding()


def open_connection(uri: str) -> Connection:
    """Open a connection; the event loop runs from then on."""
    _start_event_loop()
    return cast(Connection, libvirt.open(uri))


def create_paused(connection: Connection, xml: str) -> LibvirtDomain:
    """Start a domain with its CPUs stopped."""
    return connection.createXML(xml, libvirt.VIR_DOMAIN_START_PAUSED)


def owner_metadata(domain: LibvirtDomain, namespace: str) -> str:
    """Return the element of a namespace in a domain's metadata."""
    return domain.metadata(libvirt.VIR_DOMAIN_METADATA_ELEMENT, namespace, 0)


def monitor_command(domain: LibvirtDomain, text: str) -> str:
    """Run a QMP command, JSON in and out."""
    return str(libvirt_qemu.qemuMonitorCommand(domain, text, 0))


def monitor_command_with_file(domain: LibvirtDomain, text: str, descriptor: int) -> None:
    """Run a QMP command, and pass an open file to QEMU with it."""
    libvirt_qemu.qemuMonitorCommandWithFiles(domain, text, [descriptor], 0)


def listen(connection: Connection, listener: Listener) -> None:
    """Report events of all domains to `listener`."""
    stopped: Mapping[int, EndKind] = {
        libvirt.VIR_DOMAIN_EVENT_STOPPED_SHUTDOWN: "off",
        libvirt.VIR_DOMAIN_EVENT_STOPPED_DESTROYED: "destroyed",
        libvirt.VIR_DOMAIN_EVENT_STOPPED_CRASHED: "crashed",
        libvirt.VIR_DOMAIN_EVENT_STOPPED_FAILED: "failed",
    }

    def lifecycle(_: object, domain: LibvirtDomain, event: int, detail: int, __: object) -> None:
        if event == libvirt.VIR_DOMAIN_EVENT_CRASHED:
            listener.on_ending(domain.name(), "crashed")
        elif event == libvirt.VIR_DOMAIN_EVENT_STOPPED:
            listener.on_stopped(domain.name())
            listener.on_ending(domain.name(), stopped.get(detail, "failed"))

    def shutdown(_: object, domain: LibvirtDomain, *event: Any) -> None:
        # The event's name, time (two numbers), JSON and our None.
        listener.on_shutdown(domain.name(), str(event[3] or "{}"))

    connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, lifecycle, None)
    with ignored():  # only QEMU has a monitor
        libvirt_qemu.qemuMonitorEventRegister(connection, None, "SHUTDOWN", shutdown, None)
    connection.registerCloseCallback(lambda *_: listener.on_close(), None)


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn libvirt's error into HostError, with a hint for known errors."""
    try:
        yield
    except libvirt.libvirtError as error:
        message = str(error.get_error_message() or error)
        raise HostError(f"{what}: {message}", hint=hint_for(message)) from None


@contextlib.contextmanager
def asking_qemu(what: str) -> Iterator[None]:
    """Turn libvirt's error about a QEMU into QemuFailed, on a full host into HostError."""
    try:
        with translated(what):
            yield
    except HostError as error:
        if any(reason in str(error) for reason in _NO_ROOM):
            raise
        raise QemuFailed(str(error)) from None


def ignored() -> contextlib.AbstractContextManager[None]:
    """Ignore errors of libvirt."""
    return contextlib.suppress(libvirt.libvirtError)


def library_version() -> tuple[int, str]:
    """Return the version of the libvirt library, as libvirt's number and as text.

    Raises HostError where its binding is not installed.
    """
    import_binding()
    number = int(libvirt.getVersion())
    return number, f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"


def _start_event_loop() -> None:
    global _event_loop  # noqa: PLW0603 - libvirt has one event loop for each process
    if _event_loop is not None:
        return
    # Errors raise exceptions; do not print them as well. A handler in Python would crash where a
    # thread that outlives the interpreter has an error. This function of C ignores its arguments.
    library = ctypes.CDLL(importlib.import_module("libvirtmod").__file__)
    library.virSetErrorFunc(None, ctypes.CDLL(None).getpid)
    libvirt.virEventRegisterDefaultImpl()
    _loop_ends.clear()
    _event_loop = threading.Thread(target=_run_event_loop, name="libvirt events", daemon=True)
    _event_loop.start()


def end_event_loop() -> None:
    """Stop reporting events: Python crashes on a callback after the end of its interpreter."""
    global _event_loop  # noqa: PLW0603 - libvirt has one event loop for each process
    if _event_loop is None:
        return
    _loop_ends.set()
    libvirt.virEventAddTimeout(0, lambda *_: None, None)  # wakes the loop
    _event_loop.join(10)
    _event_loop = None


def _run_event_loop() -> None:
    while not _loop_ends.is_set():
        with ignored():
            libvirt.virEventRunDefaultImpl()
