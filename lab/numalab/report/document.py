"""The report of a study as a value. Its fields are the keys of `report.json`.

`StudyResults` holds figures that other modules computed. A field marked `NotInJson` is for the
pages and the other formats. docs/report.schema.json is the schema of the rest. `VERSION` rises when
a key changes its meaning or goes away; a new key does not raise it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from typing import Annotated, Literal

from pydantic import Field, computed_field

from numalab.analysis.findings import Findings
from numalab.measure import MeasureInfo
from numalab.reach.model import PatchReach
from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.comparisons import MeasureComparison
from numalab.report.differences import (
    CellDifferences,
    MeasureDifference,
    compared,
    in_cell,
    over_all_cells,
    ranked,
)
from numalab.report.json_fields import (
    MachineLayout,
    Measured,
    MeasureDefinition,
    NotInJson,
    serialised_as,
)
from numalab.report.modes import RunMode
from numalab.report.settings import GuestSettings
from numalab.report.timeline import Timeline
from numalab.results.manifest import RunStatus
from numalab.results.plan import Cell
from numalab.topology.sched_domains import CpuDomains
from numalab.topology.topology import Topology

FORMAT: Literal["numalab-report"] = "numalab-report"
VERSION: Literal[3] = 3
ANY, ANY_NODE = "any", "any host node"  # as the requested placement: nothing in particular
NOT_RUN = "not run"  # the status of a planned run that was never started
NO_TIME = "they did not fit into the budget"  # why a run was never started


@dataclass(frozen=True)
class CellWorkload:
    """The workload of a cell; `label` distinguishes several uses of one workload."""

    name: str
    label: str
    command: str
    parameters: Mapping[str, str | int | float]


@dataclass(frozen=True)
class VariantInfo:
    """One variant: usually a kernel. The first variant of a report is the baseline.

    `scheduler` is a sched_ext scheduler with its version and arguments, "" for EEVDF. `tunables`
    are those that not all variants have alike, such as `kernel/numa_balancing=0`.
    """

    name: str
    kernel: str
    release: str
    config_hash: str
    source_version: str
    series: tuple[str, ...] = ()
    compiler: str = ""
    summary: str = ""
    scheduler: str = ""
    tunables: tuple[str, ...] = ()

    @property
    def build(self) -> str:
        """The release, the patch series, the scheduler and the tunables."""
        return " + ".join(
            filter(None, [self.release, *self.series, self.scheduler, *self.tunables])
        )


@dataclass(frozen=True)
class PlacementFact:
    """One placement: what was requested, and what was read back from the running process.

    With `ANY` or `ANY_NODE` as the request, nothing can disagree.
    """

    subject: str
    asked: str
    read_back: Annotated[str, Field(serialization_alias="found")]

    @property
    def agrees(self) -> bool:
        """Whether the placement is as requested."""
        return self.asked in (ANY, ANY_NODE, self.read_back)


@dataclass(frozen=True)
class Provenance:
    """The programs, host and image of a run, its placement, and the events it recorded."""

    qemu: str
    libvirt: str
    host: str
    image: str
    image_digest: str
    placement: str
    events: int
    lost_events: int
    proof: tuple[PlacementFact, ...] = ()


@dataclass(frozen=True)
class Run:
    """One planned boot of one variant with one seed. `reason` is why it failed.

    `notes` say what its recording and its figures lack; they may be text of the guest.
    `status` is None for a run that has not ended: it was never started, or is running. A measure
    that the guest could not take is None, never 0.
    """

    id: str
    variant: str
    seed: int
    status: NotInJson[RunStatus | None]
    measures: Mapping[str, Measured]
    provenance: Provenance
    seconds: float | None = None
    reason: NotInJson[str] = ""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it finished; the figures of all other runs are left out of means."""
        return self.status is RunStatus.OK

    @computed_field(alias="status")
    @property
    def ending(self) -> str:
        """`ok`, or why the run has no result."""
        return self.reason or str(self.status or NOT_RUN)


@dataclass(frozen=True)
class SchedDomains:
    """The sched domains and groups of every CPU, as the kernel of one variant printed them.

    `errors` are the `ERROR:` lines that the kernel prints with `sched_verbose`.
    """

    variant: str
    cpus: tuple[CpuDomains, ...]
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunFindings:
    """The findings of one run of a variant: matrices, curves, decisions and lists."""

    variant: str
    run: str
    findings: Findings


@dataclass(frozen=True)
class CellReport:
    """The report of one cell: a topology with a use of a workload.

    `runs` are all planned runs, those without a result first. `cell` is the name, such as
    `ring-4, bound-hogs`. `remarks` say how the runs were chosen, if not by the study's file alone.
    `recreate` is the command that records the events again which compact results lack; empty for
    whole results.
    """

    study: NotInJson[str]
    question: NotInJson[str]
    verdict: str
    reference: NotInJson[str]
    axis: NotInJson[str]
    mode: RunMode
    workload: CellWorkload
    created: NotInJson[str]
    commands: NotInJson[tuple[str, ...]]
    topology: Annotated[Topology, serialised_as(MachineLayout)]
    variants: tuple[VariantInfo, ...]
    measures: tuple[Annotated[MeasureInfo, serialised_as(MeasureDefinition)], ...]
    key_measures: tuple[str, ...]
    runs: tuple[Run, ...]
    comparisons: tuple[MeasureComparison, ...]
    sched_domains: tuple[SchedDomains, ...] = ()
    timelines: NotInJson[tuple[Timeline, ...]] = ()
    claims: tuple[ClaimOutcome, ...] = ()
    findings: NotInJson[tuple[RunFindings, ...]] = ()
    cell: str = ""
    remarks: tuple[str, ...] = ()
    recreate: NotInJson[str] = ""
    settings: GuestSettings = field(default_factory=GuestSettings)

    @property
    def cell_name(self) -> str:
        """The cell's part of the names of runs and folders."""
        return f"{self.topology.name}_{self.workload.label}"

    @property
    def unfinished(self) -> tuple[Run, ...]:
        """The planned runs without a result."""
        return tuple(run for run in self.runs if not run.ok)

    @cached_property
    def compared(self) -> tuple[MeasureDifference, ...]:
        """Every comparison with the baseline, most important first, corrected in this cell only."""
        return compared(self.measures, self.key_measures, self.comparisons)

    def measure(self, name: str) -> MeasureInfo:
        """Return the definition of a measure. Raises KeyError for a measure the cell lacks."""
        for info in self.measures:
            if info.name == name:
                return info
        raise KeyError(name)

    def first_findings(self) -> list[tuple[int, RunFindings]]:
        """Return the findings of the first run of each variant, with the variant's index."""
        firsts: dict[str, RunFindings] = {}
        for run in self.findings:
            firsts.setdefault(run.variant, run)
        names = [variant.name for variant in self.variants]
        return [(place, firsts[name]) for place, name in enumerate(names) if name in firsts]

    def values(self, variant: str, measure: str) -> tuple[float, ...]:
        """Return a measure of the finished runs of a variant; missing and infinite ones are left
        out."""
        values = [
            run.measures.get(measure) for run in self.runs if run.variant == variant and run.ok
        ]
        return tuple(float(value) for value in values if value is not None and isfinite(value))


@dataclass(frozen=True)
class UnreportedCell:
    """A planned cell without a finished run, which judges none of its `claims`."""

    cell: Cell
    runs: tuple[Run, ...]
    claims: tuple[ClaimOutcome, ...] = ()


@dataclass(frozen=True)
class UnfinishedRun:
    """A planned run without a result. `reason` may be text of the guest."""

    cell: str
    id: str
    status: str
    reason: str
    variant: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Unfinished:
    """The planned and finished cells and runs, and every run without a result.

    A cell of which no run finished is not among the report's `cells`.
    """

    cells_planned: int
    cells_finished: int
    runs_planned: int
    runs_finished: int
    runs: tuple[UnfinishedRun, ...]


@dataclass(frozen=True)
class StudyResults:
    """The report of a study: the reports of its cells, and the planned cells without a report.

    Both are in the order of the plan. `commands` repeat the study. `reach` has the executions of
    changed lines, if they were counted. `verdict` is the text of the verdict on a patch, or empty.
    `path` is the study's file, relative to the project; empty if it lies elsewhere.
    """

    study: str
    question: str
    reference: str
    commands: Annotated[tuple[str, ...], Field(serialization_alias="again")]
    reports: Annotated[tuple[CellReport, ...], Field(serialization_alias="cells")]
    unreported: NotInJson[tuple[UnreportedCell, ...]] = ()
    reach: NotInJson[PatchReach | None] = None
    verdict: NotInJson[str] = ""
    path: NotInJson[str] = ""

    @classmethod
    def of(cls, *reports: CellReport) -> "StudyResults":
        """Return the results of a study in which every planned cell has a report."""
        first = reports[0]
        commands = dict.fromkeys(line for report in reports for line in report.commands)
        return cls(first.study, first.question, first.reference, tuple(commands), reports)

    def __iter__(self) -> Iterator[CellReport]:
        """Iterate over the reports."""
        return iter(self.reports)

    @computed_field
    @property
    def format(self) -> Literal["numalab-report"]:
        """The name of this format."""
        return FORMAT

    @computed_field
    @property
    def version(self) -> Literal[3]:
        """The version of this format."""
        return VERSION

    @computed_field
    @property
    def axis(self) -> str:
        """What the variants differ in."""
        return self.reports[0].axis if self.reports else "kernel"

    @computed_field
    @property
    def created(self) -> str:
        """When the first run started."""
        return self.reports[0].created if self.reports else ""

    @computed_field(alias="unfinished")
    @property
    def missing(self) -> Unfinished | None:
        """The runs without a result; null where every planned run finished."""
        runs = self.unfinished
        if not runs:
            return None
        finished = self.planned - len(runs)
        return Unfinished(self.cells, len(self.reports), self.planned, finished, runs)

    @computed_field
    @cached_property
    def differences(self) -> tuple[CellDifferences, ...]:
        """What differs, by cell: first the cells with something worse, then better, different."""
        cells = over_all_cells([report.compared for report in self.reports])
        return ranked(
            in_cell(report.cell, report.topology.name, report.workload.label, every)
            for report, every in zip(self.reports, cells, strict=True)
        )

    @property
    def holds(self) -> bool:
        """Whether every claim holds, and every required one is judged."""
        judged = [claim for report in self.reports for claim in report.claims]
        return not self.not_judged and all(claim.holds for claim in judged)

    @property
    def not_judged(self) -> tuple[ClaimOutcome, ...]:
        """The required claims of the cells without a report."""
        claims = [claim for cell in self.unreported for claim in cell.claims]
        return tuple(claim for claim in claims if claim.required)

    @property
    def cells(self) -> int:
        """The number of planned cells."""
        return len(self.reports) + len(self.unreported)

    @property
    def planned(self) -> int:
        """The number of planned runs."""
        return sum(len(runs) for _, runs in self._planned_runs)

    @property
    def unfinished(self) -> tuple[UnfinishedRun, ...]:
        """The planned runs without a result; those of cells without a report come first."""
        return tuple(
            UnfinishedRun(cell, run.id, str(run.status or NOT_RUN), run.reason,
                          run.variant, run.seed)
            for cell, runs in self._planned_runs
            for run in runs
            if not run.ok
        )  # fmt: skip

    @property
    def _planned_runs(self) -> list[tuple[str, tuple[Run, ...]]]:
        """All planned runs by cell; cells without a report come first."""
        unreported = [(str(cell.cell), cell.runs) for cell in self.unreported]
        return [*unreported, *((report.cell, report.runs) for report in self.reports)]
