"""A run as it is handed to whoever executes it: plain values that another process can receive."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.capture.spec import CaptureSpec
from lab.errors import LabError
from lab.kernel.built import BuiltKernel
from lab.kernel.catalogue import KernelSpec
from lab.machine.admission import host_cpus
from lab.machine.hypervisor import EMBED
from lab.machine.kvm import Choice
from lab.store import Results, RunDir
from lab.study import manifest
from lab.study.model import Study, Variant
from lab.study.plan import Cell, Plan, PlannedRun
from lab.study.prepare import Prepared
from lab.topology.model import Topology
from lab.workload.model import BoundWorkload

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
    """One run and all it needs. `inputs` is what the manifests of its variant's runs share."""

    run: PlannedRun
    study: Study
    topology: Topology
    workload: BoundWorkload
    kernel: KernelSpec
    capture: CaptureSpec
    built: BuiltKernel
    rootfs: Path
    setting: Setting
    results: Results
    inputs: manifest.Record

    @property
    def record(self) -> manifest.Record:
        """What its manifest says of its inputs."""
        return {**self.inputs, "run": self.run.id, "seed": self.run.seed}

    @property
    def directory(self) -> RunDir:
        """The folder of the run until it has ended."""
        return self.results.running(self.run.id)

    @property
    def variant(self) -> Variant:
        """The variant that it boots."""
        return self.study.variants[self.run.variant]

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
    plan: Plan, prepared: Prepared, results: Results, setting: Setting
) -> tuple[Task, ...]:
    """Make the tasks of a plan, in its order."""
    shared: dict[tuple[Cell, str], manifest.Record] = {}
    found = []
    for run in plan.runs:
        group = (run.cell, run.variant)
        if group not in shared:
            shared[group] = _as_read(manifest.inputs(plan, run, prepared, setting.choice))
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
                setting=setting,
                results=results,
                inputs=shared[group],
            )
        )
    return tuple(found)


def _as_read(record: manifest.Record) -> manifest.Record:
    """Return a record as it is read back, so that it can be compared with a stored one."""
    found: manifest.Record = json.loads(json.dumps(record))
    return found


def failed(run: str, seconds: float, error: LabError, *, by_host: bool) -> Ended:
    """Say how a run failed."""
    return Ended(run, seconds, str(error) or type(error).__name__, error.exit_code, by_host)
