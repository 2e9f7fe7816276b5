"""The scheduler's view of a machine: the sched domains of each CPU, and their groups.

The log parser, the sysfs parser and the prediction give these values, results store them as JSON,
and reports draw them.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationInfo,
    WithJsonSchema,
)

from numalab.cpulist import Cpulists, format_cpulist
from numalab.document import Listed

STORED = ConfigDict(extra="ignore", strict=True)
SCHED_CAPACITY_SCALE = 1024  # include/linux/sched.h: the capacity of one CPU


def _cpus(value: object, info: ValidationInfo) -> object:
    lists: Cpulists | None = info.context
    return lists.parse(value) if lists and isinstance(value, str) else value


def _render_cpus(cpus: tuple[int, ...], info: SerializationInfo) -> object:
    return format_cpulist(cpus) if info.context else list(cpus)


# A set of CPUs is a cpulist in domains.json, where `Cpulists()` is the context, and a list of
# numbers in report.json.
CpuSet = Annotated[
    tuple[int, ...],
    BeforeValidator(_cpus),
    PlainSerializer(_render_cpus),
    WithJsonSchema({"items": {"type": "integer"}, "type": "array"}, mode="serialization"),
]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]


@dataclass(frozen=True)
class SchedGroup:
    """A group that its domain balances against the others.

    `mask` is the balance mask: the CPUs that arrive at this group (`group_balance_mask()`); the
    same as `span` unless groups overlap. `capacity` is 1024 for each whole CPU.
    """

    __pydantic_config__ = STORED
    span: CpuSet
    mask: CpuSet
    capacity: Count


@dataclass(frozen=True)
class SchedDomain:
    """One domain of one CPU. `groups` are in the kernel's order, the local group first.

    `flags` are the names of the SD_ flags that are set, ascending by bit as the kernel lists them;
    empty when the source (a log) does not say.
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
