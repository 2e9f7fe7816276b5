"""A table for a terminal whose first column holds names, which no width breaks over lines."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions
from rich.text import Text

from numalab.report.formatting import printable, shortened_name

GAP = 2  # blanks between columns
LONGEST_GROUP = 24  # characters of the name of a variant
LEAST_ROOM = 12  # characters for names beside the figures


@dataclass(frozen=True)
class Column:
    """A column of figures; neighbours of one `group` have its name above them.

    Where the width is too small, the columns with the highest `spare` go first; those with 0 stay.
    """

    title: str
    group: str = ""
    spare: int = 0
    left: bool = False


@dataclass(frozen=True)
class NamedRow:
    """A row: a name, its unit, and a text for each column. A row without texts is a heading."""

    name: str
    unit: str = ""
    cells: Sequence[Text | str] = ()


@dataclass(frozen=True)
class NamedRows:
    """A table of named rows. `title` is the head of the names.

    A name too long for its column has a line of its own, with the figures below it; one too long
    for the terminal is shortened in its middle.
    """

    title: str
    columns: Sequence[Column]
    rows: Sequence[NamedRow]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Yield the lines of the table in the width of the console."""
        for line in self.lines(options.max_width):
            line.no_wrap, line.overflow = True, "ellipsis"
            yield line

    def lines(self, width: int) -> Iterator[Text]:
        """Yield the lines, none wider than `width` if a name and a figure fit into it."""
        rows = [(row, [_text(cell) for cell in row.cells]) for row in self.rows]
        places = self._that_fit([cells for _, cells in rows if cells], width)
        sizes = self._sizes([cells for _, cells in rows if cells], places)
        if sum(sizes) + GAP * len(sizes) > width - LEAST_ROOM:
            sizes = self._sizes([cells for _, cells in rows if cells], places, longest_group=0)
        figures = sum(sizes) + GAP * len(sizes)
        labels = [_label(row) for row, cells in rows if cells]
        room = min(max(map(len, [self.title, *labels])), max(width - figures, LEAST_ROOM))
        yield from self._heads(places, sizes, room)
        for row, cells in rows:
            if not cells:
                yield Text(shortened_name(printable(row.name), width), "bold")
                continue
            line = Text()
            for place, size in zip(places, sizes, strict=True):
                line.append(" " * GAP)
                line.append(_aligned(cells[place], size, left=self.columns[place].left))
            line.rstrip()
            yield from _named(row, line, room, width)

    def _that_fit(self, rows: Sequence[Sequence[Text]], width: int) -> list[int]:
        """Return the places of the columns that leave room for names."""
        places = list(range(len(self.columns)))
        while sum(self._sizes(rows, places)) + GAP * len(places) > width - LEAST_ROOM:
            spare = max(places, key=lambda place: (self.columns[place].spare, place), default=None)
            if spare is None or not self.columns[spare].spare:
                break
            places = [
                place for place in places if self.columns[place].spare != self.columns[spare].spare
            ]
        return places

    def _sizes(
        self,
        rows: Sequence[Sequence[Text]],
        places: Sequence[int],
        longest_group: int = LONGEST_GROUP,
    ) -> list[int]:
        """Return the widths of some columns; a group is as wide as its name, up to a limit."""
        sizes = [
            max([len(self.columns[place].title), *(row[place].cell_len for row in rows)])
            for place in places
        ]
        for group, start, end in self._groups(places):
            short = min(len(group), longest_group) - sum(sizes[start:end]) - GAP * (end - start - 1)
            sizes[start] += max(0, short)
        return sizes

    def _groups(self, places: Sequence[int]) -> Iterator[tuple[str, int, int]]:
        start = 0
        for group, members in groupby(places, key=lambda place: self.columns[place].group):
            end = start + len(list(members))
            yield group, start, end
            start = end

    def _heads(self, places: Sequence[int], sizes: Sequence[int], room: int) -> Iterator[Text]:
        if any(column.group for column in self.columns):
            above = " " * room
            for group, start, end in self._groups(places):
                size = sum(sizes[start:end]) + GAP * (end - start - 1)
                above += " " * GAP + shortened_name(printable(group), size).rjust(size)
            yield Text(above.rstrip())
        line = self.title.ljust(room)
        for place, size in zip(places, sizes, strict=True):
            column = self.columns[place]
            title = column.title.ljust(size) if column.left else column.title.rjust(size)
            line += " " * GAP + title
        yield Text(line.rstrip())
        yield Text("─" * (room + sum(sizes) + GAP * len(sizes)))


def _text(cell: Text | str) -> Text:
    return cell if isinstance(cell, Text) else Text(printable(cell))


def _label(row: NamedRow) -> str:
    return f"{printable(row.name)} [{printable(row.unit)}]" if row.unit else printable(row.name)


def _aligned(cell: Text, size: int, *, left: bool) -> Text:
    blanks = " " * max(0, size - cell.cell_len)
    return Text.assemble(cell, blanks) if left else Text.assemble(blanks, cell)


def _named(row: NamedRow, figures: Text, room: int, width: int) -> Iterator[Text]:
    """Put a name beside its figures, or above them."""
    label = _label(row)
    if len(label) <= room:
        yield Text.assemble(label.ljust(room), figures)
        return
    name, unit = printable(row.name), ""
    if len(label) > width:
        label, unit = shortened_name(name, width), f"  [{printable(row.unit)}]" if row.unit else ""
    yield Text(label)
    yield Text.assemble(shortened_name(unit, room).ljust(room), figures)
