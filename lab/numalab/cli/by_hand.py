"""What a person says of a guest's place on the host, in the options of `boot`, `shell`, `place`."""

from typing import Annotated

import typer

from numalab.cpulist import parse_cpu_order
from numalab.errors import UserError
from numalab.machine.model import PageKind

PagesOption = Annotated[
    PageKind,
    typer.Option("--pages", help="What guest memory is made of; hugepages are reserved for it."),
]
PinOption = Annotated[
    str | None,
    typer.Option("--pin", help="The host CPU of each vCPU, in order, such as 4-5,20,22."),
]
NodesOption = Annotated[
    str | None,
    typer.Option("--nodes", help="The host node of each guest node, in order, such as 0,2."),
]


def in_order(text: str | None, option: str) -> tuple[int, ...]:
    """Read the numbers of such an option, in their order; none where it is absent.

    Raises UserError.
    """
    try:
        return parse_cpu_order(text or "")
    except ValueError as error:
        raise UserError(str(error), key=option) from None
