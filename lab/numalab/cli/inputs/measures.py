"""`numalab measures`."""

from rich.table import Table
from rich.text import Text

from numalab.analysis.measures.family import families
from numalab.cli import options
from numalab.cli.output import emit, picked


def command(
    as_json: options.Json = False,
) -> None:
    """List the measures: unit, better direction, kind, source and definition.

    A name with `{node}` stands for one measure of each node.
    """
    table = Table(box=None, padding=(0, 2, 1, 0), pad_edge=False)
    for title in ("measure", "unit", "better", "kind"):
        table.add_column(title, overflow="fold")
    table.add_column("definition, source", overflow="fold", ratio=1)
    measures = tuple(families())
    for measure in measures:
        text = Text.assemble(measure.definition, "\n", (measure.source, "dim"))
        table.add_row(Text(measure.name), measure.unit, measure.direction, measure.kind, text)
    names = ("name", "unit", "direction", "kind", "definition", "source")
    document = [picked(measure, *names) for measure in measures]
    emit(document, as_json, table)
