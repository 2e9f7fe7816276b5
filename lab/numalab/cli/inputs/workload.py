"""`numalab workload`: what studies can run, and how it fits a machine."""

import shlex
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from numalab.cli import options
from numalab.cli.output import emit, picked
from numalab.topology.load import load_topology
from numalab.workload.workload import (
    BoundWorkload,
    Workload,
    list_workloads,
    load_workload,
    resolve,
)
from numalab.workload.workload_table import ParameterTable

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_all(as_json: options.Json = False) -> None:
    """List the workloads and what each asks of the kernel."""
    workloads = [load_workload(name) for name in list_workloads()]
    rows = [(workload.name, workload.stresses) for workload in workloads]
    facts = [picked(each, "name", "summary", "stresses") for each in workloads]
    emit(facts, as_json, _table(("name", "stresses"), rows))


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="A workload: the name of its folder in workloads/.")],
    topology: Annotated[str, typer.Option(help="The machine to fit it to.")] = "ring-4",
    as_json: options.Json = False,
) -> None:
    """Show a workload's parameters and metrics, and what it comes to on a machine."""
    workload = load_workload(name)
    machine = load_topology(topology)
    bound = resolve(workload, {}, machine)
    facts = {
        **picked(workload, "name", "summary", "stresses"),
        "packages": bound.packages,
        "topology": machine.name,
        "argv": bound.argv,
        "parameters": dict(bound.parameters),
        "seconds": bound.seconds,
        "memory_mib": bound.memory_mib,
        "metrics": [picked(m, "name", "unit", "direction", "kind") for m in workload.metrics],
    }
    described = Text(_described(workload, bound, machine.name))
    emit(facts, as_json, Group(described, "", _parameters(workload, bound), "", _metrics(workload)))


def _described(workload: Workload, bound: BoundWorkload, machine: str) -> str:
    lines = [
        f"{workload.name}: {workload.summary}",
        f"  stresses  {workload.stresses}",
        f"  file      {workload.file}",
        f"  packages  {' '.join(bound.packages) or 'those of base'}",
        f"  {machine}: {shlex.join(bound.argv)}",
        f"  about {bound.seconds:.0f} s of guest time in icount mode, {bound.memory_mib:.0f} MiB",
    ]
    return "\n".join(lines)


def _parameters(workload: Workload, bound: BoundWorkload) -> Table:
    rows = [
        (name, str(each.default), str(bound.parameters[name]), _valid(each), each.help)
        for name, each in workload.table.parameters.items()
    ]
    rows += [
        (name, expression, str(bound.parameters[name]), "derived", "")
        for name, expression in workload.table.derived.items()
    ]
    return _table(("parameter", "default", "here", "valid", "meaning"), rows)


def _valid(parameter: ParameterTable) -> str:
    if parameter.type == "text":
        return parameter.pattern or "any text"
    if parameter.type in ("node", "nodes"):
        return parameter.type
    least, most = (
        "" if bound is None else f"{bound:.10g}" for bound in (parameter.least, parameter.most)
    )
    return f"{parameter.type} {least}...{most}"


def _metrics(workload: Workload) -> Table:
    rows = [(each.name, each.unit, each.direction, each.kind) for each in workload.metrics]
    return _table(("metric", "unit", "better", "kind"), rows)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # a pattern's brackets are no markup
    return table
