"""`numalab kernel try`: from a patch to a running guest."""

from dataclasses import replace
from typing import Annotated

import typer

from numalab.campaign.boot import boot, guest
from numalab.campaign.prepare import choose_mode, prepare
from numalab.cli import options
from numalab.cli.guest.boot import show_booted
from numalab.cli.output import progress_lines, say
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_build import BuiltKernel
from numalab.kernel.kernel_specs import find_kernel
from numalab.kernel.patch_series import with_series
from numalab.qemu.hypervisor import EMBED
from numalab.topology.load import load_topology


def command(
    patch: Annotated[
        str,
        typer.Argument(help="A patch, a mailbox, a folder, a range FROM..TO or a series' name."),
    ],
    words: Annotated[
        list[str] | None, typer.Argument(metavar="-- CMD...", help="The command to run.")
    ] = None,
    base: Annotated[str, typer.Option(help="The kernel that it is for.")] = "debian-6.12",
    topology: Annotated[str, typer.Option(help="The machine to boot.")] = "ring-4",
    image: options.Image = "base",
    mode: options.Mode = "auto",
    seed: options.Seed = 1,
    keep: options.Keep = None,
    connection: options.Connect = EMBED,
    allow_mismatch: options.Mismatch = False,
    as_json: options.Json = False,
) -> None:
    """Apply a patch, build the kernel, boot it and run one command in it (`uname -a`).

    For example `numalab kernel try --base debian-6.12 my.patch --topology ring-4 -- dmesg`. What
    was built before is not built again, and a patch on top of a kernel that was takes seconds.
    """
    model, recipe = load_topology(topology), load_recipe(image)
    spec = with_series(find_kernel(base), patch)
    with progress_lines("try") as tell:
        prepared = prepare([spec], recipe, on_progress=tell)
        tell_time(prepared.kernels[spec.name])
        choice = choose_mode(mode, prepared, connection, tell)
        booted = boot(
            replace(guest(model, spec.name, prepared, choice), seed=seed),
            spec, tuple(words or ("uname", "-a")), connection=connection, keep=keep,
            allow_mismatch=allow_mismatch,
            on_beat=lambda beat: tell(f"{beat.phase}, {beat.uptime:.1f} s of guest time", None),
        )  # fmt: skip
    show_booted(booted, as_json)
    raise typer.Exit(booted.outcome.status)


def tell_time(built: BuiltKernel) -> None:
    """Say on stderr how long a build took, beside the first one in the same tree."""
    line = f"{built.spec_name}: built in {built.seconds:.0f} s"
    if built.first_name not in ("", built.spec_name):
        line += f" ({built.first_name}, the first of this source, took {built.first_seconds:.0f} s)"
    say(line)
