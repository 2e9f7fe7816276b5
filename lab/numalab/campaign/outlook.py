"""The outlook of a study before anything is built: its runs, their cost, and its claims."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from numalab.campaign.cost_model import Cost, Costs
from numalab.campaign.schedule import at_once, makespan
from numalab.campaign.task import BESIDE_GUEST_MIB
from numalab.emulator.emulator_artifact import built_emulator
from numalab.emulator.emulator_specs import emulator_for
from numalab.errors import UserError
from numalab.guest.verdicts import any_verdict, known_verdict, unusable_device
from numalab.host.read import available_mib
from numalab.image.image_artifact import built_image
from numalab.kernel.kernel_build import built_kernel
from numalab.kernel.kernel_specs import KernelSpec, load_kernels
from numalab.machine.model import MODES, Mode
from numalab.placement.admission import host_cpus
from numalab.results.layout import Results, newest_first
from numalab.results.plan import Cell, PlannedRun, texts
from numalab.results.reader import StoredRun, load_runs
from numalab.statistics.scale import Scale, change_of
from numalab.statistics.shift import LEVEL, fewest_runs, smallest_shift
from numalab.statistics.verdict import (
    FAMILIES,
    ClaimTest,
    Family,
    claim_test,
    family_level,
)
from numalab.study.claim_rules import info_of
from numalab.study.claims import Claim, claims_about
from numalab.study.plan import Plan
from numalab.study.unseen import not_of_hardware, why_unseen
from numalab.units import unit_of_difference

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
    how many guests run at once by default; `remarks` say what is left out.
    """

    name: str
    mode: Mode
    reason: str
    runs: tuple[RunOutlook, ...]
    to_build: tuple[str, ...]
    build_seconds: float
    host_memory_mib: int
    jobs: int
    remarks: tuple[str, ...] = ()

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
        cost = costs.of(topology, workload, chosen, plan.study.machine)
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
        name=plan.name,
        mode=chosen,
        reason=reason,
        runs=tuple(runs),
        to_build=tuple(lacks),
        build_seconds=seconds,
        host_memory_mib=available_mib(),
        jobs=jobs,
        remarks=texts(plan.remarks),
    )


def _kernel_seconds(specs: Iterable[KernelSpec]) -> float:
    """Return the estimated wall seconds to build the kernels that the cache lacks.

    The first kernel of a source and a configuration takes minutes, all others seconds. Built ones
    may be of this study or of `kernels.toml`.
    """
    lacking = [spec for spec in specs if _to_build(spec)]
    if not lacking:
        return 0.0
    wanted = {_tree(spec) for spec in lacking}
    named = [spec for spec in load_kernels().values() if _tree(spec) in wanted]
    trees = {_tree(spec) for spec in named if built_kernel(spec) is not None}
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
    return "icount", next(verdict.refusal for verdict in tried if not verdict.works)


def total_seconds(outlooks: Sequence[StudyOutlook], jobs: int) -> float:
    """The wall seconds of the runs of several studies with so many at once."""
    costs = [run.cost.seconds for outlook in outlooks for run in outlook.runs]
    places = min((outlook.at_once(jobs) for outlook in outlooks), default=1)
    return makespan(sorted(costs, reverse=True), places)


@dataclass(frozen=True)
class ClaimOutlook:
    """A claim of one cell before its runs.

    `refuted` is the condition that refutes it, or why no run can show it.
    `smallest` is the smallest true change that `seeds` runs a variant would show, in `unit`, by the
    spread of stored runs of the same cell, parameters, variants and mode, at the level that the
    verdict uses; None where fewer than two of each are stored or none varies (`no_spread`),
    infinite where so few seeds show nothing. `stored` is how many there are of the variant that
    has fewer. `published` is the
    source's smallest change, `margin` what counts as no change, with its unit. Below `least` seeds
    no claim of the family can be shown; below `alone` it has an interval only if others of its
    family are shown, too. Both are None where no number of seeds is enough.
    """

    cell: Cell
    text: str
    measure: str
    refuted: str
    family: Family
    level: float
    seeds: int
    least: int | None
    alone: int | None
    smallest: float | None
    unit: str
    stored: int
    published: float | None
    margin: str
    too_few: bool
    no_spread: bool


def look_at_claims(plan: Plan, mode: str, folder: Path) -> tuple[ClaimOutlook, ...]:
    """Look at each claim in each cell that it is about.

    `folder` holds results, as `reports` does: those of the study, and of `examples`.
    """
    stored = _stored(plan, mode, folder)
    samples = [
        _sample(plan, claim, cell, stored)
        for cell in plan.cells
        for claim in claims_about(plan.study.claims, cell, plan.runs_of(cell))
    ]
    compared = [sample for sample in samples if sample.claim.direction]
    levels: dict[Family, float] = {}
    sizes: dict[Family, int] = {}
    for family in FAMILIES:
        members = [sample for sample in compared if sample.family == family]
        declared = plan.study.primary_claims or 0 if family == "primary" else 0
        sizes[family] = max(1, declared, len(members))
        p_values = [sample.test.p_value for sample in members if sample.test is not None]
        levels[family] = family_level(family, p_values, sizes[family])
    return tuple(
        _claim_outlook(plan, mode, sample, levels[sample.family], sizes[sample.family])
        for sample in samples
    )


def _stored(plan: Plan, mode: str, folder: Path) -> tuple[StoredRun, ...]:
    """Return the runs in this mode, with the plan's parameters, of the newest results with any.

    Results that cannot be read are passed over.
    """
    parameters = {cell: workload.parameters for cell, workload in plan.workloads.items()}
    candidates = (*newest_first(folder / plan.name), Results(folder / "examples" / plan.name))
    for results in (stored for stored in candidates if stored.exist):
        try:
            _, runs = load_runs(results)
        except UserError:
            continue
        fitting = tuple(
            run
            for run in runs
            if run.manifest.mode == mode
            and run.manifest.workload.parameters == parameters.get(run.cell)
        )
        if fitting:
            return fitting
    return ()


@dataclass(frozen=True)
class _Sample:
    """A claim about a cell with its stored runs; `test` is None without runs of both variants."""

    claim: Claim
    cell: Cell
    unit: str
    stored: int
    test: ClaimTest | None

    @property
    def family(self) -> Family:
        return "primary" if self.claim.primary else "secondary"


def _sample(plan: Plan, claim: Claim, cell: Cell, stored: Sequence[StoredRun]) -> _Sample:
    unit = info_of(claim.measure, plan.workloads[cell]).unit
    if claim.direction is None:
        return _Sample(claim, cell, unit, 0, None)
    before, after = (
        [
            float(value)
            for run in stored
            if run.cell == cell and run.manifest.variant == variant
            if (value := run.value(claim.measure)) is not None
        ]
        for variant in (claim.from_variant, claim.to)
    )
    scale = claim.scale_of(unit, [*before, *after])
    change = claim.change_on(scale)
    test = None
    if before and after:
        with suppress(ValueError):
            test = claim_test(change, before, after)
    return _Sample(claim, cell, unit, min(len(before), len(after)), test)


def _claim_outlook(plan: Plan, mode: str, sample: _Sample, level: float, size: int) -> ClaimOutlook:
    claim, test = sample.claim, sample.test
    seeds = len({run.seed for run in plan.runs_of(sample.cell)})
    scale = test.claim.scale if test else claim.scale_of(sample.unit)
    published = claim.change_on(scale).published if claim.direction else None
    no_spread = test is not None and sample.stored > 1 and not test.varies
    shift = None
    if test is not None and not no_spread:
        shift = smallest_shift(test.before, test.after, runs=seeds, level=level)
    sized = test is not None and (claim.direction == "same" or published is not None)
    linear = unit_of_difference(sample.unit)
    about = (claim, plan.workloads[sample.cell], plan.capture, mode)
    refuted = claim.refuted_by(sample.unit)
    if unseen := why_unseen(*about):
        refuted = f"cannot be seen: {unseen}"
    elif doubt := not_of_hardware(*about):
        refuted += f"; {doubt}"
    # Holm's first step has to be passed by itself; all secondary claims may be shown together.
    first = LEVEL / size if sample.family == "primary" else LEVEL
    return ClaimOutlook(
        cell=sample.cell,
        text=claim.text,
        measure=claim.measure,
        refuted=refuted,
        family=sample.family,
        level=level,
        seeds=seeds,
        least=fewest_runs(first) if claim.direction else 1,
        alone=fewest_runs(LEVEL / size) if claim.direction else 1,
        smallest=None if shift is None else _signed_change(claim, shift, scale),
        unit=linear if scale == "linear" else "%",
        stored=sample.stored,
        published=change_of(min(published, key=abs), scale) if published else None,
        margin=claim.margin_of(sample.unit),
        too_few=sized and test is not None and shift is not None and shift > test.claim.smallest,
        no_spread=no_spread,
    )


def _signed_change(claim: Claim, shift: float, scale: Scale) -> float:
    """Return a shift in the claimed direction as a change: a decrease is at most -100 %."""
    return change_of(-shift if claim.direction == "lower" else shift, scale)
