"""`numalab shell`."""

import math
import os
import shutil
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from numalab.campaign.boot import boot, guest, shell
from numalab.campaign.build import build, choose_mode
from numalab.cli import options
from numalab.cli.guest.boot import printed_if_lost, read_input, show_booted
from numalab.cli.inputs.overlay import OverlayOption, overlaid
from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.output import ModeName, progress_lines, say
from numalab.errors import GuestLost, HostError
from numalab.guest.terminal import READY, Terminal
from numalab.guest.watch import Limits
from numalab.machine.model import Job
from numalab.places import cache_dir
from numalab.qemu.hypervisor import EMBED
from numalab.scratch import scratch_folder
from numalab.topology.load import load_topology
from numalab.workload.host_program import Surroundings, guest_command

_LONGEST_SOCKET = 107  # unix(7)


def command(
    topology: options.Topology,
    kernel: options.Kernel = "debian-6.12",
    image: options.Image = "base",
    overlay: OverlayOption = None,
    mode: Annotated[
        ModeName, typer.Option(help="Emulation mode; auto selects kvm if it works, else tcg.")
    ] = "auto",
    gdb: Annotated[
        bool,
        typer.Option("--gdb", help="Print the command that attaches a debugger to the kernel."),
    ] = False,
    cmdline: options.Cmdline = None,
    pages: options.Pages = "memfd",
    pin: options.Pin = None,
    nodes: options.Nodes = None,
    connection: options.Connect = EMBED,
) -> None:
    """Boot a guest and open a shell in it.

    `exit` or Ctrl-D ends the guest; Ctrl-] also ends a guest that hangs. Ctrl-C goes to the guest.
    Nothing is recorded. If standard input is no terminal, its lines are run, and only what they
    print is printed.
    """
    model = load_topology(topology)
    spec, recipe = chosen_kernel(kernel), overlaid(image, overlay)
    added = options.kernel_words(cmdline)
    vcpu_cpus, host_nodes = options.by_hand(model, pin, nodes)
    with progress_lines("shell") as tell:
        prepared = build([spec], recipe, on_progress=tell)
        # Typed input is never the same twice.
        choice = choose_mode(mode, prepared, connection, tell, words=added, repeatable=False)
    words = (*added, *(["nokaslr"] if gdb else []))
    if not gdb and not sys.stdin.isatty():
        machine = replace(
            guest(model, spec.name, prepared, choice),
            extra_cmdline=words, pages=pages, vcpu_cpus=vcpu_cpus, host_nodes=host_nodes,
        )  # fmt: skip
        lines = guest_command(["bash"], lambda _: True, Surroundings(stdin=read_input("-")))
        with options.named_placement(), printed_if_lost(as_json=False):
            booted = boot(machine, spec, lines.argv, connection=connection, files=lines.files)
        show_booted(booted, as_json=False)
        raise typer.Exit(booted.outcome.status)
    with options.named_placement(), scratch_folder(cache_dir("boots"), "shell-") as scratch:
        socket = _socket(scratch) if gdb else None
        machine = replace(
            guest(model, spec.name, prepared, choice),
            extra_cmdline=words, pages=pages, vcpu_cpus=vcpu_cpus, host_nodes=host_nodes,
            gdb=socket,
        )  # fmt: skip
        say(f"mode {choice.mode}; exit or Ctrl-D ends the guest, and Ctrl-] at any time")
        if socket is not None:
            symbols = prepared.kernels[spec.name].symbols or "VMLINUX"
            say(f"gdb: gdb -ex 'target remote {socket}' {symbols}")
        silence = math.inf if gdb else Limits.silence  # stopped by a debugger, it says nothing
        limits = Limits(silence=silence, total=math.inf)
        terminal = Terminal(sys.stdin.fileno(), sys.stdout.fileno())
        try:
            with _raw(terminal.keyboard):
                shell(
                    machine, _job(topology), terminal.joined, connection=connection, limits=limits
                )
        except GuestLost as lost:
            if not terminal.left:
                raise
            if lost.kept is not None:
                shutil.rmtree(lost.kept, ignore_errors=True)


def _job(name: str) -> Job:
    """Return the job that runs a shell on a terminal of the size of this one."""
    size = os.get_terminal_size() if sys.stdout.isatty() else os.terminal_size((80, 24))
    ready = "".join(f"\\{byte:03o}" for byte in READY)
    script = f"stty rows {size.lines} columns {size.columns}; printf '{ready}'; exec bash --norc -i"
    prompt = Path(name).stem
    env = {"TERM": os.environ.get("TERM", "linux"), "PS1": rf"{prompt}:\w# "}
    return Job(argv=("sh", "-c", script), env=env, mode="shell")


def _socket(folder: Path) -> Path:
    path = folder / "gdb"
    if len(str(path)) > _LONGEST_SOCKET:
        raise HostError(
            f"{path} is too long for a socket", hint="set NUMALAB_CACHE to a short path"
        )
    return path


@contextmanager
def _raw(keyboard: int) -> Iterator[None]:
    """Pass every key to the guest, Ctrl-C too."""
    if not os.isatty(keyboard):
        yield
        return
    before = termios.tcgetattr(keyboard)
    try:
        tty.setraw(keyboard)
        yield
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
