"""plan.json: which runs a study has, and how they were chosen."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from numalab.document import Listed
from numalab.results.cell import Cell
from numalab.results.names import PlainName
from numalab.results.remarks import Remark
from numalab.results.stored import FORMAT, Seed, Stored

MOST_RUNS = 500_000  # of which a plan is read within 2 GiB of memory


@dataclass(frozen=True)
class PlannedRun:
    """One boot of one variant in one cell with one seed; `workload` is the label of its use."""

    id: PlainName
    topology: PlainName
    workload: PlainName
    variant: PlainName
    seed: Seed

    @property
    def cell(self) -> Cell:
        """The cell that it belongs to."""
        return Cell(self.topology, self.workload)


def planned_run(cell: Cell, variant: str, seed: int) -> PlannedRun:
    """Plan a run. The only maker of the names of runs."""
    return PlannedRun(f"{cell.name}_{variant}_{seed}", cell.topology, cell.label, variant, seed)


class StoredPlan(Stored):
    """The study as it was read with its preset, its digest, and the runs in their order.

    `path` is where its file was, `file` its tables, `remarks` how the runs were chosen.
    """

    format: Literal[5] = FORMAT
    study: Annotated[str, Field(max_length=400)]
    digest: str
    path: Annotated[str, Field(max_length=4096)]
    preset: Annotated[str, Field(max_length=400)]
    file: dict[str, Any]
    remarks: Listed[Remark] = ()
    runs: Annotated[Listed[PlannedRun], Field(max_length=MOST_RUNS)]

    @model_validator(mode="after")
    def _once(self) -> "StoredPlan":
        if len({run.id for run in self.runs}) < len(self.runs):
            raise ValueError("a run is planned twice")
        return self

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that have runs, in the order of the plan."""
        return tuple(self._by_cell)

    @property
    def capture(self) -> Any:
        """What was recorded, as the study's file says it."""
        return self.file.get("capture", {})

    def runs_of(self, cell: Cell) -> tuple[PlannedRun, ...]:
        """Return the runs of a cell."""
        return self._by_cell.get(cell, ())

    @cached_property
    def _by_cell(self) -> dict[Cell, tuple[PlannedRun, ...]]:
        return by_cell(self.runs)


def by_cell(runs: Iterable[PlannedRun]) -> dict[Cell, tuple[PlannedRun, ...]]:
    """Return the runs of each cell, both in their order."""
    groups: dict[Cell, list[PlannedRun]] = {}
    for run in runs:
        groups.setdefault(run.cell, []).append(run)
    return {cell: tuple(group) for cell, group in groups.items()}


def texts(remarks: Iterable[Remark]) -> tuple[str, ...]:
    """Write remarks for a reader."""
    return tuple(map(str, remarks))
