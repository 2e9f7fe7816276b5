"""`numalab boot`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lab.cli.output import ModeName, emit, progress_lines, say
from lab.image.recipe import load_recipe
from lab.kernel.catalogue import find_kernel
from lab.machine.hypervisor import EMBED
from lab.study.boot import Booted, boot
from lab.study.prepare import choose_mode, prepare
from lab.topology.load import load_topology


def command(
    topology: Annotated[str, typer.Argument(help="A machine: its name in topologies/, or a file.")],
    words: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The command to run.")],
    kernel: Annotated[str, typer.Option(help="A kernel of kernel-configs/.")] = "debian-6.12",
    image: Annotated[str, typer.Option(help="A root file system of images/.")] = "base",
    mode: Annotated[ModeName, typer.Option(help="auto: kvm where it works.")] = "auto",
    seed: Annotated[int, typer.Option(help="What varies between runs in icount mode.")] = 1,
    event: Annotated[
        list[str] | None, typer.Option(help="Record this event (system:event); may be repeated.")
    ] = None,
    cmdline: Annotated[
        list[str] | None, typer.Option(help="A word for the kernel command line; repeatable.")
    ] = None,
    keep: Annotated[Path | None, typer.Option(help="Leave the run directory here.")] = None,
    connection: Annotated[str, typer.Option("--connect", help="The libvirt connection.")] = EMBED,
    allow_mismatch: Annotated[
        bool, typer.Option(help="Go on with a guest that is not the machine asked for.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run one command in a guest, print what it prints, and exit with its exit code.

    For example `numalab boot ring-4 -- numactl -H`. When the guest does not come that far, the
    exit code is one of docs/errors.md, and the message on stderr begins with `numalab:`.
    """
    machine = load_topology(topology)
    spec, recipe = find_kernel(kernel), load_recipe(image)
    with progress_lines("boot") as tell:
        prepared = prepare([spec], recipe, tell)
        choice = choose_mode(mode, prepared, connection, tell)
        booted = boot(
            machine, spec, prepared, tuple(words),
            choice=choice, seed=seed, connection=connection, events=tuple(event or ()),
            cmdline=tuple(cmdline or ()), keep=keep, allow_mismatch=allow_mismatch,
            on_beat=lambda beat: tell(f"{beat.phase}, {beat.uptime:.1f} s of guest time", None),
        )  # fmt: skip
    _print(booted, as_json)
    raise typer.Exit(booted.outcome.status)


def _print(booted: Booted, as_json: bool) -> None:
    for difference in booted.differences:
        say(f"numalab: not as predicted: {difference}")
    if as_json:
        value = {
            "status": booted.outcome.status,
            "stdout": booted.stdout.decode("utf-8", "replace"),
            "stderr": booted.stderr.decode("utf-8", "replace"),
            "wall_seconds": booted.outcome.wall_seconds,
            "guest_seconds": booted.outcome.guest_seconds,
            "kept": booted.kept,
        }
        emit(value, True, "")
        return
    sys.stdout.buffer.write(booted.stdout)
    sys.stdout.flush()
    sys.stderr.buffer.write(booted.stderr)
    sys.stderr.flush()
