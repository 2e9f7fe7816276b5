"""`numalab boot`."""

import sys
from dataclasses import replace
from typing import Annotated

import typer

from numalab.campaign.boot import Booted, boot, guest
from numalab.campaign.build import build, choose_mode
from numalab.cli import options
from numalab.cli.inputs.overlay import OverlayOption, overlaid
from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.output import emit, pass_on, picked, progress_lines, say
from numalab.guest.run import RemarkKind
from numalab.machine.model import check_by_hand
from numalab.qemu.hypervisor import EMBED
from numalab.reach.counting import check_countable
from numalab.reach.merge import merged
from numalab.reach.prepare import plan_reach
from numalab.reach.text import reach_lines
from numalab.topology.load import load_topology

# `numalab place` and `numalab host show` print these remarks.
_KNOWN_BEFORE = (RemarkKind.PLAN, RemarkKind.DISTURBED)


def command(
    topology: options.Topology,
    words: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Command to run.")],
    kernel: options.Kernel = "debian-6.12",
    image: options.Image = "base",
    overlay: OverlayOption = None,
    mode: options.Mode = "auto",
    seed: options.Seed = 1,
    event: Annotated[
        list[str] | None, typer.Option(help="Event to record, as system:event; repeatable.")
    ] = None,
    cmdline: options.Cmdline = None,
    pages: options.Pages = "memfd",
    pin: options.Pin = None,
    nodes: options.Nodes = None,
    keep: options.Keep = None,
    connection: options.Connect = EMBED,
    allow_mismatch: options.Mismatch = False,
    reach: options.Reach = None,
    as_json: options.Json = False,
) -> None:
    """Run a command in a guest, print its output, and exit with its exit code.

    For example `numalab boot ring-4 -- numactl -H`. If the guest fails before the command, the
    message on stderr begins with `numalab:`, and the exit code is the code of that error.
    """
    model = load_topology(topology)
    spec, recipe = chosen_kernel(kernel), overlaid(image, overlay)
    vcpu_cpus, host_nodes = options.in_order(pin, "--pin"), options.in_order(nodes, "--nodes")
    check_by_hand(model, vcpu_cpus, host_nodes)
    with progress_lines("boot") as tell:
        prepared = build([spec], recipe, on_progress=tell)
        choice = choose_mode(mode, prepared, connection, tell, words=cmdline or ())
        table = None
        if reach is not None:
            check_countable(choice.mode)
            table = plan_reach((spec,), reach, tell).tables[prepared.kernels[spec.name].digest]
        machine = replace(
            guest(model, spec.name, prepared, choice, trace_mib=32 if event else 0),
            seed=seed, extra_cmdline=tuple(cmdline or ()), pages=pages,
            vcpu_cpus=vcpu_cpus, host_nodes=host_nodes,
        )  # fmt: skip
        booted = boot(
            machine, spec, tuple(words), connection=connection, events=tuple(event or ()),
            keep=keep, allow_mismatch=allow_mismatch, table=table,
            on_beat=lambda beat: tell(f"{beat.phase}, {beat.uptime:.1f} s of guest time", None),
        )  # fmt: skip
    show_booted(booted, as_json)
    raise typer.Exit(booted.outcome.status)


def show_booted(booted: Booted, as_json: bool) -> None:
    """Print the stdout and stderr of a command in a guest."""
    for remark in booted.outcome.remarks:
        if remark.kind not in _KNOWN_BEFORE:
            say(f"numalab: {remark.text}")
    for difference in booted.differences:
        say(f"numalab: not as predicted: {difference}")
    if as_json:
        value = {
            "status": booted.outcome.status,
            "stdout": booted.stdout.decode("utf-8", "replace"),
            "stderr": booted.stderr.decode("utf-8", "replace"),
            **picked(booted.outcome, "wall_seconds", "guest_seconds", "timing", "proof", "notes"),
            "kept": booted.kept,
            "reach": booted.reach and booted.reach.model_dump(mode="json"),
        }
        emit(value, True, "")
        return
    pass_on(booted.stdout, sys.stdout)
    pass_on(booted.stderr, sys.stderr)
    if booted.reach is not None:
        for line in reach_lines(merged([("", booted.reach)])):
            say(line)
