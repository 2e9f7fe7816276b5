"""Reads a guest's report of its machine: sysfs, debugfs and the kernel log.

The text comes from a guest: sizes are bounded, and unreadable values become differences.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from numalab.cpulist import parse_cpulist
from numalab.topology.predict.firmware import PACKAGE_WARNING, Vendor
from numalab.topology.sched_domains import (
    CpuDomains,
    SchedDomain,
    SchedLog,
    parse_sched_verbose,
)

ZEN_FAMILY = 0x17
MAX_GUEST_NODES = 1024  # MAX_NUMNODES of the largest configuration

_VERSION = re.compile(r"Linux version (\d+\.\d+\S{0,64})")
_CPU = re.compile(r"smpboot: CPU0: (AMD|Intel)\b.{0,80}\(family: 0x([0-9a-f]{1,4})")
_TOTAL = re.compile(r"MemTotal:\s+(\d{1,15}) kB")
_DOMAIN_FILE = re.compile(r"cpu(\d{1,5})/domain(\d{1,2})/(name|flags):(.*)$")
# "Early memory node ranges", free_area_init() in mm/ (5.10 to 7.3): the firmware's memory.
_RANGE = re.compile(r"  node +(\d{1,4}): \[mem 0x([0-9a-f]{1,16})-0x([0-9a-f]{1,16})\]")
_SIBLING = re.compile(r"sched: CPU #\d{1,5}'s .{1,120}Ignoring dependency\.")
# A WARN_ON() of kernel/sched/topology.c: with its file where the kernel prints it, else function.
_WARNED = re.compile(
    r"WARNING: .{0,80}\b(?:kernel/sched/topology\.c|build_balance_mask|init_overlap_sched_group|"
    r"build_overlap_sched_groups|build_sched_groups|build_sched_domains?|sched_init_numa)\b.{0,80}"
)
_AT_SIBLINGS = re.compile(r"WARNING: .{0,160}\b(?:topology_sane|set_cpu_sibling_map)\b")
# As kernels since 7.0, in which set_cpu_sibling_map() warns, write it: `[file:line ]at function`.
_OF_PACKAGE = re.compile(r"WARNING: (?:.{0,80}\.c:\d+ )?at set_cpu_sibling_map\b")
MAX_WARNINGS = 100
MAX_FLAGS, MAX_NAME = 32, 64  # flags of a domain (bits of an int), characters of one
# Before 5.10 a domain's flags are a number, before 5.8 one with these bits and SD_LOAD_BALANCE (1):
# include/linux/sched/topology.h, 4.12.
_RENUMBERED = (5, 8)
OLD_FLAGS = {
    0x0002: "SD_BALANCE_NEWIDLE",
    0x0004: "SD_BALANCE_EXEC",
    0x0008: "SD_BALANCE_FORK",
    0x0010: "SD_BALANCE_WAKE",
    0x0020: "SD_WAKE_AFFINE",
    0x0040: "SD_ASYM_CPUCAPACITY",
    0x0080: "SD_SHARE_CPUCAPACITY",
    0x0200: "SD_SHARE_PKG_RESOURCES",
    0x0400: "SD_SERIALIZE",
    0x0800: "SD_ASYM_PACKING",
    0x1000: "SD_PREFER_SIBLING",
    0x2000: "SD_OVERLAP",
    0x4000: "SD_NUMA",
}
# After the last of its initcalls, init/main.c; before 4.19 it does not print which init it runs.
_BOOTED = re.compile(r"Freeing unused kernel |Run \S{1,4000} as init process")
# print_unknown_bootoptions(), init/main.c, before it reads the words after `--`; the first form is
# that of 5.14, older kernels have none. Words are without their quotes, parameters of modules not
# among them.
_UNKNOWN_WORDS = re.compile(
    r"^(?:\[[ \d.]{1,24}\] )?Unknown (?:command line parameters:|kernel command line parameters \")"
    r"(.{0,4096}?)"
    r'(?:", will be passed to user space\.)?$',
    re.MULTILINE,
)
_OFFLINE = re.compile(r"smpboot: CPU (\d{1,5}) is now offline")
_NODE_FILE = re.compile(r"(?:^|/)node(\d{1,4})/(cpulist|distance|meminfo)$")


@dataclass(frozen=True)
class GuestNode:
    """A node in the guest's report; None for missing and unreadable values.

    `memory_mib` is the memory that the kernel manages, `given_mib` the memory from the firmware.
    """

    id: int
    cpus: tuple[int, ...] | None
    distances: tuple[int, ...] | None
    memory_mib: int | None
    given_mib: int | None = None


@dataclass(frozen=True)
class DomainFiles:
    """The name and the flags of one domain of one CPU, from /sys/kernel/debug/sched/domains.

    `flags` is None for numbers that are not known.
    """

    name: str
    flags: tuple[str, ...] | None


@dataclass(frozen=True)
class GuestView:
    """A machine in the report of its guest.

    `domain_files[cpu, level]` is empty when debugfs had no domains (a kernel without
    CONFIG_SCHED_DEBUG, or booted without sched_verbose). `kernel` and `vendor` come from the log;
    None if missing. `warnings` are those of the code that finds siblings and builds sched domains.
    `sched_log` is the last build; `boot_log` that of the boot, where a later one (CPU hotplug,
    cpusets) followed it, else None. CPUs that are or were `offline` had been brought up before.
    `cut`: the log lost its beginning, so the sched domains of the boot are not known.
    `unknown_words` are words of the command line that the kernel does not know, as it lists them.
    """

    nodes: tuple[GuestNode, ...]
    sched_log: SchedLog
    domain_files: Mapping[tuple[int, int], DomainFiles]
    kernel: str | None
    vendor: Vendor | None
    warnings: tuple[str, ...] = ()
    boot_log: SchedLog | None = None
    offline: frozenset[int] = frozenset()
    cut: bool = False
    unknown_words: str = ""

    @property
    def sched_domains(self) -> SchedLog:
        """The sched domains of the log, with their flags where debugfs had them."""

        def flagged(cpu: int, domain: SchedDomain) -> SchedDomain:
            files = self.domain_files.get((cpu, domain.level))
            flags = [flag[:MAX_NAME] for flag in (files.flags or () if files else ())]
            return replace(domain, flags=tuple(flags[:MAX_FLAGS]))

        cpus = (
            CpuDomains(own.cpu, tuple(flagged(own.cpu, domain) for domain in own.domains))
            for own in self.sched_log.cpus
        )
        return replace(self.sched_log, cpus=tuple(cpus))


def is_cut(dmesg: str) -> bool:
    """Return whether a kernel log has lost its beginning: the kernel's buffer overwrites it."""
    return bool(dmesg) and _VERSION.search(dmesg) is None


def parse_guest_view(
    node_files: Mapping[str, str], domains: str, dmesg: str, *, cut: bool = False
) -> GuestView:
    """Read the report of a guest about its machine.

    `node_files` maps `node<N>/cpulist`, `node<N>/distance` and `node<N>/meminfo` (a longer path
    before that is ignored) to their texts. `domains` has a line `path:value` for each file of
    /sys/kernel/debug/sched/domains, as `grep -r` prints it. `dmesg` is the kernel log; of a `cut`
    one, the beginning is that of the console, which has no sched domains.
    """
    version, booted = _VERSION.search(dmesg), _BOOTED.search(dmesg)
    unknown = _UNKNOWN_WORDS.search(dmesg)
    boot, later = (dmesg[: booted.end()], dmesg[booted.end() :]) if booted else (dmesg, "")
    bits = OLD_FLAGS if version and _series(version[1]) < _RENUMBERED else {}
    return GuestView(
        nodes=_nodes(node_files, _firmware_memory(dmesg)),
        sched_log=parse_sched_verbose("" if cut else dmesg),
        domain_files=_domain_files(domains.splitlines(), bits),
        kernel=version[1] if version else None,
        vendor=_vendor(dmesg),
        warnings=_warnings(dmesg),
        boot_log=parse_sched_verbose(boot) if not cut and parse_sched_verbose(later).cpus else None,
        offline=frozenset(int(cpu) for cpu in _OFFLINE.findall(later)),
        cut=cut,
        unknown_words=unknown[1].strip() if unknown else "",
    )


def at_boot(guest: GuestView) -> GuestView:
    """Return the report with the sched domains of the boot, whatever followed it.

    Files in debugfs are left out where they are those of a later build: with tunables, they are
    read after these are set.
    """
    if guest.boot_log is None:
        return guest
    booted = {
        (cpu.cpu, domain.level): domain.name
        for cpu in guest.boot_log.cpus
        for domain in cpu.domains
    }
    names = {key: file.name for key, file in guest.domain_files.items()}
    files = guest.domain_files if names == booted else {}
    return replace(guest, sched_log=guest.boot_log, domain_files=files)


def _firmware_memory(dmesg: str) -> dict[int, int]:
    """Return the bytes of each node; nothing for a log without its beginning."""
    firmware: dict[int, int] = {}
    for node, first, last in _RANGE.findall(dmesg):
        firmware[int(node)] = firmware.get(int(node), 0) + int(last, 16) + 1 - int(first, 16)
    return firmware


def _warnings(dmesg: str) -> tuple[str, ...]:
    lines = [PACKAGE_WARNING] if _OF_PACKAGE.search(dmesg) else []
    lines += [line for pattern in (_SIBLING, _WARNED) for line in pattern.findall(dmesg)]
    return tuple(dict.fromkeys(lines))[:MAX_WARNINGS]


def is_warning_of_machine(line: str) -> bool:
    """Return whether a line of a kernel log begins a warning that is compared with the prediction.

    The one of siblings on two nodes (`topology_sane()`) has its text in another line.
    """
    return any(pattern.search(line) for pattern in (_AT_SIBLINGS, _WARNED))


def _vendor(dmesg: str) -> Vendor | None:
    match = _CPU.search(dmesg)
    if match is None:
        return None
    if match[1] == "Intel":
        return "intel"
    return "zen" if int(match[2], 16) >= ZEN_FAMILY else "amd"


def _nodes(files: Mapping[str, str], firmware: Mapping[int, int]) -> tuple[GuestNode, ...]:
    texts_of: dict[int, dict[str, str]] = {}
    for path, text in files.items():
        match = _NODE_FILE.search(path)
        if match and int(match[1]) < MAX_GUEST_NODES:
            texts_of.setdefault(int(match[1]), {})[match[2]] = text[:65536]
    return tuple(
        GuestNode(
            number,
            _cpus(texts),
            _distances(texts),
            _memory(texts),
            firmware.get(number, 0) >> 20 if firmware else None,
        )
        for number, texts in sorted(texts_of.items())
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


def _series(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def _domain_files(
    lines: Iterable[str], bits: Mapping[int, str]
) -> dict[tuple[int, int], DomainFiles]:
    names: dict[tuple[int, int], str] = {}
    flags: dict[tuple[int, int], tuple[str, ...] | None] = {}
    for line in lines:
        match = _DOMAIN_FILE.search(line[:4096])
        if match is None:
            continue
        key = (int(match[1]), int(match[2]))
        if match[3] == "name":
            names[key] = match[4].strip()[:32]
        else:
            flags[key] = _flags(match[4].strip(), bits)
    return {key: DomainFiles(names.get(key, ""), flags.get(key, ())) for key in names | flags}


def _flags(text: str, bits: Mapping[int, str]) -> tuple[str, ...] | None:
    """Return the names of a domain's flags; None for a number without known bits."""
    if not text.isdecimal():
        return tuple(text.split())
    number = int(text[:10])
    return tuple(name for bit, name in bits.items() if number & bit) if bits else None
