"""`numalab workload`: list and show workloads."""

import shlex
from collections.abc import Iterable
from typing import Annotated

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from numalab.cli import completion, options
from numalab.cli.output import emit, picked
from numalab.places import load_usable
from numalab.topology.load import load_topology
from numalab.topology.predict.firmware import describe_numbers
from numalab.topology.topology import Topology
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
    """List the workloads and the kernel code that they stress."""
    workloads = load_usable(list_workloads(), load_workload)
    rows = [(workload.name, workload.table.stresses) for workload in workloads]
    facts = [_summary(workload) for workload in workloads]
    emit(facts, as_json, _table(("name", "stresses"), rows))


@app.command("show")
def show(
    name: Annotated[
        str,
        typer.Argument(
            help="Name from `numalab workload list`.", autocompletion=completion.workloads
        ),
    ],
    topology: Annotated[str, typer.Option(help="Topology that sets its values.")] = "ring-4",
    as_json: options.Json = False,
) -> None:
    """Show the parameters and metrics of a workload for a topology."""
    workload = load_workload(name)
    machine = load_topology(topology)
    bound = resolve(workload, {}, machine)
    facts = {
        **_summary(workload),
        "packages": bound.packages,
        "topology": machine.name,
        "argv": bound.argv,
        "parameters": dict(bound.parameters),
        "seconds": bound.seconds,
        "memory_mib": bound.memory_mib,
        "metrics": [picked(m, "name", "unit", "direction", "kind") for m in workload.table.metrics],
    }
    described = Text(_described(workload, bound, machine))
    emit(facts, as_json, Group(described, "", _parameters(workload, bound), "", _metrics(workload)))


def _summary(workload: Workload) -> dict[str, str]:
    return {"name": workload.name, **picked(workload.table, "summary", "stresses")}


def _described(workload: Workload, bound: BoundWorkload, machine: Topology) -> str:
    lines = [
        f"{workload.name}: {workload.table.summary}",
        f"  stresses  {workload.table.stresses}",
        f"  file      {workload.file}",
        f"  packages  {' '.join(bound.packages) or 'those of base'}",
        f"  {machine.name}: {shlex.join(bound.argv)}",
        *(f"  in this command, {moved}" for moved in filter(None, [describe_numbers(machine)])),
        f"  about {bound.seconds:.0f} s of guest time in icount mode, {bound.memory_mib:.0f} MiB",
    ]
    return "\n".join(lines)


def _parameters(workload: Workload, bound: BoundWorkload) -> Table:
    rows = [
        (name, str(table.default), str(bound.parameters[name]), _valid(table), table.help)
        for name, table in workload.table.parameters.items()
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
    rows = [(m.name, m.unit, m.direction, m.kind) for m in workload.table.metrics]
    return _table(("metric", "unit", "better", "kind"), rows)


def _table(headings: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # a pattern's brackets are no markup
    return table
