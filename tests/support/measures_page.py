"""The tables of docs/reference/measures.md, made from the registry."""

import re
from collections.abc import Sequence

from numalab.analysis.measures.family import MeasureFamily, MeasureGroup

_HEAD = "| measure | unit | better | kind | source | definition |"
_TABLE = re.compile(r"(<!-- measures: ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def render_tables(page: str, groups: Sequence[MeasureGroup]) -> str:
    """Return a page with a table of each group between `<!-- measures: NAME -->` and
    `<!-- end -->`.

    Raises KeyError for a name that no group has.
    """
    by_name = {group.name: group for group in groups}

    def table(found: re.Match[str]) -> str:
        rows = [_row(family) for family in by_name[found[2]].families]
        return found[1] + "\n".join([_HEAD, "|---|---|---|---|---|---|", *rows]) + "\n" + found[3]

    return _TABLE.sub(table, page)


def tables_of(page: str) -> list[str]:
    """Return the names of the groups that a page has a table of."""
    return [found[2] for found in _TABLE.finditer(page)]


def _row(family: MeasureFamily) -> str:
    notes = []
    if family.needs_nodes:
        notes.append("needs the nodes")
    if family.may_be_never:
        notes.append("may be never")
    told = f" ({'; '.join(notes)})" if notes else ""
    text = re.sub(r"(?<!`)(\{\w+\})", r"`\1`", family.definition)
    cells = (f"`{family.name}`", family.unit, family.direction, family.kind, family.source)
    return f"| {' | '.join(cells)} | {text}{told} |"
