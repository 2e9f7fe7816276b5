"""Options and arguments that several commands have."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from numalab.cli.output import ModeName
from numalab.cpulist import parse_cpu_order
from numalab.errors import UserError
from numalab.machine.model import PageKind

T = TypeVar("T")

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Connect = Annotated[str, typer.Option("--connect", help="The libvirt connection.")]
Guests = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Guests at once.")]
Compilers = Annotated[
    int | None, typer.Option("-j", "--jobs", min=1, help="Compilers at once; else one a CPU.")
]
Topology = Annotated[str, typer.Argument(help="A machine: its name in topologies/, or a file.")]
Results = Annotated[Path, typer.Argument(help="A folder below reports/, as `run` printed it.")]
Kernel = Annotated[str, typer.Option(help="A kernel of kernel-configs/.")]
Image = Annotated[str, typer.Option(help="A root file system of images/.")]
Cmdline = Annotated[
    list[str] | None, typer.Option(help="A word for the kernel command line; repeatable.")
]
Seed = Annotated[int, typer.Option(help="What varies between runs in icount mode.")]
Keep = Annotated[Path | None, typer.Option(help="Leave the run directory here.")]
Mismatch = Annotated[
    bool, typer.Option(help="Go on with a guest that is not the machine asked for.")
]
Studies = Annotated[list[str], typer.Argument(help="Studies: their names in studies/, or files.")]
Preset = Annotated[str | None, typer.Option(help="A preset of the studies, such as quick or full.")]
StudyMode = Annotated[ModeName | None, typer.Option(help="Instead of the study's own.")]
Mode = Annotated[ModeName, typer.Option(help="auto: kvm where it works.")]
Host = Annotated[Path | None, typer.Option(help="A recorded host file instead of this host.")]
Pages = Annotated[
    PageKind,
    typer.Option("--pages", help="What guest memory is made of; hugepages are reserved for it."),
]
Emulator = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The QEMU of the modes timed and icount, instead of a study's; numalab emulator list.",
    ),
]
Pin = Annotated[
    str | None,
    typer.Option("--pin", help="The host CPU of each vCPU, in order, such as 4-5,20,22."),
]
Nodes = Annotated[
    str | None,
    typer.Option("--nodes", help="The host node of each guest node, in order, such as 0,2."),
]


def in_order(text: str | None, option: str) -> tuple[int, ...]:
    """Read the numbers of such an option, in their order; none where it is absent.

    Raises UserError.
    """
    return parsed(parse_cpu_order, text or "", option)


def parsed(parse: Callable[[str], T], text: str, option: str) -> T:
    """Read an option's text. Raises UserError, with the option, where `parse` finds it wrong."""
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(str(error), key=option) from None
