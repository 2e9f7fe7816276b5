"""Reads what a guest says about its own machine: sysfs, debugfs and the kernel log.

Everything here came out of a guest: sizes are bounded, and what cannot be read becomes a finding
of the comparison, not an error.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lab.cpulist import parse_cpulist
from lab.topology.predict.firmware import Vendor
from lab.topology.sched_log import SchedLog, parse_sched_verbose

ZEN_FAMILY = 0x17
MAX_GUEST_NODES = 1024  # MAX_NUMNODES of the largest configuration there is

_VERSION = re.compile(r"Linux version (\d+\.\d+\S{0,64})")
_CPU = re.compile(r"smpboot: CPU0: (AMD|Intel)\b.{0,80}\(family: 0x([0-9a-f]{1,4})")
_TOTAL = re.compile(r"MemTotal:\s+(\d{1,15}) kB")
_DOMAIN_FILE = re.compile(r"cpu(\d{1,5})/domain(\d{1,2})/(name|flags):(.*)$")
_NODE_FILE = re.compile(r"(?:^|/)node(\d{1,4})/(cpulist|distance|meminfo)$")


@dataclass(frozen=True)
class GuestNode:
    """A node as sysfs shows it; None for what was not there or could not be read."""

    id: int
    cpus: tuple[int, ...] | None
    distances: tuple[int, ...] | None
    memory_mib: int | None


@dataclass(frozen=True)
class DomainFiles:
    """The name and the flags of one domain of one CPU, from /sys/kernel/debug/sched/domains."""

    name: str
    flags: tuple[str, ...]


@dataclass(frozen=True)
class GuestView:
    """A machine as its guest reports it.

    `domain_files[cpu, level]` is empty when debugfs had no domains (a kernel without
    CONFIG_SCHED_DEBUG, or booted without sched_verbose). `kernel` and `vendor` come from the log;
    None when it does not say.
    """

    nodes: tuple[GuestNode, ...]
    sched_log: SchedLog
    domain_files: Mapping[tuple[int, int], DomainFiles]
    kernel: str | None
    vendor: Vendor | None


def parse_guest_view(node_files: Mapping[str, str], domains: str, dmesg: str) -> GuestView:
    """Read what a guest left about its machine.

    `node_files` maps `node<N>/cpulist`, `node<N>/distance` and `node<N>/meminfo` (a longer path
    before that is ignored) to their texts. `domains` has a line `path:value` for each file of
    /sys/kernel/debug/sched/domains, as `grep -r` prints it. `dmesg` is the kernel log.
    """
    version = _VERSION.search(dmesg)
    return GuestView(
        nodes=_nodes(node_files),
        sched_log=parse_sched_verbose(dmesg),
        domain_files=_domain_files(domains.splitlines()),
        kernel=version[1] if version else None,
        vendor=_vendor(dmesg),
    )


def _vendor(dmesg: str) -> Vendor | None:
    match = _CPU.search(dmesg)
    if match is None:
        return None
    if match[1] == "Intel":
        return "intel"
    return "zen" if int(match[2], 16) >= ZEN_FAMILY else "amd"


def _nodes(files: Mapping[str, str]) -> tuple[GuestNode, ...]:
    found: dict[int, dict[str, str]] = {}
    for path, text in files.items():
        match = _NODE_FILE.search(path)
        if match and int(match[1]) < MAX_GUEST_NODES:
            found.setdefault(int(match[1]), {})[match[2]] = text[:65536]
    return tuple(
        GuestNode(number, _cpus(texts), _distances(texts), _memory(texts))
        for number, texts in sorted(found.items())
    )


def _cpus(texts: Mapping[str, str]) -> tuple[int, ...] | None:
    if "cpulist" not in texts:
        return None
    try:
        return parse_cpulist(texts["cpulist"])
    except ValueError:
        return None


def _distances(texts: Mapping[str, str]) -> tuple[int, ...] | None:
    words = texts.get("distance", "").split()
    if not words or not all(word.isdecimal() and len(word) < 6 for word in words):
        return None
    return tuple(int(word) for word in words)


def _memory(texts: Mapping[str, str]) -> int | None:
    match = _TOTAL.search(texts.get("meminfo", ""))
    return int(match[1]) // 1024 if match else None


def _domain_files(lines: Iterable[str]) -> dict[tuple[int, int], DomainFiles]:
    names: dict[tuple[int, int], str] = {}
    flags: dict[tuple[int, int], tuple[str, ...]] = {}
    for line in lines:
        match = _DOMAIN_FILE.search(line[:4096])
        if match is None:
            continue
        key = (int(match[1]), int(match[2]))
        if match[3] == "name":
            names[key] = match[4].strip()[:32]
        else:
            flags[key] = tuple(match[4].split())
    return {key: DomainFiles(names.get(key, ""), flags.get(key, ())) for key in names | flags}
