"""`numalab verify`."""

from collections.abc import Sequence
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
from numalab.report.figures import printable
from numalab.results.layout import Results
from numalab.study.model import find_study


def command(
    results: options.Results,
    runs: Annotated[
        list[str] | None, typer.Option("--run", help="Only this run; may be given again.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            help="Your own file of the study, or its name in studies/. Without it, the kernels,"
            " machines and images that the results name are taken from your lab, and a path is"
            " refused."
        ),
    ] = None,
    jobs: options.Guests = None,
    connection: options.Connect = EMBED,
    as_json: options.Json = False,
) -> None:
    """Do stored runs again, and compare the recorded events.

    In icount and timed mode both must record the same events, field for field. Inputs that differ
    from those of the results (kernel, QEMU, compiler, ...) are named. The results stay as they are,
    and nothing in them is built or run: the results may be a stranger's.

    Exits with 1 when a run is not identical.
    """
    connect(connection)
    with progress_lines("prepare") as tell, live_runs() as watch:
        found = verify(
            Results(results),
            runs or (),
            own=None if study is None else find_study(study),
            jobs=jobs,
            connection=connection,
            on_progress=tell,
            on_schedule=watch,
        )
    emit(found, as_json, _text(found))
    if not all(each.identical for each in found):
        raise typer.Exit(1)


def _text(found: Sequence[Verification]) -> RenderableType:
    lines: list[RenderableType] = []
    for each in found:
        word = "identical" if each.identical else "NOT identical"
        style = "bold blue" if each.identical else "bold dark_orange"
        lines.append(Text.assemble((word, style), f"  {each.run}"))
        details = [each.error, each.events and f"events: {each.events}"]
        if each.measures:
            details.append(f"measures with another value: {', '.join(each.measures)}")
        details += [f"went in: {what}" for what in each.differs]
        if not each.identical and each.mode not in DETERMINISTIC:
            details.append(
                f"two runs in {each.mode} mode are never the same; icount and timed ones are"
            )
        lines += [Text(f"    {printable(text)}") for text in details if text]
    return Group(*lines)
