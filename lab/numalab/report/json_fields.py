"""How fields of the report become keys of `report.json`."""

from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, TypeVar

from pydantic import Field, PlainSerializer

from numalab.measure import Direction, MeasureKind
from numalab.topology.topology import Node

T = TypeVar("T")
NotInJson = Annotated[T, Field(exclude=True)]


def finite(value: float | int | None) -> float | int | None:
    """Return None for what JSON has no number for."""
    return value if value is not None and isfinite(value) else None


Measured = Annotated[int | float | None, PlainSerializer(finite, return_type=int | float | None)]


def serialised_as(kind: type) -> PlainSerializer:
    """Serialise a value as `kind`, whose fields are attributes of the value."""

    def convert(value: object) -> Any:
        return kind(**{name: getattr(value, name) for name in kind.__annotations__})

    return PlainSerializer(convert, return_type=kind)


@dataclass(frozen=True)
class MachineLayout:
    """The machine; `distances` as `[from][to]`."""

    name: str
    summary: str
    nodes: tuple[Node, ...]
    distances: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class MeasureDefinition:
    """The definition of a measure; `source` is where its figures were read."""

    name: str
    unit: str
    direction: Direction
    kind: MeasureKind
    definition: str
    source: str
