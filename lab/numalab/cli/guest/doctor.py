"""`numalab doctor`."""

import shlex
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from numalab.campaign.boot import boot, guest
from numalab.campaign.build import build, choose_mode
from numalab.cli import options
from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.output import emit, progress_lines, say
from numalab.doctor.checks import Check, checks
from numalab.doctor.install import commands_for, install
from numalab.doctor.private import names_here
from numalab.doctor.report import ProbeResult, render_report
from numalab.errors import LabError, UserError, shown
from numalab.files import write_json
from numalab.guest.kvm import pick_mode
from numalab.guest.verdicts import any_verdict, forget_verdicts, unusable_device
from numalab.guest.watch import Limits
from numalab.host.read import read_host, slowness
from numalab.image.image_artifact import built_image
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_build import built_kernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.machine.model import PageKind
from numalab.progress import Progress
from numalab.qemu.hypervisor import EMBED
from numalab.topology.load import load_topology

_PROBED = "ring-2"
_PLANNED = ("ring-2", "ring-4", "mesh-8")
# A guest that runs `true` ends within seconds; one that hangs must fail soon.
_LIMITS = Limits(boot=60.0, silence=60.0, total=600.0)


def command(
    as_json: options.Json = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Install missing packages with apt and pip.")
    ] = False,
    probe_again: Annotated[
        bool,
        typer.Option("--probe-again", help="Test KVM again instead of using the stored result."),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(help="Boot a guest in mode kvm and write a report of this host to this file."),
    ] = None,
    kernel: Annotated[str, typer.Option(help="Kernel of the guest of --report.")] = "debian-6.12",
    image: Annotated[str, typer.Option(help="Image of the guest of --report.")] = "base",
    pages: options.Pages = "memfd",
    cmdline: Annotated[
        list[str] | None,
        typer.Option(help="Kernel parameter of the guest of --report; repeatable."),
    ] = None,
) -> None:
    """Check this host and print the command that fixes each problem.

    `MISS`: every run needs it, and the exit code is 3. `lacks`: only some commands need it.
    `--report FILE` boots a guest of two nodes if KVM works, and writes JSON: hardware, versions,
    verdicts, plans and the proof of placement, without names and paths.
    """
    words = options.kernel_words(cmdline)
    options.file_to_write(report, "--report")
    if probe_again:
        _probe_again()
    results = checks()
    if fix:
        for line in commands_for(results):
            say(f"+ {shlex.join(line)}")
            install(line)
        results = checks()
    if report is not None:
        if not report.absolute().parent.is_dir():
            raise UserError("there is no such folder", file=report.parent, key="--report")
        _report(report, kernel, image, pages, words)
        results = checks()
    emit(results, as_json, _table(results))
    if any(check.needed and not check.ok for check in results):
        raise typer.Exit(3)


def _probe_again() -> None:
    """Test KVM with the kernel and image of `numalab boot`, if they are built."""
    forget_verdicts()
    kernel, image = built_kernel(find_kernel("debian-6.12")), built_image(load_recipe("base"))
    if kernel is not None and image is not None:
        with progress_lines("doctor") as tell:
            pick_mode("auto", kernel.bzimage, image.path, on_progress=tell)


def _report(path: Path, kernel: str, image: str, pages: PageKind, words: tuple[str, ...]) -> None:
    with progress_lines("doctor") as tell:
        probe = _probe(kernel, image, pages, words, tell)
    try:
        own = version("numalab")
    except PackageNotFoundError:
        own = "not installed"
    topologies = [load_topology(name) for name in _PLANNED]
    value = render_report(
        read_host(), checks(), any_verdict(), topologies, probe, version=own, names=names_here()
    )
    write_json(path, value)
    say(f"read {shown(path)} before you send it: it must hold no name and no path of yours")


def _probe(
    kernel: str, image: str, pages: PageKind, words: tuple[str, ...], tell: Progress
) -> ProbeResult:
    """Boot a guest in mode kvm; the result holds the error where that fails."""
    nothing = ProbeResult(_PROBED, pages)
    unusable = unusable_device()
    if unusable:
        return replace(nothing, failed=str(unusable))
    try:
        spec = chosen_kernel(kernel)
        built = build([spec], load_recipe(image), on_progress=tell)
        choice = choose_mode("auto", built, EMBED, tell, words=words)
        if choice.mode != "kvm":
            return replace(nothing, failed=choice.reason)
        tell("booting a guest in kvm mode", None)
        machine = replace(
            guest(load_topology(_PROBED), kernel, built, choice), extra_cmdline=words, pages=pages
        )
        booted = boot(
            machine, spec, ("true",), allow_mismatch=True,
            limits=_LIMITS.on_a_host(slowness()),
        )  # fmt: skip
    except LabError as error:
        return replace(nothing, failed=str(error))
    outcome = booted.outcome
    return replace(
        nothing, status=outcome.status, wall_seconds=outcome.wall_seconds,
        guest_seconds=outcome.guest_seconds, timing=outcome.timing, proof=outcome.proof,
        notes=outcome.notes, differs=booted.differences,
    )  # fmt: skip


def _table(results: tuple[Check, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "what", "found"):
        table.add_column(heading, overflow="fold")
    for check in results:
        text = check.found if check.ok else f"{check.found}\n  hint: {check.hint}"
        table.add_row(_mark(check), check.name, text)
    return table


def _mark(check: Check) -> str:
    if check.ok:
        return "ok"
    return "MISS" if check.needed else "lacks"
