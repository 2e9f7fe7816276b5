"""What a study says of its guests: where they lie on the host, what their kernel is told."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from numalab.cpulist import MAX_CPUS, parse_cpu_order
from numalab.document import Document
from numalab.machine.model import QUANTUM_NS, PageKind


def _listed(value: object) -> object:
    # Behind a validator of ours, pydantic no longer knows that it came from JSON.
    return tuple(value) if isinstance(value, list) else value


def _in_order(value: object) -> object:
    return parse_cpu_order(value) if isinstance(value, str) else _listed(value)


HostNumber = Annotated[int, Field(ge=0, lt=MAX_CPUS)]
KernelWord = Annotated[str, Field(pattern=r"^[!-~]+$", max_length=200)]


class MachineTable(Document):
    """What guest memory is made of, how fast a counted vCPU is, a placement by hand, kernel words.

    In mode timed vCPUs run side by side for `quantum_ns`, until the others catch up.
    `instruction_ns`: how long an instruction takes in the modes timed (4 where it is not said) and
    icount (8, less on machines with about a hundred CPUs or more). `slow_motion`: how many times
    longer all of a machine in mode timed takes, instructions, quantum and memory, while the
    kernel's own clocks go on as ever; so a load has as much time for ticks, balancing and scans as
    a longer one, and costs no more to emulate.
    `emulator` is the QEMU of these modes (`numalab emulator list`): in icount the host's own where
    none is said.

    `vcpu_cpus` is the host CPU of each vCPU, in order: numbers, or a text such as "4-7,20-23".
    `nodes` is the host node of each guest node. They hold for every topology of the study.
    `cmdline` are words that every guest's kernel gets, also the one that tries KVM.
    """

    pages: PageKind = "memfd"
    # What was added since the first results is left out of the stored file where it is not set, so
    # that older results stay the study's own.
    quantum_ns: int = Field(default=QUANTUM_NS, exclude_if=lambda ns: ns == QUANTUM_NS)
    instruction_ns: Literal[1, 2, 4, 8, 16, 32] | None = Field(
        default=None, exclude_if=lambda ns: ns is None
    )
    slow_motion: Literal[1, 2, 4, 8, 16] = Field(default=1, exclude_if=lambda times: times == 1)
    emulator: str | None = Field(default=None, exclude_if=lambda name: name is None)
    vcpu_cpus: Annotated[tuple[HostNumber, ...], BeforeValidator(_in_order)] = ()
    nodes: tuple[HostNumber, ...] = ()
    cmdline: tuple[KernelWord, ...] = Field(default=(), exclude_if=lambda words: not words)


class GuestChange(Document):
    """In what the guests of one use of a workload differ from those of the others.

    `tunables` are written beside those of the variant, words of `cmdline` come after the study's;
    `env` is added to the command's environment, which runs on the CPUs of `nodes` ("1,4") alone.
    """

    tunables: dict[str, str | int] = Field(default_factory=dict)
    cmdline: Annotated[tuple[KernelWord, ...], BeforeValidator(_listed)] = ()
    env: dict[str, str] = Field(default_factory=dict)
    pages: PageKind | None = None
    nodes: int | str | None = Field(default=None, exclude_if=lambda nodes: nodes is None)
