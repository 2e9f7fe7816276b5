"""What all models of stored files have in common: nothing is coerced, nothing changes afterwards.

A key that a model does not name is of a newer numalab, and is ignored.
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from numalab.measure import Direction, Measure, MeasureInfo, MeasureKind, parse_sources

FORMAT: Final = 5
READABLE = (1, 2, 3, 4, FORMAT)  # formats of results that are still read

# What a table of runs and measures can hold, and a float has room for.
Integer = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Seed = Annotated[int, Field(ge=0, lt=1 << 32)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Stored(BaseModel):
    """An object of a stored JSON file."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class StoredMeasure(Stored):
    """A measure as `measures.json` holds it."""

    name: str
    value: int | float | None
    unit: str
    direction: Direction
    kind: MeasureKind
    definition: str
    source: str

    @classmethod
    def of(cls, measure: Measure) -> "StoredMeasure":
        """Return what is stored of a measure."""
        info = measure.info
        return cls.model_validate({**vars(info), "source": info.source, "value": measure.value})

    def measure(self) -> Measure:
        """Return the measure. Raises ValueError for a kind of source that there is not."""
        sources = parse_sources(self.source)
        info = MeasureInfo(
            self.name, self.unit, self.direction, self.kind, self.definition, sources
        )
        return Measure(info, self.value)
