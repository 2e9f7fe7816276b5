"""The shape of `report.json`, from which its JSON Schema (docs/report.schema.json) is made.

`version` rises when a key changes its meaning or goes away; new keys alone do not raise it.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

from numalab.measure import Direction, MeasureKind
from numalab.report.document import Mode, Provenance, SchedDomains, VariantInfo
from numalab.statistics.comparison import Outcome
from numalab.topology.model import Node

FORMAT: Final = "numalab-report"
VERSION: Final = 2

Number = int | float


@dataclass(frozen=True)
class ModeDocument:
    """The mode, why it was chosen, and what figures of each kind are worth in it.

    `model` says in lines of text what the model of mode timed is made of; none in other modes.
    """

    name: Mode
    reason: str
    placement: str
    timing: str
    modelled: str = ""
    model: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class TopologyDocument:
    """The machine; `distances` as `[from][to]`."""

    name: str
    summary: str
    nodes: list[Node]
    distances: list[list[int]]


@dataclass(frozen=True)
class WorkloadDocument:
    """The use of a workload in a cell: its label, command and parameters."""

    name: str
    label: str
    command: str
    parameters: dict[str, str | int | float]


@dataclass(frozen=True)
class MeasureDocument:
    """What a measure means; `source` is where its figures were read."""

    name: str
    unit: str
    direction: Direction
    kind: MeasureKind
    definition: str
    source: str


@dataclass(frozen=True)
class RunDocument:
    """One boot. `status` is `ok` or a reason; a measure that could not be taken is null."""

    id: str
    variant: str
    seed: int
    status: str
    seconds: float | None
    measures: dict[str, Number | None]
    provenance: Provenance


@dataclass(frozen=True)
class SideDocument:
    """The runs of one variant by one measure, and how they compare with the first variant's.

    All but `n` are null where no run could measure it, and the comparison's keys for the first
    variant itself. `interval` is the 95 % confidence interval of `difference`; `corrected` is
    `p_value` after Holm's correction over `family` measures.
    """

    n: int
    mean: float | None = None
    minimum: float | None = None
    maximum: float | None = None
    stddev: float | None = None
    harmonic_mean: float | None = None
    geometric_mean: float | None = None
    change_percent: float | None = None
    difference: float | None = None
    interval: tuple[float, float] | None = None
    test: str = ""
    p_value: float | None = None
    corrected: float | None = None
    family: int | None = None
    smallest_effect: float | None = None
    outcome: Outcome | None = None
    verdict: str = ""


@dataclass(frozen=True)
class ComparisonDocument:
    """One measure over all variants, by name; outcome and verdict are those of the last."""

    measure: str
    outcome: Outcome
    verdict: str
    variants: dict[str, SideDocument]


@dataclass(frozen=True)
class ClaimDocument:
    """What the study says should be seen, and what was; `verdict` in words, with its reason."""

    text: str
    expected: str
    measured: str
    holds: bool
    measure: str
    kind: str
    published: str
    verdict: str
    required: bool


@dataclass(frozen=True)
class CellDocument:
    """Everything of one cell: a topology with a use of a workload."""

    cell: str
    verdict: str
    remarks: list[str]  # how the runs were chosen, where not by the study's file alone
    mode: ModeDocument
    topology: TopologyDocument
    workload: WorkloadDocument
    variants: list[VariantInfo]
    measures: list[MeasureDocument]
    key_measures: list[str]
    runs: list[RunDocument]
    comparisons: list[ComparisonDocument]
    sched_domains: list[SchedDomains]
    claims: list[ClaimDocument]


@dataclass(frozen=True)
class UnfinishedRunDocument:
    """A planned run without a result; `reason` says why, in words that may be a guest's."""

    id: str
    cell: str
    variant: str
    seed: int
    status: Literal["failed", "lost", "interrupted", "not run"]
    reason: str


@dataclass(frozen=True)
class UnfinishedDocument:
    """What is missing: numbers of planned cells and runs, cells and runs with a result, and every
    run without one. `cells` has no document of a cell of which no run finished."""

    cells_planned: int
    cells_finished: int
    runs_planned: int
    runs_finished: int
    runs: list[UnfinishedRunDocument]


@dataclass(frozen=True)
class ReportDocument:
    """A study's report: what was asked, and a document for each cell.

    `unfinished` is there where a planned run has no result.
    """

    format: Literal["numalab-report"]
    version: Literal[2]
    study: str
    question: str
    reference: str
    axis: str
    created: str
    again: list[str]
    cells: list[CellDocument]
    unfinished: UnfinishedDocument | None = None
