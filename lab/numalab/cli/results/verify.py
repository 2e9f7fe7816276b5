"""`numalab verify`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from numalab.campaign.verify import Verification, verify
from numalab.cli import options
from numalab.cli.live import live_runs
from numalab.cli.output import emit, progress_lines
from numalab.machine.model import DETERMINISTIC
from numalab.qemu.hypervisor import EMBED, connect
from numalab.report.formatting import printable
from numalab.results.layout import Results
from numalab.study.model import find_study


def command(
    results: options.Results,
    runs: Annotated[
        list[str] | None, typer.Option("--run", help="Repeat only this run; repeatable.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            help="Your study of these runs: a name or a file. Default: the kernels, topologies and"
            " images of your lab with the stored names; a stored path is refused."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Keep the repeated runs in this folder."),
    ] = None,
    jobs: options.Guests = None,
    connection: options.Connect = EMBED,
    as_json: options.Json = False,
) -> None:
    """Repeat stored runs, and compare their events and measures.

    In modes icount and timed, every field must be identical. Inputs that differ (kernel, QEMU,
    compiler, ...) are printed. Compact results have only measures to compare; `--output FOLDER`
    recreates their events, timelines and logs. After an interruption, use the same folder again.

    The results are not trusted: they are not changed, and nothing in them is built or run (see
    `--study`). Exits with 1 if a run is not identical.
    """
    options.folder_to_write(output, "--output")
    connect(connection)
    with progress_lines("prepare") as tell, live_runs() as watch:
        verifications = verify(
            Results(results),
            runs or (),
            output=output,
            own=None if study is None else find_study(study),
            jobs=jobs,
            connection=connection,
            on_progress=tell,
            on_schedule=watch,
        )
    emit(verifications, as_json, _text(verifications))
    if not all(verification.identical for verification in verifications):
        raise typer.Exit(1)


def _text(verifications: Sequence[Verification]) -> RenderableType:
    lines: list[RenderableType] = []
    for run in verifications:
        word = "identical" if run.identical else "NOT identical"
        style = "bold blue" if run.identical else "bold dark_orange"
        of = f" ({run.compared})" if run.identical else ""
        lines.append(Text.assemble((word, style), f"  {run.run}{of}"))
        details = [run.error, run.events and f"events: {run.events}"]
        if run.measures:
            details.append(f"measures with another value: {', '.join(run.measures)}")
        if run.redefined:
            names = ", ".join(run.redefined)
            details.append(f"not compared, another numalab defined them otherwise: {names}")
        if run.not_measured:
            details.append(f"this lab has no such measure: {', '.join(run.not_measured)}")
        if run.not_stored:
            number = len(run.not_stored)
            details.append(f"only the repetition has {number} more measures; --json names them")
        if run.other_findings:
            decides = "this decides nothing: another numalab may analyse more"
            details.append(f"analysis.json differs; {decides}")
        details += [f"input: {difference}" for difference in run.differs]
        if not run.identical and run.mode not in DETERMINISTIC:
            details.append(f"runs in {run.mode} mode never repeat; those in icount and timed do")
        lines += [Text(f"    {printable(text)}") for text in details if text]
    return Group(*lines)
