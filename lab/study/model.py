"""The study file: a question, the matrix that answers it, and what is expected."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lab.document import Document, read_document
from lab.errors import UserError
from lab.store import project_dir

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$", max_length=64)]
Parameter = str | int | float


class Variant(Document):
    """One value on the axis that is compared."""

    kernel: Name
    tunables: dict[str, str | int] = Field(default_factory=dict)


class WorkloadUse(Document):
    """A workload and the parameters in which this study differs from its defaults."""

    name: Name
    parameters: dict[str, Parameter] = Field(default_factory=dict)


class Claim(Document):
    """An expectation that every run of a variant must meet; the bounds are inclusive."""

    text: str
    variant: Name
    measure: str
    at_least: float | None = None
    at_most: float | None = None

    @model_validator(mode="after")
    def _bounded(self) -> "Claim":
        if self.at_least is None and self.at_most is None:
            raise ValueError("a claim needs at_least or at_most")
        return self

    def holds(self, value: float | None) -> bool:
        """Say whether a measured value is within the bounds; what was not measured is not."""
        if value is None:
            return False
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )


class LimitsTable(Document):
    """Wall-clock deadlines in seconds; a guest that misses one is ended as lost."""

    boot: float = Field(default=120, gt=0)
    silence: float = Field(default=60, gt=0)
    run: float = Field(default=600, gt=0)


class Study(Document):
    """A study file, whole and valid in itself; `lab.study.plan` checks what it refers to."""

    question: str
    summary: str = ""
    source: str = ""
    topologies: tuple[str, ...] = Field(min_length=1)
    image: Name = "base"
    mode: Literal["auto", "kvm", "tcg", "icount"] = "auto"
    seeds: tuple[Annotated[int, Field(ge=0, lt=1 << 32)], ...] = Field(min_length=1)
    variants: dict[Name, Variant] = Field(min_length=1)
    workloads: tuple[WorkloadUse, ...] = Field(min_length=1)
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
