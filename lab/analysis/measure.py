"""A measure: a number computed from a run, and what it means.

Every measure that the project can take is defined once, in `definitions.py`, so that it can be
listed and a stored value can be explained.
"""

from dataclasses import dataclass

from lab.analysis.definition import Definition, Direction, Kind
from lab.analysis.definitions import DEFINITIONS
from lab.errors import UserError

__all__ = [
    "DEFINITIONS",
    "Definition",
    "Direction",
    "Kind",
    "Measure",
    "Number",
    "explain",
    "measure",
    "percent",
]

Number = float | int | None


@dataclass(frozen=True)
class Measure:
    """One number of one run. `value` is None when the run could not give it, which is not 0."""

    name: str
    value: Number
    unit: str
    direction: Direction
    kind: Kind
    definition: str
    source: str


_BY_NAME = {definition.name: definition for definition in DEFINITIONS}


def measure(family: str, value: Number, **places: int | str) -> Measure:
    """Make a measure of the family `family`, its places filled in: `measure("x{node}", 1, node=3)`.

    Raises KeyError for a family that is not defined.
    """
    found = _BY_NAME[family]
    return _filled(found, found.name.format(**places), value, places)


def percent(part: float, whole: float) -> Number:
    """Return a part of a whole in percent; None of nothing."""
    return 100 * part / whole if whole else None


def explain(name: str) -> Definition:
    """Return the definition of a measure by its full name, its places filled in.

    Raises UserError with the names there are for a name that no definition gives.
    """
    for definition in DEFINITIONS:
        if match := definition.pattern().fullmatch(name):
            made = _filled(definition, name, None, match.groupdict())
            return Definition(
                name, made.unit, made.direction, made.kind, made.definition, made.source
            )
    names = [definition.name for definition in DEFINITIONS]
    raise UserError(f"no measure is called {name!r}", choices=names)


def _filled(
    found: Definition, name: str, value: Number, places: dict[str, int | str] | dict[str, str]
) -> Measure:
    text = found.definition.format(**places)
    return Measure(name, value, found.unit, found.direction, found.kind, text, found.source)
