"""What a family of measures means, and how families that are computed together are held."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from numalab.measure import (
    Direction,
    Measure,
    MeasureInfo,
    MeasureKind,
    MeasureSource,
    Number,
    SourceKind,
)
from numalab.recording.recording import Recording

LOWER, HIGHER, NONE = Direction.LOWER, Direction.HIGHER, Direction.NONE
WINDOW = "the window (from `numalab: begin` to `numalab: end`)"


def trace(*events: str) -> MeasureSource:
    """Name events of the recording as a source."""
    return MeasureSource(SourceKind.TRACE, ", ".join(events))


def guest(what: str) -> MeasureSource:
    """Name something that was read in the guest as a source."""
    return MeasureSource(SourceKind.GUEST, what)


@dataclass(frozen=True)
class MeasureFamily:
    """What a family of measures means. `name` and `definition` may hold places such as `{node}`.

    `needs_nodes`: it is None where nobody knows which node a CPU is on. `may_be_never`: None can
    also say that something never happened, though all was recorded.
    """

    name: str
    unit: str
    direction: Direction
    definition: str
    sources: tuple[MeasureSource, ...]
    kind: MeasureKind = MeasureKind.PLACEMENT
    needs_nodes: bool = False
    may_be_never: bool = False

    @property
    def source(self) -> str:
        """The sources as one text."""
        return "; ".join(map(str, self.sources))

    def of(self, value: Number, **places: int | str) -> Measure:
        """Make the measure with this value, the family's places filled in."""
        return Measure(self._info(self.name.format(**places), places), value)

    def explain(self, name: str) -> MeasureInfo | None:
        """Return what the measure `name` means if it is of this family."""
        parts = re.split(r"\{(\w+)\}", self.name)
        pattern = "".join(
            re.escape(part) if i % 2 == 0 else f"(?P<{part}>\\w+)" for i, part in enumerate(parts)
        )
        found = re.fullmatch(pattern, name)
        return self._info(name, found.groupdict()) if found else None

    def _info(self, name: str, places: dict[str, int | str] | dict[str, str]) -> MeasureInfo:
        text = self.definition.format(**places)
        return MeasureInfo(name, self.unit, self.direction, self.kind, text, self.sources)


@dataclass(frozen=True)
class MeasureGroup:
    """Families that one function computes; `name` is the heading of their table in the docs."""

    name: str
    families: tuple[MeasureFamily, ...]
    compute: Callable[[Recording], Iterable[Measure]]
