"""What a study would take, without anything being built or started."""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.campaign.cost_model import Cost, Costs
from numalab.campaign.local import at_once
from numalab.campaign.schedule import makespan
from numalab.campaign.task import BESIDE_GUEST_MIB
from numalab.emulator.emulator_artifact import built_emulator
from numalab.emulator.emulator_specs import emulator_for
from numalab.guest.verdicts import any_verdict, known_verdict, unusable_device
from numalab.host.read import available_mib
from numalab.image.image_artifact import built_image
from numalab.kernel.kernel_build import built_kernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.machine.model import MODES, Mode
from numalab.placement.admission import host_cpus
from numalab.results.plan import PlannedRun
from numalab.study.plan import Plan

# What a first build took on 2 CPUs; a second kernel of the same source reuses its tree.
KERNEL_SECONDS, IMAGE_SECONDS, EMULATOR_SECONDS = 270.0, 60.0, 480.0


@dataclass(frozen=True)
class RunOutlook:
    """A run and what it would take: host CPUs, memory in MiB, wall time."""

    run: PlannedRun
    cpus: int
    memory_mib: int
    cost: Cost


@dataclass(frozen=True)
class StudyOutlook:
    """What a study would take.

    `to_build` names what the cache lacks; `reason` is the mode's, `jobs` how many guests run at
    once by default.
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
        return max(each.memory_mib for each in self.runs)

    def at_once(self, jobs: int) -> int:
        """How many of `jobs` guests the host's memory allows at once."""
        return max(1, min(jobs, self.host_memory_mib // self.largest_mib))

    def seconds(self, jobs: int) -> float:
        """How long all runs take with so many at once, the longest first."""
        costs = sorted((each.cost.seconds for each in self.runs), reverse=True)
        return makespan(costs, self.at_once(jobs))


def look_ahead(plan: Plan, mode: str | None) -> StudyOutlook:
    """Say what a study would take; `mode` stands for the study's own."""
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
    seconds = KERNEL_SECONDS * len(lacks)
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


def _to_build(spec: KernelSpec) -> bool:
    """Tell whether a kernel has to be built or fetched; one that a file's path names is there."""
    return built_kernel(spec) is None and not (spec.is_prebuilt and spec.package is None)


def _mode(plan: Plan, asked: str) -> tuple[Mode, str]:
    """Tell the mode as far as it is known: only a boot tells whether KVM works."""
    for mode in MODES:
        if asked == mode:
            return mode, "asked for"
    if unusable := unusable_device():
        return "icount", unusable
    built = [kernel for spec in plan.kernels.values() if (kernel := built_kernel(spec))]
    verdicts = [known_verdict(kernel.bzimage, plan.study.machine.cmdline) for kernel in built] or [
        any_verdict()
    ]
    known = [verdict for verdict in verdicts if verdict is not None]
    if not known:
        return "icount", "not yet tried whether KVM runs a guest here; taken not to"
    if all(verdict.works for verdict in known):
        return "kvm", known[0].reason
    return "icount", next(verdict.reason for verdict in known if not verdict.works)


def total_seconds(outlooks: Sequence[StudyOutlook], jobs: int) -> float:
    """How long the runs of some studies take together with so many at once."""
    costs = [each.cost.seconds for outlook in outlooks for each in outlook.runs]
    places = min((outlook.at_once(jobs) for outlook in outlooks), default=1)
    return makespan(sorted(costs, reverse=True), places)
