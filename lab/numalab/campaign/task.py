"""A run as it is handed to an executor: plain values that another process can receive."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from numalab.campaign.describe import inputs
from numalab.campaign.prepare import Builds
from numalab.capture.spec import CaptureSpec
from numalab.errors import LabError
from numalab.guest.kvm import Choice
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.placement.admission import host_cpus
from numalab.qemu.hypervisor import EMBED
from numalab.results.cell import Cell
from numalab.results.layout import Results
from numalab.results.manifest import Manifest
from numalab.results.plan import PlannedRun
from numalab.run_dir import RunDir
from numalab.study.model import Study
from numalab.study.plan import Plan
from numalab.topology.model import Topology
from numalab.workload.workload import BoundWorkload

# QEMU itself, its buffers and the job disk, beside the guest's memory; 100 to 200 MiB were seen.
BESIDE_GUEST_MIB = 256


@dataclass(frozen=True)
class Setting:
    """How runs are executed on this host."""

    choice: Choice
    connection: str = EMBED
    allow_mismatch: bool = False


@dataclass(frozen=True)
class Task:
    """One run and all it needs. `inputs` is what the manifests of its variant's runs share: that of
    one of them."""

    run: PlannedRun
    study: Study
    topology: Topology
    workload: BoundWorkload
    kernel: KernelSpec
    capture: CaptureSpec
    built: BuiltKernel
    rootfs: Path
    files: Mapping[str, bytes]
    setting: Setting
    results: Results
    inputs: Manifest

    @property
    def manifest(self) -> Manifest:
        """What its manifest says of its inputs."""
        return self.inputs.but(run=self.run.id, seed=self.run.seed)

    @property
    def directory(self) -> RunDir:
        """The folder of the run until it has ended."""
        return self.results.running(self.run.id)

    @property
    def key(self) -> str:
        """Its name among the runs of several results."""
        return f"{self.results.path}/{self.run.id}"

    @property
    def memory_mib(self) -> int:
        """How much memory of the host it may take."""
        return self.topology.memory_mib + BESIDE_GUEST_MIB

    @property
    def cpus(self) -> int:
        """How many host CPUs it uses."""
        return host_cpus(self.setting.choice.mode, self.topology.cpu_count)


@dataclass(frozen=True)
class Ended:
    """How a task ended: well when `error` is empty.

    `by_host`: the guest was not the cause. `lost`: where it was executed is gone, which says
    nothing of the run, nor of other hosts.
    """

    run: str
    seconds: float
    error: str = ""
    exit_code: int = 0
    by_host: bool = False
    lost: bool = False

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return not self.error


# Executes a task, telling its phases in words, and never raises an Exception.
Execute = Callable[[Task, Callable[[str], None]], Ended]


def make_tasks(
    plan: Plan, prepared: Builds, results: Results, setting: Setting
) -> tuple[Task, ...]:
    """Make the tasks of a plan, in its order."""
    shared: dict[tuple[Cell, str], Manifest] = {}
    found = []
    for run in plan.runs:
        group = (run.cell, run.variant)
        if group not in shared:
            shared[group] = inputs(plan, run, prepared, setting.choice)
        name = plan.study.variants[run.variant].kernel
        found.append(
            Task(
                run=run,
                study=plan.study,
                topology=plan.topologies[run.topology],
                workload=plan.workload_of(run),
                kernel=plan.kernels[name],
                capture=plan.capture,
                built=prepared.kernels[name],
                rootfs=prepared.image.path,
                files=prepared.files[plan.workload_of(run).name],
                setting=setting,
                results=results,
                inputs=shared[group],
            )
        )
    return tuple(found)


def failed(run: str, seconds: float, error: LabError, *, by_host: bool) -> Ended:
    """Say how a run failed."""
    return Ended(run, seconds, str(error) or type(error).__name__, error.exit_code, by_host)
