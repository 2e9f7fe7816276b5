"""`numalab measures`."""

from rich.table import Table
from rich.text import Text

from numalab.analysis.measures.family import families
from numalab.cli import options
from numalab.cli.output import emit, picked


def command(
    as_json: options.Json = False,
) -> None:
    """List every measure: its unit, which way is better, its kind, source and definition.

    A name with `{node}` stands for one measure of each node. docs/reference/measures.md says more.
    """
    table = Table(box=None, padding=(0, 2, 1, 0), pad_edge=False)
    for title in ("measure", "unit", "better", "kind"):
        table.add_column(title, overflow="fold")
    table.add_column("definition, source", overflow="fold", ratio=1)
    found = tuple(families())
    for each in found:
        told = Text.assemble(each.definition, "\n", (each.source, "dim"))
        table.add_row(Text(each.name), each.unit, each.direction, each.kind, told)
    names = ("name", "unit", "direction", "kind", "definition", "source")
    document = [picked(each, *names) for each in found]
    emit(document, as_json, table)
