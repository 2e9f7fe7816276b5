"""`numalab boot`."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from numalab.campaign.boot import Booted, boot, check_host_root, guest
from numalab.campaign.build import build, choose_mode
from numalab.cli import options
from numalab.cli.inputs.overlay import OverlayOption, PackageOption, overlaid
from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.output import emit, pass_on, picked, progress_lines, say
from numalab.errors import GuestLost, LabError, UserError, WorkloadFailed
from numalab.files import check_free, left_by_guest, open_regular, reading, write_text
from numalab.image.image_artifact import has_program
from numalab.machine.model import MODES, QUANTUM_NS, SHIFTS, check_quantum
from numalab.qemu.hypervisor import EMBED
from numalab.run_dir import RunDir
from numalab.study.machine_table import INSTRUCTION_NS, SLOW_MOTION
from numalab.topology.load import load_topology
from numalab.topology.memory.timing import in_slow_motion
from numalab.topology.topology import Topology
from numalab.workload.exit_status import explain_status
from numalab.workload.host_program import Surroundings, guest_command
from numalab.workload.luggage import MOST_BYTES
from numalab.workload.starters import MARKED

BETWEEN_BARRIERS = "barriers"  # a value of --locality


def command(
    topology: options.Topology,
    words: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="Command to run.")],
    kernel: options.Kernel = "debian-6.12",
    image: options.Image = "base",
    overlay: OverlayOption = None,
    package: PackageOption = None,
    add: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE[:TARGET]",
            help="File or folder to copy into the working folder; repeatable.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Environment variable; repeatable."),
    ] = None,
    cwd: Annotated[
        str | None,
        typer.Option(help="Working folder: below the current one, or a path of the guest."),
    ] = None,
    stdin: Annotated[
        str | None, typer.Option(metavar="FILE", help="Standard input; - is that of this command.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.1, help="SIGTERM after these seconds of guest time, SIGKILL 5 s later."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for files the command writes to $OUT; no hidden ones, no links."),
    ] = None,
    host_root: Annotated[
        bool,
        typer.Option(
            "--host-root", help="Mount the root folder of this host in the guest, read-only."
        ),
    ] = False,
    mode: options.Mode = "auto",
    seed: options.Seed = 1,
    instruction_ns: Annotated[
        int | None,
        typer.Option(help="Time of an instruction in modes timed and icount: 1, 2, 4, ... 32 ns."),
    ] = None,
    quantum: Annotated[
        int | None,
        typer.Option(metavar="NS", help="Mode timed: how far a vCPU may run ahead of the others."),
    ] = None,
    slow_motion: Annotated[
        int, typer.Option(help="Mode timed: 2, 4, 8 or 16 times slower instructions and memory.")
    ] = 1,
    locality: Annotated[
        str | None,
        typer.Option(
            metavar="MARK,MARK",
            help="Mode timed: memory accesses of `command`, between `barriers` or between marks.",
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write a page of --locality to this file.")
    ] = None,
    event: Annotated[
        list[str] | None, typer.Option(help="Event to record, as system:event; repeatable.")
    ] = None,
    cmdline: options.Cmdline = None,
    pages: options.Pages = "memfd",
    pin: options.Pin = None,
    nodes: options.Nodes = None,
    keep: options.Keep = None,
    cold: options.Cold = False,
    connection: options.Connect = EMBED,
    allow_mismatch: options.Mismatch = False,
    reach: options.Reach = None,
    as_json: options.Json = False,
) -> None:
    """Run a command in a guest, print its output, and exit with its exit code.

    For example `numalab boot ring-4 -- numactl -H`. A program by its path, such as `./prog`, is
    copied into the guest with its libraries and the current folder; with `--host-root`, the guest
    has all files of this host that you may read. If the guest fails before the
    command ends, the exit code is the code of that error, and `--json` prints `error`, not
    `status`.
    """
    model = load_topology(topology)
    around = Surroundings(
        tuple(add or ()), _variables(env or ()), cwd, read_input(stdin), timeout,
        returns=out is not None, host_root=host_root,
    )  # fmt: skip
    spec, recipe = chosen_kernel(kernel), overlaid(image, overlay, package)
    added = options.kernel_words(cmdline)
    vcpu_cpus, host_nodes = options.by_hand(model, pin, nodes)
    between = None if locality is None else _marks(locality)
    if page is not None and between is None:
        raise UserError("needs --locality", key="--page")
    if not words[0]:
        raise UserError("the first word of the command is empty", key="CMD")
    options.file_to_write(page, "--page")
    options.folder_to_write(out, "--out")
    if out is not None:
        check_free(out, "--out")
    with options.named_placement(), progress_lines("boot") as tell:
        prepared = build([spec], recipe, on_progress=tell)
        if host_root:
            check_host_root(prepared.kernels[spec.name])
        taken = guest_command(
            [MARKED, *words] if between else words,
            partial(has_program, prepared.image.path),
            around,
        )
        for remark in taken.remarks:
            say(f"numalab: {remark}")
        choice = choose_mode(
            mode, prepared, connection, tell, words=added, repeatable=not host_root
        )
        table = None
        if reach is not None:
            from numalab.reach.counting import check_countable  # noqa: PLC0415 - rarely used
            from numalab.reach.prepare import plan_reach  # noqa: PLC0415

            check_countable(choice.mode)
            table = plan_reach((spec,), reach, tell).tables[prepared.kernels[spec.name].digest]
        _check_speed(choice.mode, instruction_ns, quantum, slow_motion)
        if between is not None and choice.mode != "timed":
            raise UserError(
                f"mode {choice.mode} counts no accesses", key="--locality",
                choices=("--mode timed",),
            )  # fmt: skip
        machine = replace(
            guest(model, spec.name, prepared, choice, trace_mib=32 if event or between else 0),
            topology=in_slow_motion(model, slow_motion), slow_motion=slow_motion,
            quantum_ns=QUANTUM_NS if quantum is None else quantum,
            icount_shift=instruction_ns.bit_length() - 1 if instruction_ns else None,
            seed=seed, cold=cold, extra_cmdline=added, pages=pages,
            host_root=host_root, vcpu_cpus=vcpu_cpus, host_nodes=host_nodes,
        )  # fmt: skip
        if between is not None:
            from numalab.locality.count_places import count_places  # noqa: PLC0415 - rarely used

            symbols = prepared.kernels[spec.name].symbols
            barriers = locality == BETWEEN_BARRIERS
            machine, taken = count_places(machine, symbols, taken, barriers=barriers)
        with printed_if_lost(as_json=as_json):
            booted = boot(
            machine, spec, taken.argv, connection=connection, events=tuple(event or ()),
            keep=keep, allow_mismatch=allow_mismatch, table=table, files=taken.files, returned=out,
            between=between,
            on_beat=lambda beat: tell(f"{beat.phase}, {beat.uptime:.1f} s of guest time", None),
        )  # fmt: skip
    show_booted(booted, as_json)
    if why := explain_status(words, around, booted.outcome.status):
        say(f"numalab: {why}")
    if booted.locality is not None:
        put_page(page, words, model, booted)
    raise typer.Exit(booted.outcome.status)


def put_page(page: Path | None, words: list[str], model: Topology, booted: Booted) -> None:
    """Write the page of the accesses, if one is wanted.

    Without any, the reasons were printed: raises WorkloadFailed, unless the command failed, too.
    """
    if booted.locality is None or not booted.locality.window_ms:
        message = "--locality: no accesses were counted"
        message += f"; {page} is not written" if page is not None else ""
        if not booted.outcome.status:
            raise WorkloadFailed(message)
        say(f"numalab: {message}")
    elif page is not None:
        from numalab.report.page.locality import render_locality  # noqa: PLC0415 - rarely used

        write_text(page, render_locality(words, model, booted.locality))


@contextmanager
def printed_if_lost(*, as_json: bool) -> Iterator[None]:
    """Print notes, and what the command had printed, when an error ends a boot."""
    try:
        yield
    except LabError as error:
        for note in error.notes:
            say(f"numalab: {note}")
        printed = list(error.printed)
        if isinstance(error, GuestLost) and error.kept is not None:
            run = RunDir(error.kept)
            for place, file in enumerate((run.stdout, run.stderr)):
                with suppress(WorkloadFailed):  # it left none
                    printed[place] = left_by_guest(file)
        for data, stream in zip(printed, (sys.stdout, sys.stderr), strict=True):
            if data and not as_json:
                pass_on(data, stream)
        raise


def _marks(text: str) -> tuple[str, str]:
    """Read `command`, `barriers`, or two marks with a comma between them."""
    if text in ("command", BETWEEN_BARRIERS):
        from numalab.locality.locality import BARRIERS, COMMAND  # noqa: PLC0415 - takes 0.3 s

        return COMMAND if text == "command" else BARRIERS
    first, comma, last = text.partition(",")
    if not (first and comma and last) or "," in last:
        raise UserError(
            f"{text!r} is no window",
            key="--locality",
            choices=("command", BETWEEN_BARRIERS, "MARK,MARK"),
        )
    return first, last


def _check_speed(
    mode: str, instruction_ns: int | None, quantum_ns: int | None, slow_motion: int
) -> None:
    """Raise UserError for an option that this mode ignores, or for an invalid value."""
    if instruction_ns is not None:
        _check_choice("--instruction-ns", instruction_ns, INSTRUCTION_NS, mode, ("timed", "icount"))
    _check_choice(
        "--slow-motion", slow_motion, SLOW_MOTION, mode, MODES if slow_motion == 1 else ("timed",)
    )
    if quantum_ns is not None and mode != "timed":
        raise UserError(f"mode {mode} has no quantum", key="--quantum", choices=("--mode timed",))
    if quantum_ns is not None:
        shift = SHIFTS["timed"] if instruction_ns is None else instruction_ns.bit_length() - 1
        check_quantum(quantum_ns, shift, slow_motion, key="--quantum")


def _check_choice(
    key: str, value: int, choices: Sequence[int], mode: str, modes: Sequence[str]
) -> None:
    if value not in choices:
        raise UserError(f"{value} is not possible", key=key, choices=map(str, choices))
    if mode not in modes:
        raise UserError(
            f"not in mode {mode}", key=key, choices=[f"--mode {name}" for name in modes]
        )


def _variables(texts: Sequence[str]) -> dict[str, str]:
    for text in texts:
        name, equals, _ = text.partition("=")
        if not equals or not name.isidentifier():
            raise UserError(f"{text!r} is not NAME=VALUE", key="--env")
    return dict(text.split("=", 1) for text in texts)


def read_input(name: str | None) -> bytes | None:
    """Return the standard input of a command: a file's, or `-`. Raises UserError for too much."""
    if name is None:
        return None
    if name == "-":
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        with reading(Path(name)), open_regular(Path(name)) as file:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise UserError(f"is longer than {MOST_BYTES >> 20} MiB", file=name, key="--stdin")
    return data


def show_booted(booted: Booted, as_json: bool) -> None:
    """Print the stdout and stderr of a command in a guest."""
    for note in booted.outcome.new_notes:
        say(f"numalab: {note}")
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
            "locality": booted.locality and asdict(booted.locality),
        }
        emit(value, True, "")
        return
    pass_on(booted.stdout, sys.stdout)
    pass_on(booted.stderr, sys.stderr)
    if booted.reach is not None:
        from numalab.reach.merge import merged  # noqa: PLC0415 - rarely used
        from numalab.reach.text import reach_lines  # noqa: PLC0415

        for line in reach_lines(merged([("", booted.reach)])):
            say(line)
    if booted.locality is not None:
        from numalab.locality.locality_text import locality_lines  # noqa: PLC0415 - takes 0.3 s

        for line in locality_lines(booted.locality):
            say(line)
