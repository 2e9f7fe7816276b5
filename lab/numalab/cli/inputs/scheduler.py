"""`numalab scheduler`: list, build and check schedulers (sched_ext)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from numalab.cli import completion, options
from numalab.cli.kernel_choice import chosen_kernel
from numalab.cli.output import emit, progress_lines
from numalab.cpulist import parse_cpulist
from numalab.errors import UserError
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.programs.check_scheduler import SchedulerCheck, check_scheduler
from numalab.qemu.hypervisor import EMBED
from numalab.scheduler.scheduler_artifact import ensure_scheduler
from numalab.scheduler.scheduler_spec import NAMES, SchedulerSpec, find_scheduler
from numalab.topology.load import load_topology

app = typer.Typer(no_args_is_help=True)

KERNEL = "debian-6.12-sched-ext"
TOPOLOGIES = ("ring-2", "ring-4", "mesh-8")

Name = Annotated[
    str,
    typer.Argument(help="Name of a scheduler, CRATE@VERSION, or path of a program or NAME.bpf.c."),
]
Arguments = Annotated[
    list[str] | None,
    typer.Option("--argument", metavar="WORD", help="Argument of the scheduler; repeatable."),
]
Kernels = Annotated[
    list[str] | None,
    typer.Option(
        "--kernel",
        help=f"Kernel with sched_ext; repeatable. Default: {KERNEL}.",
        autocompletion=completion.kernels,
    ),
]


@app.command("list")
def list_schedulers(as_json: options.Json = False) -> None:
    """List the schedulers that need no path.

    They are tools of the kernel, and crates.
    """
    schedulers = [find_scheduler(name) for name in NAMES]
    table = Table("scheduler", "origin", "version", box=None)
    for spec in schedulers:
        table.add_row(spec.name, spec.origin, spec.version or "the kernel's")
    emit([_value(spec) for spec in schedulers], as_json, table)


@app.command()
def build(
    name: Name,
    kernel: Annotated[
        str, typer.Option(help="Kernel with sched_ext.", autocompletion=completion.kernels)
    ] = KERNEL,
    as_json: options.Json = False,
) -> None:
    """Build a scheduler, and print the path of its program."""
    spec, chosen = find_scheduler(name), chosen_kernel(kernel)
    with progress_lines(spec.name) as tell:
        built = ensure_scheduler(spec, chosen, ensure_kernel(chosen, on_progress=tell), tell)
    value = {**_value(spec), "program": built.program, "sha256": built.sha256}
    emit(value, as_json, str(built.program))


@app.command()
def check(
    name: Name,
    argument: Arguments = None,
    kernel: Kernels = None,
    topology: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Topology, or a file; repeatable. Default: {', '.join(TOPOLOGIES)}.",
            autocompletion=completion.topologies,
        ),
    ] = None,
    offline: Annotated[
        str, typer.Option(metavar="CPUS", help="CPUs to take offline before it starts: 1,4-5.")
    ] = "",
    mode: options.Mode = "auto",
    connection: options.Connect = EMBED,
    as_json: options.Json = False,
) -> None:
    """Check a scheduler on each kernel and machine.

    It schedules a short load. A row tells whether the verifier accepted it, and whether it
    scheduled the load to its end. If it prints nodes and caches, as scx_rusty does, they are
    compared with the prediction. The exit code is 9 if it failed anywhere; the messages of
    scheduler and kernel go to the end.
    """
    spec = find_scheduler(name, argument or ())
    kernels = [chosen_kernel(text) for text in kernel or [KERNEL]]
    topologies = [load_topology(text) for text in topology or TOPOLOGIES]
    with progress_lines(spec.name) as tell:
        checks = list(
            check_scheduler(
                spec,
                kernels,
                topologies,
                offline=_cpus(offline),
                mode=mode,
                connection=connection,
                on_progress=tell,
            )
        )
    table = Table("kernel", "machine", "loaded", "topology", "result", box=None)
    for row in checks:
        table.add_row(row.kernel, row.topology, row.ops or "no", _view(row), row.verdict)
    emit([_row(row) for row in checks], as_json, table)
    failed = [row for row in checks if not row.ok]
    if not as_json:
        for reason in dict.fromkeys(row.reason for row in failed):
            where = ", ".join(_place(row, kernels) for row in failed if row.reason == reason)
            emit(None, as_json, f"\n{where}: {reason}")
        for row in checks:
            for difference in row.differences or ():
                emit(None, as_json, f"\n{_place(row, kernels)}: {difference}")
    raise typer.Exit(9 if failed else 0)


def _cpus(text: str) -> tuple[int, ...]:
    try:
        return parse_cpulist(text)
    except ValueError as error:
        raise UserError(str(error), key="--offline") from None


def _place(row: SchedulerCheck, kernels: Sequence[KernelSpec]) -> str:
    return f"{row.kernel} on {row.topology}" if len(kernels) > 1 else row.topology


def _view(row: SchedulerCheck) -> str:
    if row.differences is None:
        return "-"
    return "differs" if row.differences else "as predicted"


def _row(row: SchedulerCheck) -> dict[str, Any]:
    return {
        "kernel": row.kernel,
        "machine": row.topology,
        "ok": row.ok,
        "ops": row.ops,
        "reason": row.reason,
        "differences": row.differences,
        "guest_seconds": row.guest_seconds,
    }


def _value(spec: SchedulerSpec) -> dict[str, Any]:
    path: Path | None = spec.path
    return {"name": spec.name, "origin": spec.origin, "version": spec.version, "path": path}
