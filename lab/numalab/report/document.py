"""What a report shows, as one plain value.

`StudyReport` holds figures that other rooms computed; nothing here computes. Every renderer in
this room takes one `StudyReport` and gives text or bytes, so a report can be made again from a
stored result without a guest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Literal

from numalab.analysis.findings import Findings
from numalab.measure import ClaimVerdict, MeasureInfo
from numalab.recording.timeline import Mark
from numalab.results.cell import Cell
from numalab.results.manifest import RunStatus
from numalab.statistics.comparison import Comparison, Outcome
from numalab.statistics.summary import Summary
from numalab.topology.model import Topology
from numalab.topology.sched_domains import CpuDomains

# `recording`: a trace.dat from anywhere, with no guest of ours.
Mode = Literal["kvm", "tcg", "icount", "timed", "recording"]
Standing = Literal["for", "against", "neither"]
ANY, ANY_NODE = "any", "any host node"  # of a placement: nothing in particular
NOT_RUN = "not run"  # the ending of a planned run that was never started


@dataclass(frozen=True)
class Reading:
    """One measure of one run. `value` is None when the guest could not measure it, never 0."""

    measure: str
    value: float | int | None


@dataclass(frozen=True)
class VariantInfo:
    """One value on the compared axis: usually one kernel. The first variant is the base."""

    name: str
    kernel: str
    release: str
    config_hash: str
    source_version: str
    series: tuple[str, ...] = ()
    compiler: str = ""
    summary: str = ""


@dataclass(frozen=True)
class PlacementFact:
    """One placement fact: what was asked for and what was read back from the running process.

    `asked` may be `ANY` or `ANY_NODE`: then nothing can disagree.
    """

    subject: str
    asked: str
    found: str

    @property
    def agrees(self) -> bool:
        """Whether it is as asked."""
        return self.asked in (ANY, ANY_NODE, self.found)


@dataclass(frozen=True)
class Provenance:
    """What a run ran on, and how much of its recording survived."""

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
    """One planned boot of one variant with one seed. `reason` says why it did not end well.

    `status` is None for a run that has not ended: it was never started, or is under way.
    """

    id: str
    variant: str
    seed: int
    status: RunStatus | None
    readings: tuple[Reading, ...]
    provenance: Provenance
    seconds: float | None = None
    reason: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ended well; the figures of another are in no mean."""
        return self.status is RunStatus.OK

    @property
    def ending(self) -> str:
        """How it ended, for people: `ok`, or why not."""
        return self.reason or str(self.status or NOT_RUN)


@dataclass(frozen=True)
class MeasureComparison:
    """One measure over all variants, in the order of `StudyReport.variants`.

    A summary is None when no run of that variant could measure it. `changes` are percentages of
    the first variant's mean; None for the first variant itself and where that mean is 0 or absent.
    `versus` holds each variant's comparison with the first, None for the first itself; outcome and
    verdict are those of the last.
    """

    measure: str
    summaries: tuple[Summary | None, ...]
    changes: tuple[float | None, ...]
    outcome: Outcome
    verdict: str
    versus: tuple[Comparison | None, ...] = ()

    def outcome_of(self, index: int) -> Outcome:
        """Return how variant `index` compares with the first."""
        versus = self.versus[index] if index < len(self.versus) else None
        return versus.outcome if versus else self.outcome


@dataclass(frozen=True)
class SchedDomains:
    """The sched domains and groups of every CPU as one variant's kernel printed them.

    `errors` are the kernel's own `ERROR:` lines under `sched_verbose`.
    """

    variant: str
    cpus: tuple[CpuDomains, ...]
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Span:
    """A task ran on a CPU of a node, from `start_ms` to `end_ms` after the window's begin.

    `node` is None where the recording came without the machine, or it lacks the CPU.
    """

    cpu: int
    node: int | None
    start_ms: float
    end_ms: float
    task: str
    of_interest: bool


@dataclass(frozen=True)
class Timeline:
    """Who ran where in one run of one variant. Time without a span is idle."""

    variant: str
    run: str
    length_ms: float
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class RunFindings:
    """What the analysis of one run of a variant found: matrices, curves, decisions and lists."""

    variant: str
    run: str
    findings: Findings


@dataclass(frozen=True)
class ClaimOutcome:
    """What the study says should be seen, and what was.

    `verdict` is that of a comparison between variants (empty for bounds on one variant):
    `reproduced`, `opposite`, `no difference shown` or `cannot be seen`, which has a `reason`;
    `published` is what the source says of it. A claim that is not `required` is only shown: it
    always holds.
    """

    text: str
    expected: str
    measured: str
    holds: bool
    measure: str = ""
    kind: str = ""
    published: str = ""
    verdict: ClaimVerdict | Literal[""] = ""
    required: bool = True
    reason: str = ""

    @property
    def standing(self) -> Standing:
        """Whether it speaks for the source, against it, or for neither."""
        if not self.holds or self.verdict == "opposite":
            return "against"
        return "for" if self.verdict in {"", "reproduced"} else "neither"

    @property
    def verdict_text(self) -> str:
        """The verdict in words, with its reason."""
        why = f" because {self.reason}" if self.reason else ""
        return f"{self.verdict_in_mode}{why}"

    @property
    def verdict_in_mode(self) -> str:
        """The verdict in words, without its reason."""
        return f"{self.verdict} in this mode" if self.reason else self.verdict


@dataclass(frozen=True)
class StudyReport:
    """Everything a report shows of one cell: a topology with a use of a workload.

    Tuples are in the order in which they are shown; `runs` are all planned ones, those without a
    result first. `cell` names it ("ring-4, bound-hogs"),
    `workload_label` tells apart several uses of a workload, `parameters` are those it ran with.
    `remarks` say how the runs were chosen, where not by the study's file alone. `model` are lines
    that say what the model of mode timed is made of, the first two of them in words.
    """

    study: str
    question: str
    verdict: str
    reference: str
    axis: str
    mode: Mode
    mode_reason: str
    workload: str
    created: str
    commands: tuple[str, ...]
    topology: Topology
    topology_svg: str
    variants: tuple[VariantInfo, ...]
    measures: tuple[MeasureInfo, ...]
    key_measures: tuple[str, ...]
    runs: tuple[Run, ...]
    comparisons: tuple[MeasureComparison, ...]
    domains: tuple[SchedDomains, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    claims: tuple[ClaimOutcome, ...] = ()
    findings: tuple[RunFindings, ...] = ()
    cell: str = ""
    workload_name: str = ""
    workload_label: str = ""
    parameters: Mapping[str, str | int | float] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    model: tuple[str, ...] = ()

    @property
    def cell_name(self) -> str:
        """The cell's part of the names of runs and folders."""
        return f"{self.topology.name}_{self.workload_label}"

    @property
    def unfinished(self) -> tuple[Run, ...]:
        """The planned runs without a result."""
        return tuple(run for run in self.runs if not run.ok)

    def measure(self, name: str) -> MeasureInfo:
        """Return what is known about a measure. Raises KeyError for a name the report lacks."""
        for info in self.measures:
            if info.name == name:
                return info
        raise KeyError(name)

    def first_findings(self) -> list[tuple[int, RunFindings]]:
        """Return what was found in the first run of each variant, with the variant's place."""
        firsts: dict[str, RunFindings] = {}
        for run in self.findings:
            firsts.setdefault(run.variant, run)
        names = [variant.name for variant in self.variants]
        return [(place, firsts[name]) for place, name in enumerate(names) if name in firsts]

    def values(self, variant: str, measure: str) -> tuple[float, ...]:
        """Return what the runs of a variant that ended well measured, in the order of the runs.

        Runs without the value, and what is not a finite number, are left out.
        """
        return tuple(
            float(reading.value)
            for run in self.runs
            if run.variant == variant and run.ok
            for reading in run.readings
            if reading.measure == measure and reading.value is not None and isfinite(reading.value)
        )


@dataclass(frozen=True)
class UnreportedCell:
    """A planned cell of which no run finished."""

    cell: Cell
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class StudyResults:
    """The results of a study: the reports of its cells, and the planned cells that have none.

    Both are in the order of the plan. `commands` repeat the study.
    """

    study: str
    question: str
    reference: str
    commands: tuple[str, ...]
    reports: tuple[StudyReport, ...]
    unreported: tuple[UnreportedCell, ...] = ()

    @classmethod
    def of(cls, *reports: StudyReport) -> "StudyResults":
        """Return the results of a study in which every planned cell has a report."""
        first = reports[0]
        commands = dict.fromkeys(line for report in reports for line in report.commands)
        return cls(first.study, first.question, first.reference, tuple(commands), reports)

    def __iter__(self) -> Iterator[StudyReport]:
        """Iterate over the reports."""
        return iter(self.reports)

    @property
    def holds(self) -> bool:
        """Whether every claim holds."""
        return all(claim.holds for report in self.reports for claim in report.claims)

    @property
    def cells(self) -> int:
        """The number of planned cells."""
        return len(self.reports) + len(self.unreported)

    @property
    def planned(self) -> int:
        """The number of planned runs."""
        cells = [report.runs for report in self.reports] + [cell.runs for cell in self.unreported]
        return sum(map(len, cells))

    @property
    def unfinished(self) -> tuple[tuple[str, Run], ...]:
        """The planned runs without a result, each with its cell; cells without a report first."""
        pairs = [(str(cell.cell), cell.runs) for cell in self.unreported]
        pairs += [(report.cell, report.unfinished) for report in self.reports]
        return tuple((cell, run) for cell, runs in pairs for run in runs)
