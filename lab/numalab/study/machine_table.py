"""Settings of guests in a study file: memory, speed, placement, kernel parameters."""

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from numalab.cpulist import MAX_CPUS, parse_cpu_order
from numalab.document import Document
from numalab.machine.model import QUANTUM_NS, PageKind


def _listed(value: object) -> object:
    # After a BeforeValidator, pydantic treats JSON lists as Python lists.
    return tuple(value) if isinstance(value, list) else value


def _in_order(value: object) -> object:
    return parse_cpu_order(value) if isinstance(value, str) else _listed(value)


HostNumber = Annotated[int, Field(ge=0, lt=MAX_CPUS)]
KernelWord = Annotated[str, Field(pattern=r"^[!-~]+$", max_length=200)]


InstructionNs = Literal[1, 2, 4, 8, 16, 32]
SlowMotion = Literal[1, 2, 4, 8, 16]
INSTRUCTION_NS: tuple[int, ...] = get_args(InstructionNs)
SLOW_MOTION: tuple[int, ...] = get_args(SlowMotion)


class MachineTable(Document):
    """Host memory, speed, placement and kernel command line of the guests."""

    pages: PageKind = "memfd"
    """The host memory behind guest memory."""
    # Newer keys are not stored when unset: the digest of older results stays the same.
    quantum_ns: int = Field(default=QUANTUM_NS, exclude_if=lambda ns: ns == QUANTUM_NS)
    """Mode timed: guest time that a vCPU may run ahead of the other vCPUs."""
    instruction_ns: InstructionNs | None = Field(default=None, exclude_if=lambda ns: ns is None)
    """Modes timed and icount: the time of one instruction. By default 4 in timed and 8 in icount,
    less on machines with about a hundred CPUs."""
    slow_motion: SlowMotion = Field(default=1, exclude_if=lambda times: times == 1)
    """Mode timed: slow motion; see the explanation of the timed machine."""
    emulator: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """The QEMU of modes timed and icount, from `numalab emulator list`; in icount by default the
    host's own."""
    vcpu_cpus: Annotated[tuple[HostNumber, ...], BeforeValidator(_in_order)] = ()
    """The host CPU of each vCPU in order: numbers, or a text such as "4-7,20-23"."""
    nodes: tuple[HostNumber, ...] = ()
    """The host node of each guest node."""
    cmdline: tuple[KernelWord, ...] = Field(default=(), exclude_if=lambda words: not words)
    """Words for the kernel command line of every guest."""


class GuestChange(Document):
    """Settings that replace or extend those of the study."""

    tunables: dict[str, str | int] = Field(default_factory=dict)
    """Files below /proc/sys or /sys, beside those of the variant."""
    cmdline: Annotated[tuple[KernelWord, ...], BeforeValidator(_listed)] = ()
    """Words for the kernel command line, after the study's."""
    env: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the command."""
    pages: PageKind | None = None
    """Replaces `machine.pages`."""
    nodes: int | str | None = Field(default=None, exclude_if=lambda nodes: nodes is None)
    """The command runs on the CPUs of these nodes only, such as "1,4"."""
