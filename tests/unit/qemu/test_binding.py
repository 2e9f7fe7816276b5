"""What is used of libvirt, held against libvirt itself by its test driver, which needs no QEMU."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, cast

import libvirt
import libvirt_qemu
import pytest

from numalab.errors import HostError
from numalab.qemu.binding import (
    Connection,
    create_paused,
    hint_for,
    ignored,
    library_version,
    listen,
    monitor_command,
    open_connection,
    owner_metadata,
    translated,
)
from numalab.qemu.ending import EndKind

DOMAIN = """
<domain type="test"><name>one</name><memory>8192</memory><os><type>hvm</type></os>
<metadata><o:owner xmlns:o="https://example.invalid/o" pid="7"/></metadata></domain>
"""


class Ear:
    """Notes what it is told, and can be waited for."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, str, str]] = []
        self._news = threading.Condition()

    def _note(self, what: str, domain: str, more: str = "") -> None:
        with self._news:
            self.heard.append((what, domain, more))
            self._news.notify()

    def on_ending(self, domain: str, kind: EndKind) -> None:
        self._note("ending", domain, kind)

    def on_stopped(self, domain: str) -> None:
        self._note("stopped", domain)

    def on_shutdown(self, domain: str, details: str) -> None:
        self._note("shutdown", domain, details)

    def on_close(self) -> None:
        self._note("close", "")

    def wait_for(self, count: int) -> list[tuple[str, str, str]]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.heard) >= count, 60)
            return list(self.heard)


@pytest.fixture
def connection() -> Iterator[Connection]:
    opened = open_connection("test:///default")
    yield opened
    for domain in opened.listAllDomains():  # which all connections to the test driver share
        if domain.name() == "one":
            domain.destroy()
    opened.close()


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda domain: domain.destroy(), "destroyed"),
        (lambda domain: domain.shutdown(), "off"),
        (lambda domain: domain.coreDump("/dev/null", libvirt.VIR_DUMP_CRASH), "crashed"),
    ],
)
def test_how_a_domain_ended_is_told_from_the_event_loop(
    connection: Connection, end: Callable[[Any], object], kind: EndKind
) -> None:
    ear = Ear()
    listen(connection, ear)
    end(connection.createXML(DOMAIN))
    assert ear.wait_for(2) == [("stopped", "one", ""), ("ending", "one", kind)]


def test_a_domain_starts_with_its_cpus_stopped() -> None:
    """The test driver has no such flag."""
    asked: list[tuple[str, int]] = []

    class Noting:
        def createXML(self, text: str, flags: int) -> str:  # noqa: N802
            asked.append((text, flags))
            return "domain"

    assert create_paused(cast(Connection, Noting()), DOMAIN) == cast(Any, "domain")
    assert asked == [(DOMAIN, libvirt.VIR_DOMAIN_START_PAUSED)]


def test_whose_a_domain_is_stands_in_its_metadata(connection: Connection) -> None:
    connection.createXML(DOMAIN)
    domains = {domain.name(): domain for domain in connection.listAllDomains()}
    assert 'pid="7"' in owner_metadata(domains["one"], "https://example.invalid/o")
    with pytest.raises(libvirt.libvirtError):
        owner_metadata(domains["test"], "https://example.invalid/o")


def test_qemus_own_word_and_the_end_of_a_connection_are_passed_on(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    callbacks: dict[str, Any] = {}

    def register(_: object, dom: None, event: str, callback: Any, opaque: None) -> int:
        callbacks[event] = callback
        return 1

    monkeypatch.setattr(libvirt_qemu, "qemuMonitorEventRegister", register)
    closing = []
    monkeypatch.setattr(
        libvirt.virConnect,
        "registerCloseCallback",
        lambda _, callback, __: closing.append(callback),
    )
    ear = Ear()
    listen(connection, ear)
    domain = connection.createXML(DOMAIN)
    # conn, domain, event, seconds, microseconds, details, opaque: virConnectDomainQemuMonitorEvent.
    callbacks["SHUTDOWN"](connection, domain, "SHUTDOWN", 1, 2, '{"reason": "guest-reset"}', None)
    callbacks["SHUTDOWN"](connection, domain, "SHUTDOWN", 1, 2, None, None)
    closing[0](connection, 0, None)
    assert ear.heard == [
        ("shutdown", "one", '{"reason": "guest-reset"}'),
        ("shutdown", "one", "{}"),
        ("close", "", ""),
    ]


def test_an_error_of_libvirts_is_the_hosts_with_a_hint_where_one_is_known(
    connection: Connection,
) -> None:
    with (
        pytest.raises(HostError, match=r"^it did not start: .*hvmx") as caught,
        translated("it did not start"),
    ):
        connection.createXML(DOMAIN.replace("hvm", "hvmx"))
    assert caught.value.hint is None

    error = libvirt.libvirtError("")
    error.err = (38, 10, "Failed to connect socket to '/run/x'", 2, "", None, None, -1, -1)
    with (
        pytest.raises(HostError, match="cannot connect: Failed to connect socket") as other,
        translated("cannot connect"),
    ):
        raise error
    assert other.value.hint == "systemctl start libvirtd, or leave out --connect"


def test_only_libvirts_errors_are_let_pass(connection: Connection) -> None:
    domain = connection.createXML(DOMAIN)
    answers = []
    with ignored():  # no monitor here
        answers.append(monitor_command(domain, "{}"))
    assert not answers
    with pytest.raises(ZeroDivisionError), ignored():
        raise ZeroDivisionError


def test_the_librarys_version_is_the_number_and_its_three_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert library_version()[0] == libvirt.getVersion()
    monkeypatch.setattr(libvirt, "getVersion", lambda: 9_004_021)
    assert library_version() == (9_004_021, "9.4.21")


@pytest.mark.parametrize(
    "message",
    [
        "Failed to connect socket to '/var/run/libvirt/libvirt-sock': Permission denied",
        "Failed to connect socket to '/run/libvirt/virtqemud-sock': Permission denied",
        "authentication unavailable: no polkit agent available to authenticate action "
        "'org.libvirt.unix.manage'",
        "authentication failed: access denied by policy",
    ],
)
def test_a_socket_without_rights_needs_a_group(message: str) -> None:
    hint = hint_for(message)
    assert hint is not None
    assert "leave out --connect" in hint
    assert "usermod --append --groups libvirt" in hint
