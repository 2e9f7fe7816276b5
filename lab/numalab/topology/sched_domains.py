"""The scheduler's view of a machine: the sched domains of each CPU, and their groups.

The log parser, the sysfs parser and the prediction all give these values, so that they can be
compared.
"""

from dataclasses import dataclass

SCHED_CAPACITY_SCALE = 1024  # include/linux/sched.h: the capacity of one CPU


@dataclass(frozen=True)
class SchedGroup:
    """A group that its domain balances against the others.

    `mask` is the balance mask: the CPUs that arrive at this group (`group_balance_mask()`); the
    same as `span` unless groups overlap. `capacity` is 1024 for each whole CPU.
    """

    span: tuple[int, ...]
    mask: tuple[int, ...]
    capacity: int


@dataclass(frozen=True)
class SchedDomain:
    """One domain of one CPU. `groups` are in the kernel's order, the local group first.

    `flags` are the names of the SD_ flags that are set, ascending by bit as the kernel lists them;
    empty when the source (a log) does not say.
    """

    level: int
    name: str
    span: tuple[int, ...]
    flags: tuple[str, ...]
    groups: tuple[SchedGroup, ...]


@dataclass(frozen=True)
class CpuDomains:
    """The domains of one CPU, smallest first; none for a CPU that is not balanced."""

    cpu: int
    domains: tuple[SchedDomain, ...]
