"""Options and arguments that several commands share."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, TypeVar

import typer

from numalab.cli import completion
from numalab.cli.output import ModeName
from numalab.cpulist import parse_cpu_order
from numalab.errors import UserError
from numalab.files import reading
from numalab.machine.model import PageKind, check_by_hand
from numalab.qemu.cmdline import check_words
from numalab.topology.topology import Topology as Machine

T = TypeVar("T")
Numbers = tuple[int, ...]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Connect = Annotated[str, typer.Option("--connect", help="URI of the libvirt connection.")]
Guests = Annotated[
    int | None, typer.Option("--jobs", "-j", min=1, help="Number of guests that run at once.")
]
Compilers = Annotated[
    int | None,
    typer.Option("-j", "--jobs", min=1, help="Number of compilers at once; default: CPUs."),
]
Topology = Annotated[
    str,
    typer.Argument(
        help="Name of a topology, or a topology file.", autocompletion=completion.topologies
    ),
]
Results = Annotated[Path, typer.Argument(help="Folder of results, as printed by `numalab run`.")]
Kernel = Annotated[
    str,
    typer.Option(
        help="Name of a kernel from `numalab kernel list`.", autocompletion=completion.kernels
    ),
]
Image = Annotated[
    str,
    typer.Option(
        help="Name of an image from `numalab image list`.", autocompletion=completion.images
    ),
]
Cmdline = Annotated[list[str] | None, typer.Option(help="Kernel parameter to add; repeatable.")]
Seed = Annotated[int, typer.Option(help="Seed of the run (not kvm).")]
Cold = Annotated[
    bool, typer.Option("--cold", help="Boot every guest, even if there is a saved one.")
]
Keep = Annotated[Path | None, typer.Option(help="Keep the run directory in this folder.")]
Reach = Annotated[
    str | None,
    typer.Option(metavar="PATCH", help="Count executions of the changed lines."),
]
Mismatch = Annotated[bool, typer.Option(help="Continue if the guest differs from its topology.")]
Studies = Annotated[
    list[str],
    typer.Argument(help="Names of studies, or study files.", autocompletion=completion.studies),
]
Preset = Annotated[str | None, typer.Option(help="Preset of the studies, such as quick or full.")]
StudyMode = Annotated[ModeName | None, typer.Option(help="Override the mode of the study.")]
Mode = Annotated[ModeName, typer.Option(help="Emulation mode; auto selects kvm if it works.")]
Host = Annotated[
    Path | None, typer.Option(help="Host recorded by `host show --json`; default: this host.")
]
Pages = Annotated[
    PageKind,
    typer.Option("--pages", help="Backing of guest memory; hugepages are reserved."),
]
Emulator = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Emulator for modes timed and icount, from `numalab emulator list`.",
    ),
]
Pin = Annotated[
    str | None,
    typer.Option("--pin", help="Host CPU of each vCPU, in order, such as 4-5,20,22."),
]
Nodes = Annotated[
    str | None,
    typer.Option("--nodes", help="Host node of each node of the file, in order, such as 0,2."),
]

_PLACEMENT = {"host_cpus": "--cpus", "vcpu_cpus": "--pin", "nodes": "--nodes"}


def by_hand(machine: Machine, pin: str | None, nodes: str | None) -> tuple[Numbers, Numbers]:
    """Return the host CPU of each vCPU and the host node of each node. Raises UserError."""
    vcpu_cpus, host_nodes = in_order(pin, "--pin"), in_order(nodes, "--nodes")
    with named_placement():
        check_by_hand(machine, vcpu_cpus, host_nodes)
    return vcpu_cpus, host_nodes


def in_order(text: str | None, option: str) -> Numbers:
    """Return the numbers of --pin or --nodes in their order. Raises UserError."""
    if text is not None and not text.strip():
        raise UserError("is empty", key=option)
    return parsed(parse_cpu_order, text or "", option)


def parsed(parse: Callable[[str], T], text: str, option: str) -> T:
    """Return the parsed text of an option. Raises UserError where `parse` fails."""
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(str(error), key=option) from None


@contextmanager
def named_placement() -> Iterator[None]:
    """Name the options in errors of a placement by hand, not the keys of a study."""
    try:
        yield
    except UserError as error:
        key = _PLACEMENT.get(error.key or "", error.key)
        raise UserError(error.message, file=error.file, key=key, choices=error.choices) from None


def file_to_write(path: Path | None, option: str) -> None:
    """Check before a long command that a file can be written. Raises UserError."""
    if path is None:
        return
    with reading(path):
        if path.is_dir():
            raise UserError("is a folder; name a file", file=path, key=option)
        if path.exists() and not path.is_file():
            raise UserError("is a device, a pipe or a socket", file=path, key=option)
    folder_to_write(path.parent, option)


def folder_to_write(path: Path | None, option: str) -> None:
    """Check before a long command that a folder is there or can be made, and takes files.

    Raises UserError.
    """
    if path is None:
        return
    with reading(path):
        nearest = next(part for part in (path, *path.absolute().parents) if os.path.lexists(part))
        if not nearest.is_dir():
            raise UserError("is there, and is no folder", file=nearest, key=option)
        try:
            TemporaryFile(dir=nearest).close()
        except OSError:
            raise UserError("cannot write to this folder", file=nearest, key=option) from None


def kernel_words(words: Sequence[str] | None) -> tuple[str, ...]:
    """Return the words of --cmdline. Raises UserError for one that the kernel would split."""
    check_words(words or (), "--cmdline")
    return tuple(words or ())


def refuse_given(context: typer.Context, when: str, *parameters: str) -> None:
    """Raise UserError for an option of this command that was given, and has no effect."""
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in parameters and source is not None and source.name == "COMMANDLINE":
            raise UserError(f"has no effect {when}", key=parameter.opts[0])
