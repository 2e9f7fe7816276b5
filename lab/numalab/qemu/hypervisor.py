"""Connections to libvirt, and the guests that are started through them.

With libvirt 9.0 the embedded driver has no autodestroy, so the process that starts a domain must
end it, and only one process at a time may use an embedded root.
"""

import atexit
import contextlib
import json
import socket
import threading
from pathlib import Path
from urllib.parse import quote

from numalab.errors import HostError
from numalab.host.processes import adopt_orphans, is_alive
from numalab.qemu import embed
from numalab.qemu.binding import (
    Connection,
    asking_qemu,
    create_paused,
    end_event_loop,
    ignored,
    import_binding,
    listen,
    open_connection,
    owner_metadata,
    translated,
)
from numalab.qemu.domain_xml import OWNER_NAMESPACE, parse_owner
from numalab.qemu.ending import OUT_OF_MEMORY, SHUTDOWN_REASONS, EndKind
from numalab.qemu.guest import Guest

EMBED = "qemu:///embed"


class Hypervisor:
    """One open connection to libvirt."""

    def __init__(self, uri: str, connection: Connection, root: embed.Root | None) -> None:
        self.uri = uri
        self._connection = connection
        self._root = root
        self._guests: dict[str, Guest] = {}
        self._leaving: dict[threading.Thread, Guest] = {}  # libvirt is about to forget these
        self.reachable = True
        listen(connection, self)
        self._end_leftovers()

    def start(
        self, name: str, xml: str, console: Path | None = None, *, writes_at_exit: bool = False
    ) -> Guest:
        """Start a domain with its CPUs stopped. Raises HostError with QEMU's message.

        `console` is the socket of the console at which somebody types; `writes_at_exit` as for
        `Guest`.
        """
        log = self._root.path / "log" / "qemu" / f"{name}.log" if self._root else None
        # Registered before it exists, so that no event is missed.
        guest = self._guests[name] = Guest(log, console, writes_at_exit=writes_at_exit)
        try:
            with asking_qemu("the guest could not be started"), embed.on_one_cpu():
                guest.domain = create_paused(self._connection, xml)
        except BaseException as error:
            del self._guests[name]
            guest.forget_log()
            if isinstance(error, HostError) and guest.host_ran_out():
                raise HostError(f"{error}\n  {OUT_OF_MEMORY}") from None
            raise
        return guest

    @property
    def embedded(self) -> bool:
        """Return whether libvirt runs in this process."""
        return self._root is not None

    @property
    def guests(self) -> tuple[str, ...]:
        """The names of the guests that this process has started and not yet forgotten."""
        return tuple(self._guests)

    def forget(self, name: str) -> None:
        """Remove a guest that has ended, and QEMU's log of it, in the background."""
        guest = self._guests.pop(name, None)
        if guest is not None:
            for thread in [thread for thread in self._leaving if not thread.is_alive()]:
                del self._leaving[thread]
            thread = threading.Thread(target=guest.let_go, daemon=True)
            self._leaving[thread] = guest
            thread.start()

    def command_line(self, xml: str) -> str:
        """Return the QEMU command line that libvirt makes of a domain."""
        with translated("libvirt cannot translate the domain"), embed.on_one_cpu():
            return self._connection.domainXMLToNative("qemu-argv", xml, 0)

    def close(self, *, at_exit: bool = False) -> None:
        """End all guests and close the connection.

        An embedded libvirt ends with this process: `at_exit` does not wait until it has forgotten
        the guests, whose QEMUs are gone. The lock of its root ends with the process, too, and not
        before: libvirt may still write there. It must not, once a short folder is removed.
        """
        for name, guest in list(self._guests.items()):
            guest.end()
            self.forget(name)
        if at_exit and self._root is not None and self._root.short is None:
            for guest in self._leaving.values():
                guest.forget_log()
            embed.end_leftovers(self._root.path)
            return
        for thread in self._leaving:
            thread.join()
        with ignored():
            self._connection.close()
        if self._root is not None:
            self._root.release()

    def on_ending(self, domain: str, kind: EndKind) -> None:
        """Note how a guest ended."""
        if guest := self._guests.get(domain):
            guest.note(kind)

    def on_stopped(self, domain: str) -> None:
        """Note that a guest's QEMU is gone."""
        if guest := self._guests.get(domain):
            guest.stopped()

    def on_shutdown(self, domain: str, details: str) -> None:
        """Note QEMU's own event, which comes before libvirt's."""
        kind = SHUTDOWN_REASONS.get(json.loads(details).get("reason", ""))
        if kind is not None:
            self.on_ending(domain, kind)

    def on_close(self) -> None:
        """Note that the connection is gone."""
        self.reachable = False
        for guest in tuple(self._guests.values()):
            guest.note("unreachable")

    def _end_leftovers(self) -> None:
        """Destroy the domains of numalab processes that died (an embedded root has none left)."""
        for domain in self._connection.listAllDomains(0):
            with ignored(), contextlib.suppress(ValueError):
                if not is_alive(parse_owner(owner_metadata(domain, OWNER_NAMESPACE))):
                    domain.destroy()


def connect(uri: str = EMBED) -> Hypervisor:
    """Return this process's connection to `uri`, opening it the first time.

    `qemu:///embed` runs libvirt's QEMU driver inside this process; nothing has to be set up.
    Raises HostError where libvirt cannot be reached or runs guests on another host.
    """
    import_binding()
    with _opening:
        if uri in _open and not _open[uri].reachable:
            _open.pop(uri).close()
        if uri not in _open:
            atexit.register(disconnect_all, at_exit=True)
            _open[uri] = _open_embedded() if uri == EMBED else _open_uri(uri, uri, None)
        return _open[uri]


def disconnect_all(*, at_exit: bool = False) -> None:
    """End all guests of this process and close its connections. Safe to call again."""
    with _opening:
        while _open:
            _open.popitem()[1].close(at_exit=at_exit)
        if at_exit:
            end_event_loop()


_open: dict[str, Hypervisor] = {}
_opening = threading.Lock()
_embedded_in: Path | None = None


def _open_embedded() -> Hypervisor:
    global _embedded_in  # noqa: PLW0603 - libvirt has one such folder for each process
    adopt_orphans()
    root = embed.take_root(_embedded_in)
    _embedded_in = root.path
    try:
        with embed.runtime_folder(root.path):
            return _open_uri(EMBED, f"{EMBED}?root={quote(str(root.path))}", root)
    except BaseException:
        root.release()
        raise


def _open_uri(uri: str, full: str, root: embed.Root | None) -> Hypervisor:
    with translated(f"cannot connect to libvirt at {uri}"), embed.on_one_cpu():
        connection = open_connection(full)
        host = connection.getHostname()
    if host.partition(".")[0] != socket.gethostname().partition(".")[0]:
        with ignored():
            connection.close()
        raise HostError(
            f"{uri} runs guests on {host}: their consoles, job disks and memory, and the proof of"
            " their placement in /proc, are there",
            hint=f"ssh {host} numalab ..., and copy the results",
        )
    return Hypervisor(uri, connection, root)
