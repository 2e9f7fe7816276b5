"""`make audit`: without data of every package it never says that all is well."""

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import audit
from audit import (
    NoData,
    audit_debian,
    audit_python,
    needed_sources,
    parse_answer,
    security_updates,
)
from numalab.source.debian_packages import Mirror

Reply = Callable[[str], tuple[int, Any]]  # a package's name -> status and JSON
LOCK = f"jinja2==3.1.6 \\\n    --hash=sha256:{'0' * 64}\nnumpy==2.4.6 --hash=sha256:{'1' * 64}\n"

# What apt 2.6 prints for Debian 12.
SIMULATED = """\
NOTE: This is only a simulation!
Inst libgcrypt20 [1.10.1-3] (1.10.1-3+deb12u1 Debian:12.15/oldstable, \
Debian-Security:12/oldstable-security [amd64]) [libgcrypt20-dev:amd64 ]
Inst libgif7 [5.2.1-2.5] (5.2.1-2.5+deb12u1 Debian:12.15/oldstable [amd64])
Inst libpq5 [15.8-0+deb12u1] (15.20-0+deb12u1 Debian-Security:12/oldstable-security [amd64])
Inst linux-image-new (6.1.200-1 Debian-Security:12/oldstable-security [amd64])
Conf libpq5 (15.20-0+deb12u1 Debian-Security:12/oldstable-security [amd64])
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "small.lock"
    path.write_text(LOCK)
    return path


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Reply], tuple[str, ...]]]:
    """Start a service as https://osv.dev is one; gives pip-audit's options for it."""
    servers = []
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def start(reply: Reply) -> tuple[str, ...]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = reply(asked["package"]["name"])
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return osv(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def osv(port: int) -> tuple[str, ...]:
    return ("--vulnerability-service=osv", f"--osv-url=http://127.0.0.1:{port}/v1/query")


def vulnerability(name: str, *, fixed: str) -> dict[str, Any]:
    events = [{"introduced": "0"}, {"fixed": fixed}]
    affected = {
        "package": {"name": name, "ecosystem": "PyPI"},
        "ranges": [{"type": "ECOSYSTEM", "events": events}],
    }
    return {"vulns": [{"id": f"TEST-{name}", "summary": "x", "affected": [affected]}]}


def only(*vulnerable: str) -> Reply:
    return lambda name: (200, vulnerability(name, fixed="99") if name in vulnerable else {})


def test_a_vulnerable_package_is_named_with_the_version_that_is_not(
    lock: Path, serve: Callable[[Reply], tuple[str, ...]]
) -> None:
    vulnerable = audit_python(lock, [serve(only("django", "jinja2"))])
    assert vulnerable == {"jinja2 3.1.6": ("TEST-jinja2 (fixed in 99)",)}
    assert lock.read_text() == LOCK


def test_none_is_found_where_the_service_has_data(
    lock: Path, serve: Callable[[Reply], tuple[str, ...]]
) -> None:
    assert audit_python(lock, [serve(only("django"))]) == {}


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (only(), "osv: no vulnerabilities at all"),
        (only("jinja2"), "osv: no vulnerabilities at all"),
        (lambda _: (404, {}), "osv: no answer"),
        (lambda _: (500, {}), "osv: no answer"),
        (lambda _: (200, "nonsense"), "osv: no answer"),
    ],
)
def test_a_service_without_data_is_not_believed(
    lock: Path, serve: Callable[[Reply], tuple[str, ...]], reply: Reply, reason: str
) -> None:
    with pytest.raises(NoData, match=rf"no vulnerability data can be reached \({reason}\)"):
        audit_python(lock, [serve(reply)])


def test_the_next_service_is_asked(lock: Path, serve: Callable[[Reply], tuple[str, ...]]) -> None:
    services = [serve(lambda _: (404, {})), serve(only("django", "numpy"))]
    assert list(audit_python(lock, services)) == ["numpy 2.4.6"]


def test_a_service_that_cannot_be_reached(
    lock: Path, serve: Callable[[Reply], tuple[str, ...]]
) -> None:
    with pytest.raises(NoData, match=r"osv: no answer"):
        audit_python(lock, [osv(1)])


def test_packages_that_pip_audit_skips_are_unknown() -> None:
    """pip-audit itself says `No known vulnerabilities found` of these, and exits with 0."""
    reason = "Dependency not found on PyPI and could not be audited: jinja2 (3.1.6)"
    skipped = {"dependencies": [{"name": "jinja2", "skip_reason": reason}], "fixes": []}
    assert parse_answer(json.dumps(skipped)).unknown == ("jinja2",)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"dependencies": [1]}', "no JSON"])
def test_what_is_no_answer_is_no_data(text: str) -> None:
    with pytest.raises(NoData):
        parse_answer(text)


def test_security_updates_are_those_of_installed_packages() -> None:
    assert security_updates(SIMULATED) == (
        "libgcrypt20 1.10.1-3 -> 1.10.1-3+deb12u1",
        "libpq5 15.8-0+deb12u1 -> 15.20-0+deb12u1",
    )


def test_a_mirror_that_cannot_be_reached_is_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    gone = Mirror(f"file:{tmp_path}/none", "bookworm")
    monkeypatch.setattr("numalab.source.debian_packages.host_mirror", lambda: gone)
    with pytest.raises(NoData, match="no list of security updates can be reached"):
        audit_debian()


@pytest.mark.parametrize(
    ("findings", "code"),
    [
        (({}, ()), 0),
        (({"a 1": ("X",)}, ()), 1),
        (({}, ("b 1 -> 2",)), 1),
        ((None, ("b 1 -> 2",)), 3),
    ],
)
def test_the_exit_code_says_what_was_found(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    findings: tuple[dict[str, tuple[str, ...]] | None, tuple[str, ...]],
    code: int,
) -> None:
    python, debian = findings

    def answer(_: Path) -> dict[str, tuple[str, ...]]:
        if python is None:
            raise NoData("no vulnerability data can be reached")
        return python

    monkeypatch.setattr(audit, "audit_python", answer)
    monkeypatch.setattr(audit, "audit_debian", lambda: debian)
    monkeypatch.setattr(audit, "ROOT", tmp_path)
    monkeypatch.setattr(audit, "FULL_LIST", tmp_path / "build/audit.txt")
    monkeypatch.setattr("sys.argv", ["audit.py"])
    assert audit.main() == code
    said = capsys.readouterr().out
    assert ("no vulnerability data can be reached" in said) == (python is None)
    assert ("lacks: 1; numalab needs those of none of them" in said) == bool(debian)
    written = audit.FULL_LIST.read_text().splitlines() if code and (python or debian) else []
    assert written == [*(["a 1: X"] if python else []), *debian]


def test_a_package_that_a_new_version_fixes_comes_first() -> None:
    lines = [f"p{number} 1: X-{number}" for number in range(12)] + ["q 1: Y (fixed in 2)"]
    first, second, *_, last = audit.python_summary(lines).splitlines()
    assert first.endswith(": 13") and second == "  q 1: Y (fixed in 2)"
    assert last == "  and 3 more"


def test_updates_that_numalab_needs_are_named_by_their_source() -> None:
    """bash depends on libc6, of the source glibc; nothing that it needs depends on git."""
    assert needed_sources(["libc6", "git"], ["bash"]) == ("glibc",)
    assert needed_sources(["git"], ["bash"]) == ()
