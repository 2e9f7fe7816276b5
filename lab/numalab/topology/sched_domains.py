"""The sched domains and groups of each CPU: values, JSON, and the kernel's log.

The log is that of `sched_domain_debug()` in kernel/sched/topology.c, unchanged from 4.13 to 7.x: a
header for each CPU, then a `domain-N:` and a `groups:` line for each domain. Before, it had other
words and no balance masks. The kernel prints each line with many printk(KERN_CONT) calls. So a long
list of groups may be split into several records, and an `ERROR:` may interrupt a list.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    TypeAdapter,
    ValidationInfo,
    WithJsonSchema,
)

from numalab.cpulist import Cpulists, format_cpulist
from numalab.document import Count, Listed
from numalab.topology.predict.domains import NUMA_TYPES, NumaType

STORED = ConfigDict(extra="ignore", strict=True)
SCHED_CAPACITY_SCALE = 1024  # include/linux/sched.h: the capacity of one CPU


def _parse_cpus(value: object, info: ValidationInfo) -> object:
    lists: Cpulists | None = info.context
    return lists.parse(value) if lists and isinstance(value, str) else value


def _render_cpus(cpus: tuple[int, ...], info: SerializationInfo) -> object:
    return format_cpulist(cpus) if info.context else list(cpus)


# A set of CPUs is a cpulist in domains.json, with `Cpulists()` as context, and a list of numbers
# in report.json.
CpuSet = Annotated[
    tuple[int, ...],
    BeforeValidator(_parse_cpus),
    PlainSerializer(_render_cpus),
    WithJsonSchema({"items": {"type": "integer"}, "type": "array"}, mode="serialization"),
]


@dataclass(frozen=True)
class SchedGroup:
    """A sched group of a domain.

    `mask` is the balance mask: the CPUs that arrive at this group (`group_balance_mask()`). It
    equals `span` unless groups overlap. `capacity` is 1024 for each whole CPU.
    """

    __pydantic_config__ = STORED
    span: CpuSet
    mask: CpuSet
    capacity: Count


@dataclass(frozen=True)
class SchedDomain:
    """A sched domain of a CPU. `groups` are in the kernel's order, the local group first.

    `flags` are the names of the set SD_ flags, ascending by bit; a log has none.
    """

    __pydantic_config__ = STORED
    level: Count
    name: str
    span: CpuSet
    flags: Annotated[tuple[str, ...], Field(default=())]
    groups: Listed[SchedGroup]


@dataclass(frozen=True)
class CpuDomains:
    """The domains of one CPU, smallest first; none for a CPU that is not balanced."""

    __pydantic_config__ = STORED
    cpu: Count
    domains: Listed[SchedDomain]


MAX_ERRORS = 1000  # a guest may print without end
MAX_LIST = 1 << 20  # characters of one list of groups

# `<7>`, `[    0.123456]` and, with CONFIG_PRINTK_CALLER, `[    T1]`.
_PREFIX = re.compile(r"^(?:<\d+>)?(?:\[\s*\d+\.\d+\])?(?:\[\s*[TC]\d+\])?\s*")
_CPU = re.compile(r"CPU(\d{1,5}) attaching (NULL sched-domain\.|sched-domain(?:\(s\))?:)")
_DOMAIN = re.compile(r"domain[- ](\d{1,2}): span[= ]([\d,-]*) level[= ](\S{1,32})$")
_IMBALANCE = re.compile(r"domain-(\d{1,2}): imb_numa_nr=(\d{1,10}) numa_topology_type=([012])$")
_GROUPS = re.compile(r"groups:(.*)$")
_CONTINUED = re.compile(r"\d+:\{|span=|mask=|cap=|[},]|[\d,-]+(?: |$)|\(cpu_capacity = ")
_GROUP = re.compile(r"\d+:\{ span=([\d,-]*)(?: mask=([\d,-]*))?(?: cap=(\d{1,12}))? *\}")
_OLD_GROUP = re.compile(r"(\d[\d,-]*)()(?: \(cpu_capacity = (\d{1,12})\))?")  # before 4.13


@dataclass(frozen=True)
class SchedLog:
    """The last build of the sched domains in a kernel log.

    `errors` are the kernel's messages about its domains (`ERROR:` under sched_verbose, `BUG: arch
    topology borken`), in order. Only a kernel with the series `show-predicted` prints
    `imb_numa_nr`, by CPU and level, and `numa_type`.
    """

    __pydantic_config__ = STORED
    cpus: Listed[CpuDomains]
    errors: Listed[str]
    imb_numa_nr: Annotated[Mapping[tuple[int, int], int], Field(exclude=True)] = field(
        default_factory=dict
    )
    numa_type: Annotated[NumaType | None, Field(exclude=True)] = None


@dataclass
class _Reader:
    """State of reading a log: the current CPU, its domains and the current list of groups."""

    cpus: dict[int, list[SchedDomain]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    domains: list[SchedDomain] | None = None
    listed: str | None = None
    cpu: int = 0
    imb_numa_nr: dict[tuple[int, int], int] = field(default_factory=dict)
    numa_type: NumaType | None = None
    cpulists: Cpulists = field(default_factory=Cpulists)

    def end_list(self) -> None:
        """Add the groups of the current list to the last domain."""
        if self.domains and self.listed:
            groups = self.groups(self.listed)
            last = self.domains[-1]
            self.domains[-1] = SchedDomain(last.level, last.name, last.span, last.flags, groups)
        self.listed = None

    def groups(self, listed: str) -> tuple[SchedGroup, ...]:
        """Read the groups of a domain."""
        groups = []
        pattern = _GROUP if "{" in listed else _OLD_GROUP
        for span, mask, capacity in pattern.findall(re.sub(r"\s+", " ", listed)):
            cpus = self.span(span)
            capacity_of = int(capacity) if capacity else SCHED_CAPACITY_SCALE
            groups.append(SchedGroup(cpus, self.span(mask) if mask else cpus, capacity_of))
        return tuple(groups)

    def span(self, text: str) -> tuple[int, ...]:
        """Read a CPU list of a guest; an unreadable list is empty."""
        try:
            return self.cpulists.parse(text)
        except ValueError:
            return ()

    def take(self, line: str) -> None:
        """Take one line of the log, without its prefix."""
        if line.startswith(("ERROR: ", "BUG: arch topology borken")):
            if len(self.errors) < MAX_ERRORS:
                self.errors.append(line[:500])
        elif match := _CPU.match(line):
            self.end_list()
            self.cpu = int(match[1])
            self.domains = self.cpus[self.cpu] = []
        elif match := _DOMAIN.match(line):
            self.end_list()
            if self.domains is not None:
                span = self.span(match[2])
                self.domains.append(SchedDomain(int(match[1]), match[3], span, (), ()))
        elif match := _IMBALANCE.match(line):
            self.imb_numa_nr[self.cpu, int(match[1])] = int(match[2])
            self.numa_type = NUMA_TYPES[int(match[3])]
        elif match := _GROUPS.match(line):
            self.end_list()
            self.listed = match[1]
        elif self.listed is not None and _CONTINUED.match(line) and len(self.listed) < MAX_LIST:
            self.listed += " " + line


def parse_sched_verbose(text: str) -> SchedLog:
    """Read the sched domains of a kernel log (`dmesg`) of a boot with `sched_verbose`.

    Of several builds (CPU hotplug, cpusets), the last of each CPU counts. A missing balance mask
    equals the span, a missing capacity is 1024. Other lines and unreadable lines are skipped: a log
    without domains has no CPUs.
    """
    reader = _Reader()
    for raw in text.splitlines():
        reader.take(_PREFIX.sub("", raw, count=1).rstrip())
    reader.end_list()
    cpus = tuple(CpuDomains(cpu, tuple(domains)) for cpu, domains in sorted(reader.cpus.items()))
    return SchedLog(cpus, tuple(reader.errors), reader.imb_numa_nr, reader.numa_type)


_LOG = TypeAdapter(SchedLog)


def render_domains(log: SchedLog) -> str:
    """Render the domains and errors of a log as JSON; of flags, those that it has."""
    return _LOG.dump_json(log, context=Cpulists(), exclude_defaults=True).decode() + "\n"


def parse_domains(text: bytes) -> SchedLog:
    """Parse the JSON of `render_domains`. Raises ValueError for a damaged text."""
    return _LOG.validate_json(text, context=Cpulists())
