"""What all models of stored files share: strict types, bounded numbers, plain names.

Nothing is coerced, and nothing changes after it is read. Keys that a model does not name are
ignored: a newer numalab may write them.
"""

import re
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from numalab.measure import Direction, Measure, MeasureInfo, MeasureKind, parse_sources

FORMAT: Final = 5  # the only format of plans and manifests that is read

# Bounds of a column of integers, and of what a float represents.
Integer = Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
LARGEST_SEED = (1 << 32) - 1
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]

LONGEST_NAME = 200
UNFINISHED = (".running", ".failed", ".interrupted")  # suffixes of folders of runs without result
_PLAIN = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._,:+@=-]{{0,{LONGEST_NAME - 1}}}")


def is_plain(name: str) -> bool:
    """Return whether a name may become part of a path.

    It has no separator, leading dot or control character, and is not the folder of a run without
    result.
    """
    return _PLAIN.fullmatch(name) is not None and not name.endswith(UNFINISHED)


def plain_name(name: str) -> str:
    """Return a name that `is_plain`. Raises ValueError for another."""
    if not is_plain(name):
        raise ValueError(f"{name[:80]!r} is not a plain name")
    return name


PlainName = Annotated[str, AfterValidator(plain_name)]


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
