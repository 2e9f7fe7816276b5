"""`numalab trace`."""

from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numalab.cli import options
from numalab.cli.output import emit, progress_lines
from numalab.cpulist import parse_cpulist
from numalab.errors import UserError
from numalab.files import write_text
from numalab.report import formatting
from numalab.report.build.recording import (
    MeasuredRecording,
    measure_recording,
    read_recorded_machine,
    recording_report,
)
from numalab.report.page.cell_page import render_html
from numalab.results.layout import Results
from numalab.results.stored import StoredMeasure
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from numalab.topology.topology import Topology


def command(
    file: Annotated[Path, typer.Argument(help="trace.dat file of trace-cmd.")],
    topology: Annotated[
        str | None, typer.Option(help="Topology of the recorded machine: a name or a file.")
    ] = None,
    numactl: Annotated[
        Path | None,
        typer.Option(help="Recorded machine as output of `numactl -H` or hwloc XML."),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(help="Name of the tasks to measure, with * and ?; repeatable."),
    ] = None,
    cpus: Annotated[
        str | None,
        typer.Option(help="CPUs that the tasks may use, such as 2-3,6-7; default: all."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder to write for page, events (Parquet), measures and analysis."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Measure a recording of trace-cmd, from a guest or from bare metal.

    The window is between the markers `numalab: begin` and `numalab: end`, or the whole recording.
    Measures of nodes need --topology or --numactl. With one of them, --output also writes a page
    (index.html).
    """
    options.folder_to_write(output, "--output")
    machine, changes = _machine(topology, numactl)
    allowed = None if cpus is None else options.parsed(parse_cpulist, cpus, "--cpus")
    if allowed == ():
        raise UserError("names no CPU", key="--cpus")
    with TemporaryDirectory(prefix="numalab-") as scratch:
        directory = RunDir(output or Path(scratch))
        with progress_lines("trace") as on_progress:
            measured = measure_recording(
                file,
                machine,
                directory,
                tasks=tasks or (),
                allowed_cpus=allowed,
                on_progress=on_progress,
            )
        measured = replace(measured, notes=(*changes, *measured.notes))
        page = None
        if output is not None and machine is not None:
            page = Results(output).html
            again = {
                "--topology": topology,
                "--numactl": numactl,
                "--cpus": cpus,
                "--output": output,
            }
            pairs = [*again.items(), *(("--tasks", name) for name in tasks or ())]
            words = [str(word) for pair in pairs if pair[1] is not None for word in pair]
            report = recording_report(file, measured, machine, tasks or (), words)
            write_text(page, render_html(report))
    written = RunDir(output).events if output is not None else None
    document = {
        "trace": file,
        "topology": machine.name if machine else None,
        "tasks": tasks or [],
        "cpus": allowed,
        "window": {
            **asdict(measured.analysis.window),
            "length_ns": measured.analysis.window.length_ns,
        },
        "recording": {**asdict(measured.decoded), "whole": measured.decoded.whole},
        "measures": [
            StoredMeasure.of(measure).model_dump() for measure in measured.analysis.measures
        ],
        "notes": measured.notes,
        "events": written,
        "page": page,
    }
    emit(document, as_json, _text(measured, machine, written, page))


def _machine(topology: str | None, numactl: Path | None) -> tuple[Topology | None, tuple[str, ...]]:
    """Return the recorded machine, and notes on what its description has otherwise."""
    if topology is not None and numactl is not None:
        raise UserError("--topology and --numactl both describe the machine: give one of them")
    if numactl is None:
        return None if topology is None else load_topology(topology), ()
    return read_recorded_machine(numactl)


def _text(
    measured: MeasuredRecording, machine: Topology | None, written: Path | None, page: Path | None
) -> RenderableType:
    window, decoded = measured.analysis.window, measured.decoded
    marked = "between the markers" if window.begun and window.ended else "see the notes"
    facts = [
        ("machine", machine.summary if machine else "not known"),
        ("window", f"{window.length_ns / 1e9:.6f} s, {marked}"),
        ("events", f"{decoded.events}, clock {decoded.clock or 'not known'}"),
    ]
    if written is not None:
        facts.append(("written", str(written)))
    if page is not None:
        facts.append(("page", str(page)))
    grid = Table.grid(padding=(0, 2))
    for name, text in facts:
        grid.add_row(Text(name, "bold"), Text(formatting.printable(text)))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("unit")
    for measure in measured.analysis.measures:
        places = formatting.decimals([measure.value])
        table.add_row(
            measure.name, formatting.number(measure.value, places, grouped=True), measure.info.unit
        )
    notes = [Text(f"note: {formatting.printable(note)}", "dim") for note in measured.notes]
    return Group(grid, Text(), table, *([Text(), *notes] if notes else []))
