"""`numalab doctor`."""

import shlex
from typing import Annotated

import typer
from rich.table import Table

from numalab.cli.output import emit, progress_lines, say
from numalab.guest.doctor import Check, checks
from numalab.guest.install import commands_for, install
from numalab.guest.kvm import pick_mode
from numalab.guest.verdicts import forget_verdicts
from numalab.image.build import built_image
from numalab.image.recipe import load_recipe
from numalab.kernel.build import built_kernel
from numalab.kernel.catalogue import find_kernel


def command(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Install what is missing, with apt and pip.")
    ] = False,
    probe_again: Annotated[
        bool, typer.Option("--probe-again", help="Try anew whether KVM runs a guest here.")
    ] = False,
) -> None:
    """Say what this host has and lacks; each miss comes with the command that fixes it.

    `MISS` is what every run needs, and ends with exit code 3; `lacks` only some uses need.
    """
    if probe_again:
        _probe_again()
    found = checks()
    if fix:
        for line in commands_for(found):
            say(f"+ {shlex.join(line)}")
            install(line)
        found = checks()
    emit(found, as_json, _table(found))
    if any(check.needed and not check.ok for check in found):
        raise typer.Exit(3)


def _probe_again() -> None:
    """Try KVM with the kernel and image of `numalab boot`; later, where they are not yet built."""
    forget_verdicts()
    kernel, image = built_kernel(find_kernel("debian-6.12")), built_image(load_recipe("base"))
    if kernel is not None and image is not None:
        with progress_lines("doctor") as tell:
            pick_mode("auto", kernel.bzimage, image.path, on_progress=tell)


def _table(found: tuple[Check, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "what", "found"):
        table.add_column(heading, overflow="fold")
    for check in found:
        text = check.found if check.ok else f"{check.found}\n  hint: {check.hint}"
        table.add_row(_mark(check), check.name, text)
    return table


def _mark(check: Check) -> str:
    if check.ok:
        return "ok"
    return "MISS" if check.needed else "lacks"
