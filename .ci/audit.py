"""Looks for known vulnerabilities: in the pinned Python packages and in this host's packages.

    python .ci/audit.py [PACKAGE...]

PACKAGE: the Debian packages that numalab needs. Updates of these and of what they depend on are
named; build/audit.txt lists everything.

Exits with 0 when none is known, with 1 when some are, and with 3 when there is no data: a package
that could not be looked up is never counted as a good one.
"""

import json
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from numalab.errors import HostError, UserError
from numalab.process import find_program, run
from numalab.source.debian_packages import update_lists

ROOT = Path(__file__).parents[1]
LOCK, FULL_LIST = ROOT / "requirements-dev.lock", ROOT / "build" / "audit.txt"
# What pip-audit can get its data from: the registry's JSON API, and https://osv.dev.
SERVICES = (("--vulnerability-service=pypi",), ("--vulnerability-service=osv",))
# A package with a published vulnerability (CVE-2021-31542). Data without it is no data: some
# registries answer, but have no vulnerabilities.
_CANARY = "django"
_CANARY_LINE = f"{_CANARY}==3.2 --hash=sha256:{'0' * 64}\n"
# `Inst libssl3 [3.0.11-1] (3.0.17-1 Debian:12.12/oldstable, Debian-Security:12/... [amd64])`
_SHOWN = 10  # vulnerable packages that are printed
_UPGRADE = re.compile(r"^Inst (\S+) \[(\S+)\] \((\S+) ([^)]*)\)", re.M)


class NoData(Exception):
    """There is no vulnerability data, or not for every package."""


@dataclass(frozen=True)
class Answer:
    """What a service of vulnerabilities says of a lock file."""

    vulnerable: dict[str, tuple[str, ...]]  # "name version" -> ids, each with the fixed versions
    unknown: tuple[str, ...]


def parse_answer(text: str) -> Answer:
    """Parse the JSON that pip-audit prints. Raises NoData for anything else."""
    try:
        packages: list[dict[str, Any]] = json.loads(text)["dependencies"]
        vulnerable = {
            f"{package['name']} {package['version']}": tuple(map(_describe, package["vulns"]))
            for package in packages
            if package.get("vulns")
        }
        unknown = tuple(package["name"] for package in packages if "vulns" not in package)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NoData("no answer") from None
    return Answer(vulnerable, unknown)


def audit_python(
    lock: Path, services: Sequence[Sequence[str]] = SERVICES
) -> dict[str, tuple[str, ...]]:
    """Return the vulnerable packages of a lock file, by the first service that has data of all.

    Raises NoData where there is none.
    """
    reasons = []
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / lock.name
        wanted.write_text(lock.read_text(encoding="utf-8") + _CANARY_LINE, encoding="utf-8")
        for options in services:
            try:
                return _ask(wanted, options)
            except NoData as none:
                reasons.append(f"{options[0].partition('=')[2]}: {none}")
    raise NoData(f"no vulnerability data can be reached ({'; '.join(reasons)})")


def security_updates(simulated: str) -> tuple[str, ...]:
    """Return the installed packages of which apt would install a newer one from Debian's security.

    `simulated` is what `apt-get --simulate dist-upgrade` prints.
    """
    return tuple(
        f"{name} {old} -> {new}"
        for name, old, new, origins in _UPGRADE.findall(simulated)
        if "Debian-Security:" in origins
    )


def audit_debian() -> tuple[str, ...]:
    """Return the security updates that this host lacks. Raises NoData where apt has no list.

    The suite's lists are fetched anew into the cache; the host's apt is left alone.
    """
    try:
        apt = update_lists(None, lambda *_: None)
        words = ["-oDir::State::Status=/var/lib/dpkg/status", "--quiet", "--simulate"]
        program = find_program("apt-get", "apt")
        done = run([program, *apt, *words, "dist-upgrade"], env={"LC_ALL": "C"})
    except (HostError, UserError) as error:
        reason = str(error).splitlines()[0]
        raise NoData(f"no list of security updates can be reached ({reason})") from None
    return security_updates(done.stdout)


def needed_sources(packages: Sequence[str], needed: Sequence[str]) -> tuple[str, ...]:
    """Return the source packages of those `packages` that `needed` are or depend on."""
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    words = ["depends", "--recurse", "--installed", *(f"--no-{kind}" for kind in kinds)]
    listed = run([find_program("apt-cache", "apt"), *words, *needed], check=False).stdout
    wanted = sorted({line for line in listed.splitlines() if line[:1].isalnum()} & set(packages))
    if not wanted:
        return ()
    query = find_program("dpkg-query", "dpkg")
    argv: list[str | Path] = [query, "--show", "--showformat=${source:Package}\n", *wanted]
    return tuple(sorted(set(run(argv, check=False).stdout.split())))


def main() -> int:
    """Print both audits in short, write them whole to build/audit.txt; return the exit code."""
    python, debian = _report(_python_lines), _report(audit_debian)
    print(f"Python: {python.reason or python_summary(python.lines)}")
    print(f"Debian: {debian.reason or _debian_summary(debian.lines)}")
    if python.lines or debian.lines:
        FULL_LIST.parent.mkdir(exist_ok=True)
        FULL_LIST.write_text("".join(f"{line}\n" for line in python.lines + debian.lines), "utf-8")
        print(f"All, with versions: {FULL_LIST.relative_to(ROOT)}")
    return max(python.exit_code, debian.exit_code)


@dataclass(frozen=True)
class Report:
    """What one audit found, or why it has no data."""

    lines: tuple[str, ...] = ()
    reason: str = ""

    @property
    def exit_code(self) -> int:
        """3 without data, 1 with findings, else 0."""
        return 3 if self.reason else int(bool(self.lines))


def _report(audit: Callable[[], tuple[str, ...]]) -> Report:
    try:
        return Report(audit())
    except NoData as none:
        return Report(reason=str(none))


def _python_lines() -> tuple[str, ...]:
    vulnerable = audit_python(LOCK)
    return tuple(f"{package}: {', '.join(ids)}" for package, ids in vulnerable.items())


def python_summary(lines: Sequence[str]) -> str:
    """Return the number of vulnerable packages; list first those that a new version fixes."""
    ranked = sorted(lines, key=lambda line: "fixed in" not in line)
    shown = [f"\n  {line}" for line in ranked[:_SHOWN]]
    more = f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    number = len(lines) or "none"
    return f"known vulnerabilities in requirements-dev.lock: {number}{''.join(shown)}{more}"


def _debian_summary(lines: Sequence[str]) -> str:
    if not lines:
        return "security updates that this host lacks: none"
    sources = needed_sources([line.split()[0] for line in lines], sys.argv[1:])
    needed = f"security updates that this host lacks: {len(lines)}; numalab needs those of"
    text = f"{needed} {', '.join(sources) or 'none of them'}"
    text = fill(text, width=92, subsequent_indent="  ", break_on_hyphens=False)
    return f"{text}\n  fix: sudo apt-get update && sudo apt-get upgrade"


def _ask(wanted: Path, options: Sequence[str]) -> dict[str, tuple[str, ...]]:
    argv: list[str | Path] = [sys.executable, "-m", "pip_audit", "--requirement", wanted, *options]
    argv += ["--require-hashes", "--disable-pip", "--format=json", "--progress-spinner=off"]
    try:
        done = run(argv, check=False, timeout=600)
    except HostError:
        raise NoData("no answer in 10 minutes") from None
    answer = parse_answer(done.stdout)
    if answer.unknown:
        raise NoData(f"nothing on {len(answer.unknown)} packages")
    vulnerable = dict(answer.vulnerable)
    if not [
        vulnerable.pop(package) for package in list(vulnerable) if package.split()[0] == _CANARY
    ]:
        raise NoData("no vulnerabilities at all")
    return vulnerable


def _describe(vulnerability: dict[str, Any]) -> str:
    fixed = ", ".join(vulnerability["fix_versions"])
    return f"{vulnerability['id']} (fixed in {fixed})" if fixed else str(vulnerability["id"])


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `make audit | head` ends without a traceback
    sys.exit(main())
