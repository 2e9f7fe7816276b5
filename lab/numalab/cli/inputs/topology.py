"""`numalab topology`: list, show, check, predict, diff, import."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from numalab.cli import completion, options
from numalab.cli.output import emit, say
from numalab.cpulist import format_cpulist
from numalab.errors import UserError
from numalab.files import write_text
from numalab.places import load_usable
from numalab.topology.differences import format_group
from numalab.topology.load import (
    check_topology_file,
    list_topologies,
    load_topology,
    load_topology_file,
    memory_to_dict,
    published_to_dict,
    topology_file,
    topology_to_dict,
)
from numalab.topology.memory.timing import unmodelled_bandwidths
from numalab.topology.predict.firmware import Vendor
from numalab.topology.predict.groups import Construction
from numalab.topology.predict.prediction import DEFAULT_KERNEL, Prediction, predict
from numalab.topology.predict.rules import SERIES
from numalab.topology.topology import Topology, describe_figures
from numalab.units import counted

if TYPE_CHECKING:
    from numalab.topology.predict.hazards import Hazard

app = typer.Typer(no_args_is_help=True)

MAX_ERRORS = 25  # of each file that `check` shows

Format = Literal["text", "json", "svg", "dot", "xml", "qemu", "vng", "numactl", "toml"]
Name = Annotated[
    str,
    typer.Argument(
        help="Name from `numalab topology list`, or a file.", autocompletion=completion.topologies
    ),
]
Kernel = Annotated[
    str, typer.Option("--kernel-version", help="4.4 or later; 6.12: its newest release.")
]
VendorOption = Annotated[
    Vendor,
    typer.Option(help="CPUs of the guest: amd (emulated), zen or intel (KVM on such a host)."),
]
BeforeFix = Annotated[
    bool,
    typer.Option(
        "--before-group-fix",
        help="Predict the kernel with the series undo-group-construction, which builds sched"
        " groups as before 4.13.",
    ),
]


@app.command("list")
def list_command(as_json: options.Json = False) -> None:
    """List the topologies.

    A row tells which figures are published.
    """
    topologies = load_usable(list_topologies(), load_topology)
    width = max((len(topology.name) for topology in topologies), default=0)
    lines = [
        f"{machine.name:{width}}  {counted(len(machine.nodes), 'node'):>8} "
        f"{counted(machine.cpu_count, 'CPU'):>8}  {machine.summary} ({describe_figures(machine)})"
        for machine in topologies
    ]
    rows = [
        {
            "name": machine.name,
            "nodes": len(machine.nodes),
            "cpus": machine.cpu_count,
            "memory_mib": machine.memory_mib,
            "summary": machine.summary,
            "published": published_to_dict(machine),
        }
        for machine in topologies
    ]
    emit(rows, as_json, "\n".join(lines))


@app.command()
def show(
    name: Name,
    form: Annotated[
        Format, typer.Option("--format", help="Output format; xml is the <cpu> element of libvirt.")
    ] = "text",
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
) -> None:
    """Show the nodes and distances of a topology, or export it.

    For example `numalab topology show ring-4 --format qemu`.
    """
    topology = load_topology(name)
    if as_json or form == "json":
        document = topology_to_dict(topology) | {
            "memory": memory_to_dict(topology),
            "published": published_to_dict(topology),
        }
        emit(document, True, "")
    else:
        rendered = _rendered(topology, form)
        for loss in _losses(topology, form):
            say(f"numalab: left out of {form}: {loss}")
        print(rendered, end="")


def _losses(topology: Topology, form: Format) -> tuple[str, ...]:
    if form in ("text", "svg", "toml"):
        return ()
    from numalab.topology.export import export_losses

    return export_losses(topology, form)


def _rendered(topology: Topology, form: Format) -> str:
    """Render a topology; import only the module of the form."""
    # ruff: noqa: PLC0415
    if form == "text":
        from numalab.topology.view.terminal import render_terminal

        return render_terminal(topology) + "\n"
    if form == "svg":
        from numalab.topology.view.drawing import render_svg

        return render_svg(topology)
    if form == "toml":
        from numalab.topology.export import render_topology_file

        return render_topology_file(topology)
    from numalab.topology import export

    return {
        "dot": export.render_dot,
        "xml": export.render_cpu_xml,
        "qemu": export.render_qemu,
        "vng": export.render_vng,
        "numactl": export.render_numactl,
    }[form](topology)


@app.command()
def check(
    topologies: Annotated[
        list[str],
        typer.Argument(help="Topology files, or names.", autocompletion=completion.topologies),
    ],
    as_json: options.Json = False,
) -> None:
    """Print the errors and hazards of topology files.

    A hazard is a feature that makes wrong scheduling likely; it is not an error. At most 25 errors
    of a file are printed. Exits with 2 if a file has an error.
    """
    from numalab.topology.predict.hazards import hazards

    results, lines, wrong = [], [], False
    for file in map(topology_file, topologies):
        errors = check_topology_file(file)
        dangers: tuple[Hazard, ...] = ()
        unmodelled: tuple[str, ...] = ()
        if errors:
            wrong = True
        else:
            topology = load_topology_file(file)
            dangers = hazards(topology, predict(topology))
            unmodelled = unmodelled_bandwidths(topology)
        results.append(
            {
                "file": file,
                "errors": [
                    {"key": error.key, "message": str(error), "choices": error.choices}
                    for error in errors[:MAX_ERRORS]
                ],
                "errors_left_out": max(0, len(errors) - MAX_ERRORS),
                "hazards": dangers,
                "unmodelled": unmodelled,
            }
        )
        lines += [str(error) for error in errors[:MAX_ERRORS]]
        if len(errors) > MAX_ERRORS:
            lines.append(f"{file}: and {counted(len(errors) - MAX_ERRORS, 'more error')}")
        lines += [f"{file}: {hazard.name}: {hazard.text}" for hazard in dangers]
        lines += [f"{file}: note: not modelled in timed mode: {text}" for text in unmodelled]
        if not errors:
            lines.append(f"{file}: ok")
    emit(results, as_json, "\n".join(lines))
    if wrong:
        raise typer.Exit(UserError.exit_code)


@app.command("predict")
def predict_command(
    name: Name,
    *,
    kernel_version: Kernel = DEFAULT_KERNEL,
    cpu: Annotated[int | None, typer.Option(help="Print only this CPU.")] = None,
    before_group_fix: BeforeFix = False,
    vendor: VendorOption = "amd",
    as_json: options.Json = False,
) -> None:
    """Predict the sched domains and groups of a topology.

    Also predicts NUMA levels and hazards. The CPUs of a group come first, then `balanced by` with
    the CPUs that balance it.
    """
    from numalab.topology.predict.assumptions import assumptions
    from numalab.topology.predict.hazards import hazards

    topology = load_topology(name)
    if cpu is not None and not 0 <= cpu < topology.cpu_count:
        raise UserError(
            f"there is no CPU {cpu}; CPUs are 0 to {topology.cpu_count - 1}", key="--cpu"
        )
    construction = Construction.BEFORE_4_13 if before_group_fix else Construction.NOW
    prediction = predict(topology, kernel_version, construction=construction, vendor=vendor)
    dangers = hazards(topology, prediction)
    assumed = assumptions(topology, prediction)
    document = _prediction_document(prediction, cpu)
    document |= {"assumptions": list(assumed), "hazards": list(dangers)}
    lines = _prediction_lines(prediction, cpu)
    lines += [f"note: {text}" for text in assumed]
    lines += [f"hazard: {hazard.name}: {hazard.text}" for hazard in dangers]
    emit(document, as_json, "\n".join(lines))


def _prediction_document(prediction: Prediction, cpu: int | None) -> dict[str, Any]:
    cpus = [domains for domains in prediction.cpus if cpu in (None, domains.cpu)]
    return {
        "topology": prediction.topology,
        "kernel": prediction.rules.version,
        "rules": prediction.rules.series,
        "newest_known": SERIES[-1],
        "remark": prediction.rules.remark or None,
        "before_group_fix": prediction.construction is Construction.BEFORE_4_13,
        "vendor": prediction.vendor,
        "numa_type": prediction.numa_type,
        "distances": list(prediction.levels.distances),
        "node_numbers": list(prediction.machine.node_of_topology),
        "cpus": [
            {
                "cpu": domains.cpu,
                "domains": [
                    {
                        "level": domain.level,
                        "name": domain.name,
                        "span": format_cpulist(domain.span),
                        "flags": list(domain.flags),
                        "imb_numa_nr": imbalance,
                        "groups": [
                            {"span": format_cpulist(g.span), "mask": format_cpulist(g.mask)}
                            for g in domain.groups
                        ],
                    }
                    for domain, imbalance in zip(
                        domains.domains,
                        prediction.imb_numa_nr[domains.cpu] or (None,) * len(domains.domains),
                        strict=True,
                    )
                ],
            }
            for domains in cpus
        ],
        "warnings": list(prediction.warnings),
        "errors": list(prediction.errors),
    }


def _prediction_lines(prediction: Prediction, cpu: int | None) -> list[str]:
    undone = prediction.rules.own_groups and prediction.construction is Construction.BEFORE_4_13
    old = " with undo-group-construction" if undone else ""
    levels = " ".join(map(str, prediction.levels.distances))
    of_some = prediction.rules.only_nodes_with_cpus and 0 in prediction.machine.nodes
    of = " of nodes with CPUs" if of_some else ""
    lines = [
        f"{prediction.topology} on Linux {prediction.rules.version}{old} "
        f"({prediction.vendor} CPUs)",
        f"NUMA type: {prediction.numa_type}, distances{of}: {levels}",
    ]
    if prediction.rules.remark:
        lines.insert(1, f"note: {prediction.rules.remark}")
    for domains in prediction.cpus:
        if cpu not in (None, domains.cpu):
            continue
        node = prediction.machine.node_of_cpu[domains.cpu]
        lines.append(f"CPU {domains.cpu}, node {node}")
        for domain in domains.domains:
            span = format_cpulist(domain.span)
            lines.append(f"  domain {domain.level} {domain.name} {span}")
            lines.append(f"    groups: {', '.join(map(format_group, domain.groups))}")
            lines.append(f"    flags: {' '.join(flag[3:] for flag in domain.flags)}")
    return lines


@app.command()
def diff(a: Name, b: Name, as_json: options.Json = False) -> None:
    """Print the differences of two topologies. Exits with 1 if they differ.

    The JSON document calls the two topologies `a` and `b`.
    """
    from numalab.topology.differences import compare_topologies

    differences = compare_topologies(load_topology(a), load_topology(b))
    rows = [
        ("", a, b),
        *(
            (difference.subject, difference.expected, difference.actual)
            for difference in differences
        ),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = [f"{row[0]:{widths[0]}}  {row[1]:{widths[1]}}  {row[2]}" for row in rows]
    document = {
        "a": a,
        "b": b,
        "differences": [
            {"what": difference.subject, "a": difference.expected, "b": difference.actual}
            for difference in differences
        ],
    }
    emit(document, as_json, "\n".join(lines) if differences else "no difference")
    if differences:
        raise typer.Exit(1)


@app.command("import")
def import_command(
    source: Annotated[
        str, typer.Argument(help="File, `-` for stdin, or a folder such as /sys.")
    ] = "-",
    name: Annotated[
        str | None, typer.Option(help="Name of the topology; with --output, the stem of the file.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Make a topology file from the description of a real machine.

    Reads the output of `numactl -H`, the XML of `lstopo --of xml`, or a sysfs tree (/sys, or a copy
    of its devices/system/node). For example `ssh host numactl -H | numalab topology import`.
    Changes are printed, and written into the file as comments. In the JSON, `old_cpus` and
    `old_nodes` are the numbers on the real machine, in the order of the new numbers.
    """
    from numalab.topology.export import render_topology_file
    from numalab.topology.importers.any_format import read_machine
    from numalab.topology.importers.imported import MAX_TEXT

    options.file_to_write(output, "--output")
    name = _imported_name(name, output)
    text = sys.stdin.buffer.read(MAX_TEXT + 1) if source == "-" else None
    imported = read_machine(source, text, name=name)
    for note in imported.notes:
        say(f"numalab: {note}")
    notes = "".join(f"# {note}\n" for note in imported.notes)
    rendered = notes + render_topology_file(imported.topology)
    if output is not None:
        write_text(output, rendered)
    document = {
        "topology": topology_to_dict(imported.topology),
        "notes": imported.notes,
        "old_cpus": imported.old_cpus,
        "old_nodes": imported.old_nodes,
    }
    emit(document, as_json, f"written: {output}" if output is not None else rendered.rstrip())


def _imported_name(name: str | None, output: Path | None) -> str:
    """Return the name of an imported topology, which is that of its file. Raises UserError."""
    if name is not None and (not name.isprintable() or "/" in name or not name.strip()):
        raise UserError(f"not the name of a topology: {name[:80]!r}", key="--name")
    if output is None:
        return name or "imported"
    if name is not None and name != output.stem:
        raise UserError(
            f"a topology has the name of its file, so that {output} is called {output.stem}, not "
            f"{name}; write {output.with_name(name)}.toml, or leave --name out",
            key="--name",
        )
    return output.stem


@app.command()
def schema() -> None:
    """Print the JSON Schema of topology files, for editors."""
    from numalab.topology.file_format import render_schema

    print(render_schema(), end="")
