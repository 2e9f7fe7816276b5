"""The outlook of a study before anything is built: its runs, their cost, and its claims."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from numalab.campaign.cost_model import Cost, Costs
from numalab.campaign.schedule import at_once, makespan
from numalab.campaign.task import BESIDE_GUEST_MIB
from numalab.emulator.emulator_artifact import built_emulator
from numalab.emulator.emulator_specs import emulator_for
from numalab.guest.verdicts import any_verdict, known_verdict, unusable_device
from numalab.host.read import available_mib
from numalab.image.image_artifact import built_image
from numalab.kernel.kernel_build import built_kernel
from numalab.kernel.kernel_specs import KernelSpec, load_kernels
from numalab.machine.model import MODES, Mode
from numalab.placement.admission import host_cpus
from numalab.results.layout import Results
from numalab.results.plan import Cell, PlannedRun
from numalab.results.reader import StoredRun, load_runs
from numalab.statistics.comparison import smallest_effect
from numalab.study.claims import Claim, claims_about
from numalab.study.plan import Plan

# Measured on 2 CPUs. A kernel that differs only in its series reuses the built tree of the first.
KERNEL_SECONDS, PATCHED_SECONDS, IMAGE_SECONDS, EMULATOR_SECONDS = 270.0, 15.0, 60.0, 480.0


@dataclass(frozen=True)
class RunOutlook:
    """A run and its demand: host CPUs, memory in MiB, wall time."""

    run: PlannedRun
    cpus: int
    memory_mib: int
    cost: Cost


@dataclass(frozen=True)
class StudyOutlook:
    """The demand of a study.

    `to_build` names the builds that the cache lacks; `reason` is why it has this mode; `jobs` is
    how many guests run at once by default.
    """

    name: str
    mode: Mode
    reason: str
    runs: tuple[RunOutlook, ...]
    to_build: tuple[str, ...]
    build_seconds: float
    host_memory_mib: int
    jobs: int

    @property
    def largest_mib(self) -> int:
        """The memory of the largest run."""
        return max(run.memory_mib for run in self.runs)

    def at_once(self, jobs: int) -> int:
        """How many of `jobs` guests the host's memory allows at once."""
        return max(1, min(jobs, self.host_memory_mib // self.largest_mib))

    def seconds(self, jobs: int) -> float:
        """The wall seconds of all runs with so many at once, the longest first."""
        costs = sorted((run.cost.seconds for run in self.runs), reverse=True)
        return makespan(costs, self.at_once(jobs))


def look_ahead(plan: Plan, mode: str | None) -> StudyOutlook:
    """Return the demand of a study; `mode` replaces the mode of its file."""
    chosen, reason = _mode(plan, mode or plan.study.mode)
    costs = Costs()
    needs: dict[tuple[str, str], tuple[int, int, Cost]] = {}  # by cell: plans may have 10^5 runs
    for cell, workload in plan.workloads.items():
        topology = plan.topologies[cell.topology]
        cost = costs.of(topology, workload, chosen, plan.study.machine.slow_motion)
        cpus = host_cpus(chosen, topology.cpu_count)
        memory = topology.memory_mib + BESIDE_GUEST_MIB
        needs[cell.topology, cell.label] = cpus, memory, cost
    runs = [RunOutlook(run, *needs[run.topology, run.workload]) for run in plan.runs]
    lacks = [f"kernel {name}" for name, spec in plan.kernels.items() if _to_build(spec)]
    seconds = _kernel_seconds(plan.kernels.values())
    emulator = emulator_for(chosen, plan.study.machine.emulator)
    if emulator is not None and built_emulator(emulator) is None:
        lacks.append(f"emulator {emulator.name}")
        seconds += EMULATOR_SECONDS
    if built_image(plan.recipe) is None:
        lacks.append(f"image {plan.recipe.name}")
        seconds += IMAGE_SECONDS
    jobs = at_once(plan.study, chosen, plan.topologies.values())
    return StudyOutlook(
        plan.name, chosen, reason, tuple(runs), tuple(lacks), seconds, available_mib(), jobs
    )


def _kernel_seconds(specs: Iterable[KernelSpec]) -> float:
    """Return the estimated wall seconds to build the kernels that the cache lacks.

    The first kernel of a source and a configuration takes minutes, all others seconds. Built ones
    may be of this study or of `kernels.toml`.
    """
    lacking = [spec for spec in specs if _to_build(spec)]
    if not lacking:
        return 0.0
    trees = {_tree(spec) for spec in load_kernels().values() if built_kernel(spec) is not None}
    seconds = 0.0
    for spec in lacking:
        seconds += PATCHED_SECONDS if _tree(spec) in trees else KERNEL_SECONDS
        trees.add(_tree(spec))
    return seconds


def _tree(spec: KernelSpec) -> tuple[str, tuple[str, ...]]:
    return spec.source, tuple(spec.fragments)


def _to_build(spec: KernelSpec) -> bool:
    """Return whether a kernel has to be built or fetched; a path names one that exists."""
    return built_kernel(spec) is None and not (spec.is_prebuilt and spec.package is None)


def _mode(plan: Plan, wanted: str) -> tuple[Mode, str]:
    """Return the expected mode. Only a boot shows whether KVM works."""
    for mode in MODES:
        if wanted == mode:
            return mode, "asked for"
    if unusable := unusable_device():
        return "icount", unusable
    built = [kernel for spec in plan.kernels.values() if (kernel := built_kernel(spec))]
    verdicts = [known_verdict(kernel.bzimage, plan.study.machine.cmdline) for kernel in built] or [
        any_verdict()
    ]
    tried = [verdict for verdict in verdicts if verdict is not None]
    if not tried:
        return "icount", "not yet tried whether KVM runs a guest here; taken not to"
    if all(verdict.works for verdict in tried):
        return "kvm", tried[0].reason
    return "icount", next(verdict.brief for verdict in tried if not verdict.works)


def total_seconds(outlooks: Sequence[StudyOutlook], jobs: int) -> float:
    """The wall seconds of the runs of several studies with so many at once."""
    costs = [run.cost.seconds for outlook in outlooks for run in outlook.runs]
    places = min((outlook.at_once(jobs) for outlook in outlooks), default=1)
    return makespan(sorted(costs, reverse=True), places)


@dataclass(frozen=True)
class ClaimOutlook:
    """A claim of one cell before its runs.

    `smallest` is the smallest true change that `seeds` runs a variant would show, in percent of the
    mean of the first variant, by how far stored runs of the same cell, variants and mode spread;
    None where fewer than two of each are stored, or their mean is 0. `stored` is how many there are
    of the variant that has fewer. `published` is the source's own change in percent.
    """

    cell: Cell
    text: str
    measure: str
    refuted: str
    seeds: int
    smallest: float | None
    stored: int
    published: float | None

    @property
    def too_few(self) -> bool:
        """Whether these seeds probably do not show an effect of the published size."""
        if self.smallest is None or self.published is None:
            return False
        return self.smallest > abs(self.published)


def look_at_claims(plan: Plan, mode: str, folder: Path) -> tuple[ClaimOutlook, ...]:
    """Look at each claim in each cell that it is about.

    `folder` holds results, as `reports` does: those of the study, and of `examples`.
    """
    stored = _stored(plan.name, mode, folder)
    return tuple(
        _claim_outlook(plan, claim, cell, stored)
        for cell in plan.cells
        for claim in claims_about(plan.study.claims, cell, plan.runs_of(cell))
    )


def _stored(name: str, mode: str, folder: Path) -> tuple[StoredRun, ...]:
    """Return the runs in this mode of the newest results that have any."""
    for results in _newest_first(name, folder):
        _, runs = load_runs(results)
        if fitting := tuple(run for run in runs if run.manifest.mode == mode):
            return fitting
    return ()


def _newest_first(name: str, folder: Path) -> Iterator[Results]:
    own = sorted((folder / name).glob("*/plan.json"), reverse=True)
    yield from (Results(path.parent) for path in own)
    if (example := Results(folder / "examples" / name)).exist:
        yield example


def _claim_outlook(
    plan: Plan, claim: Claim, cell: Cell, stored: Sequence[StoredRun]
) -> ClaimOutlook:
    runs = plan.runs_of(cell)
    seeds = len({run.seed for run in runs})
    before, after = (
        [
            value
            for run in stored
            if run.cell == cell and run.manifest.variant == variant
            if (value := run.value(claim.measure)) is not None
        ]
        for variant in (claim.from_variant, claim.to)
    )
    about = claims_about(plan.study.claims, cell, runs)
    family = sum(other.variant is None for other in about)
    smallest = smallest_effect(before, after, runs=seeds, family=family)
    mean = sum(before) / len(before) if before else 0
    return ClaimOutlook(
        cell=cell,
        text=claim.text,
        measure=claim.measure,
        refuted=claim.refuted,
        seeds=seeds,
        smallest=100 * smallest / abs(mean) if mean and smallest is not None else None,
        stored=min(len(before), len(after)),
        published=claim.published_change,
    )
