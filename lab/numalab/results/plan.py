"""plan.json: the runs of a study, and how they were chosen."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from numalab.document import Count, Listed
from numalab.errors import shown
from numalab.results.stored import FORMAT, PlainName, Seconds, Seed, Stored
from numalab.units import format_seconds, runs_of

MOST_RUNS = 500_000  # of which a plan is read within 2 GiB of memory


@dataclass(frozen=True)
class Cell:
    """A machine with a labelled use of a workload. Variants are compared within a cell."""

    topology: str
    label: str

    def __str__(self) -> str:
        """Return its name in reports."""
        return f"{self.topology}, {self.label}"

    @property
    def name(self) -> str:
        """Its part of the names of runs and folders."""
        return f"{self.topology}_{self.label}"


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


class StopReason(StrEnum):
    """Why a cell gets no more repetitions."""

    DIFFERENCE_SHOWN = "difference shown"
    INTERVAL_NARROW = "interval narrow"
    ALL_THE_SAME = "all the same"
    NOT_MEASURED = "not measured"
    REDEFINED = "redefined"
    ONE_VARIANT = "one variant"
    MOST_RUNS = "most runs"


_IN_WORDS = {
    StopReason.DIFFERENCE_SHOWN: "a difference was shown",
    StopReason.INTERVAL_NARROW: "its interval is about 0",
    StopReason.ALL_THE_SAME: "all runs gave the same value",
    StopReason.NOT_MEASURED: "it could not be measured",
    StopReason.REDEFINED: "numalab or a plug-in defined it otherwise between the runs",
    StopReason.ONE_VARIANT: "there is one variant",
}


class Decided(Stored):
    """A cell (as reports name it) that gets no more repetitions: why, and how many runs it has of
    each variant."""

    cell: str
    why: tuple[StopReason, ...]
    runs: Count

    def __str__(self) -> str:
        """Write it as reports do."""
        most = f"there are {self.runs} runs of each variant"
        return f"{self.cell}: {'; '.join(_IN_WORDS.get(why, most) for why in self.why)}"


class BudgetRemark(Stored):
    """Some of the runs were chosen, for a budget of wall time."""

    kind: Literal["budget"] = "budget"
    chosen: Count
    planned: Count
    seconds: Seconds

    def __str__(self) -> str:
        """Write it as reports do."""
        return (
            f"{self.chosen} of {self.planned} runs were estimated to fit into a budget of"
            f" {format_seconds(self.seconds)}; each cell comes once before it is repeated"
        )


class TimeOverRemark(Stored):
    """The time was over before the last of the runs could be started: `left` were not. If none
    was left, a rule demanded further repetitions."""

    kind: Literal["time over"] = "time over"
    left: Count

    def __str__(self) -> str:
        """Write it as reports do."""
        if not self.left:
            return "the time was over before all cells were decided"
        return f"the time was over before {runs_of(self.left)} more could be done"


class RepetitionsRemark(Stored):
    """Repetitions are added by a rule: until a measure was decided at a level, its interval lay
    within a precision (percent) of the mean before, or there were the most runs."""

    kind: Literal["repetitions"] = "repetitions"
    measure: str
    level: float
    looks: Count
    precision: float
    most: Count
    decided: tuple[Decided, ...] = ()

    def __str__(self) -> str:
        """Write it as reports do."""
        rule = (
            f"repetitions are added until {self.measure} shows a difference (p < {self.level:g} /"
            f" {self.looks}, for {self.looks} looks at most), or its 95 % interval lies within"
            f" +-{self.precision:g} % of the mean before, or each variant has {self.most} runs"
        )
        return "; ".join([rule, *map(str, self.decided)])


class LeftOutRemark(Stored):
    """A cell has no runs because its workload does not fit its machine."""

    LONGEST: ClassVar[int] = 500

    kind: Literal["left out"] = "left out"
    cell: str
    why: Annotated[str, Field(max_length=LONGEST)]

    def __str__(self) -> str:
        """Write it as reports do."""
        return f"left out: {self.cell}: {self.why}"


class ClaimsLeftOutRemark(Stored):
    """The preset leaves no runs for these claims."""

    SHOWN: ClassVar[int] = 3

    kind: Literal["claims left out"] = "claims left out"
    claims: Listed[Annotated[str, Field(max_length=LeftOutRemark.LONGEST)]]

    def __str__(self) -> str:
        """Write it as reports do."""
        first, whose = f"{len(self.claims)} claims are", "they have"
        if len(self.claims) == 1:
            first, whose = "a claim is", "it has"
        why = f"{first} not judged, as {whose} no runs"
        more = len(self.claims) - self.SHOWN
        end = f"; and {more} more" if more > 0 else ""
        return f"{why}: {'; '.join(self.claims[: self.SHOWN])}{end}"


class AddedRemark(Stored):
    """Fresh runs were added to cells in which the first runs seemed to differ."""

    kind: Literal["added"] = "added"
    first: Count
    level: float
    looks: tuple[Count, ...]

    def __str__(self) -> str:
        """Write it as reports do."""
        return (
            f"runs of each variant after the first {self.first} were added where these seemed to"
            f" differ; only the added runs decide, at {' and '.join(map(str, self.looks))} runs,"
            f" with an error rate of {self.level:g} for all decisions together"
        )


Remark = Annotated[
    BudgetRemark
    | TimeOverRemark
    | RepetitionsRemark
    | LeftOutRemark
    | ClaimsLeftOutRemark
    | AddedRemark,
    Field(discriminator="kind"),
]


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
    def out_of_time(self) -> int:
        """How many of the runs a budget of time left out, by the remarks.

        Older plans do not have the runs that a budget left out.
        """
        budgets = [
            remark
            for remark in self.remarks
            if isinstance(remark, BudgetRemark) and remark.planned <= len(self.runs)
        ]
        ends = [remark for remark in self.remarks if isinstance(remark, TimeOverRemark)]
        left_out = sum(remark.planned - remark.chosen for remark in budgets)
        return left_out + sum(remark.left for remark in ends)

    @property
    def cmdline(self) -> Any:
        """The further kernel parameters, as the study's file says them."""
        machine = self.file.get("machine", {})
        return machine.get("cmdline", ()) if isinstance(machine, dict) else ()

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
    """Write remarks for a reader; their texts may be of another person's plan."""
    return tuple(shown(str(remark)) for remark in remarks)
