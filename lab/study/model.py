"""The study file: a question, the matrix that answers it, and what is expected."""

import operator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lab.document import Document, read_document
from lab.errors import UserError
from lab.machine.watch import Limits
from lab.store import project_dir

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$", max_length=64)]
Bound = Annotated[float, Field(allow_inf_nan=False)]
Parameter = str | int | float
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


class Variant(Document):
    """One value on the axis that is compared."""

    kernel: Name
    tunables: dict[str, str | int] = Field(default_factory=dict)


class WorkloadUse(Document):
    """A workload and the parameters in which this study differs from its defaults."""

    name: Name
    parameters: dict[str, Parameter] = Field(default_factory=dict)


class Claim(Document):
    """An expectation that every run of a variant must meet.

    `at_least` and `at_most` include the bound itself, `above` and `below` do not.
    """

    text: str
    variant: Name
    measure: str
    at_least: Bound | None = None
    at_most: Bound | None = None
    above: Bound | None = None
    below: Bound | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "Claim":
        if not self.bounds:
            raise ValueError("a claim needs at_least, at_most, above or below")
        return self

    @property
    def bounds(self) -> tuple[tuple[str, float], ...]:
        """The bounds that are set, each with its sign."""
        signs = ((">=", self.at_least), ("<=", self.at_most), (">", self.above), ("<", self.below))
        return tuple((sign, bound) for sign, bound in signs if bound is not None)

    def holds(self, value: float | None) -> bool:
        """Say whether a measured value is within the bounds; what was not measured is not."""
        if value is None:
            return False
        return all(_COMPARE[sign](value, bound) for sign, bound in self.bounds)


class LimitsTable(Document):
    """Wall-clock deadlines in seconds; a guest that misses one is ended as lost."""

    boot: float = Field(default=Limits.boot, gt=0, allow_inf_nan=False)
    silence: float = Field(default=Limits.silence, gt=0, allow_inf_nan=False)
    run: float = Field(default=Limits.total, gt=0, allow_inf_nan=False)


class Study(Document):
    """A study file, whole and valid in itself; `lab.study.plan` checks what it refers to.

    A report compares the variants on one machine with one workload, so there is one of each.
    """

    question: str
    summary: str = ""
    source: str = ""
    topologies: tuple[str, ...] = Field(min_length=1, max_length=1)
    image: Name = "base"
    mode: Literal["auto", "kvm", "tcg", "icount"] = "auto"
    seeds: tuple[Annotated[int, Field(ge=0, lt=1 << 32)], ...] = Field(min_length=1)
    variants: dict[Name, Variant] = Field(min_length=1)
    workloads: tuple[WorkloadUse, ...] = Field(min_length=1, max_length=1)
    capture: dict[str, Any] = Field(default_factory=dict)
    claims: tuple[Claim, ...] = ()
    key_measures: tuple[str, ...] = ()
    limits: LimitsTable = LimitsTable()

    @model_validator(mode="after")
    def _consistent(self) -> "Study":
        for seeds_or_names in (self.seeds, self.topologies):
            if len(set(seeds_or_names)) != len(seeds_or_names):
                raise ValueError("seeds and topologies may each name a value only once")
        for claim in self.claims:
            if claim.variant not in self.variants:
                names = ", ".join(self.variants)
                raise ValueError(f"claims: no variant {claim.variant!r} (valid: {names})")
        return self


def find_study(name_or_path: str) -> Path:
    """Return the path of a study given by path or by its name in `studies/`.

    Raises UserError with the names there are.
    """
    if (path := Path(name_or_path)).suffix == ".toml":
        return path
    folder = project_dir() / "studies"
    if (path := folder / f"{name_or_path}.toml").exists():
        return path
    names = sorted(entry.stem for entry in folder.glob("*.toml"))
    raise UserError(f"no study {name_or_path!r}", file=folder, choices=names)


def load_study(path: Path) -> Study:
    """Read and check a study file; UserError names the file, the key and what would be valid."""
    return read_document(path, Study)
