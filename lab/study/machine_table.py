"""The `[machine]` table of a study: how its guests lie on the host, where that is not planned."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from lab.cpulist import MAX_CPUS, parse_cpu_order
from lab.document import Document
from lab.machine.machine import PageKind


def _in_order(value: object) -> object:
    if isinstance(value, list):  # behind this, pydantic no longer knows that it came from JSON
        return tuple(value)
    return parse_cpu_order(value) if isinstance(value, str) else value


HostNumber = Annotated[int, Field(ge=0, lt=MAX_CPUS)]


class MachineTable(Document):
    """What guest memory is made of, and a placement by hand.

    `vcpu_cpus` is the host CPU of each vCPU, in order: numbers, or a text such as "4-7,20-23".
    `nodes` is the host node of each guest node. They hold for every topology of the study.
    """

    pages: PageKind = "memfd"
    vcpu_cpus: Annotated[tuple[HostNumber, ...], BeforeValidator(_in_order)] = ()
    nodes: tuple[HostNumber, ...] = ()
