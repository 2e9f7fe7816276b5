"""Tasks: runs as plain values that another process can receive and execute."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.artifact.digest import digest_of
from numalab.campaign.build import Builds, BuiltStudy, Setting
from numalab.capture.spec import SCX_EVENTS, CaptureSpec, TraceEvent
from numalab.errors import LabError, UserError
from numalab.guest.kvm import Choice
from numalab.guest.run import CANNOT_RUN
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.machine.model import SHIFTS, Mode
from numalab.placement.admission import host_cpus
from numalab.reach.line_table import LineTable
from numalab.results.layout import Results
from numalab.results.manifest import (
    CacheFacts,
    EmulatorFacts,
    ImageFacts,
    KernelFacts,
    Manifest,
    MemoryFacts,
    SchedulerFacts,
    WorkloadFacts,
)
from numalab.results.plan import Cell, PlannedRun
from numalab.run_dir import RunDir
from numalab.scheduler.in_guest import SchedulerInGuest
from numalab.study.guest import guest_of, tunables_of
from numalab.study.model import Study
from numalab.study.plan import Plan
from numalab.topology.load import topology_to_dict
from numalab.topology.memory.timing import memory_model
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import Topology
from numalab.workload.workload import BoundWorkload

# QEMU itself, its buffers and the job disk, beside the guest's memory: 100 to 200 MiB measured.
BESIDE_GUEST_MIB = 256


@dataclass(frozen=True)
class Task:
    """One run and everything it needs.

    `inputs` is a manifest that all runs of the variant in this cell share: only its `run` and
    `seed` differ.
    """

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
    scheduler: SchedulerInGuest | None = None

    @property
    def manifest(self) -> Manifest:
        """The manifest of its inputs."""
        return self.inputs.but(run=self.run.id, seed=self.run.seed)

    @property
    def mode(self) -> Mode:
        """The mode that it runs in."""
        return self.setting.choice.mode

    @property
    def table(self) -> LineTable | None:
        """The lines that its guest counts, None for none."""
        reach = self.setting.reach
        return reach.tables.get(self.built.digest) if reach else None

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
        """The most host memory it takes."""
        return self.topology.memory_mib + BESIDE_GUEST_MIB

    @property
    def cpus(self) -> int:
        """The number of host CPUs it uses."""
        return host_cpus(self.mode, self.topology.cpu_count)


@dataclass(frozen=True)
class Ended:
    """How a task ended: well when `error` is empty.

    `by_host`: the guest was not the cause; such a run is tried `tries` times. `lost`: its worker
    is gone; the run can still succeed on another worker, as often as it takes.
    """

    run: str
    seconds: float
    error: str = ""
    exit_code: int = 0
    by_host: bool = False
    lost: bool = False
    tries: int = 2

    @property
    def ok(self) -> bool:
        """Whether there is a result."""
        return not self.error

    @property
    def by_lab(self) -> bool:
        """Whether a plug-in, another input or numalab itself failed."""
        return self.exit_code in (UserError.exit_code, LabError.exit_code)

    @property
    def by_job(self) -> bool:
        """Whether the job asks for what the kernel does not have: a trace event, a tunable."""
        return self.error.startswith(f"{CANNOT_RUN}: this kernel has no ")


# Executes a task and reports its phases in words. Never raises an Exception.
Execute = Callable[[Task, Callable[[str], None]], Ended]


def make_tasks(study: BuiltStudy) -> tuple[Task, ...]:
    """Return the tasks of a study, in the order of its plan."""
    plan, builds = study.plan, study.builds
    shared: dict[tuple[Cell, str], Manifest] = {}
    tasks = []
    for run in plan.runs:
        group = (run.cell, run.variant)
        if group not in shared:
            shared[group] = describe_inputs(plan, run, builds, study.setting.choice)
        kernel, workload = plan.study.variants[run.variant].kernel, plan.workload_of(run)
        tasks.append(
            Task(
                run=run,
                study=plan.study,
                topology=plan.topologies[run.topology],
                workload=workload,
                kernel=plan.kernels[kernel],
                capture=_capture(plan.capture, builds.schedulers.get(run.variant)),
                built=builds.kernels[kernel],
                rootfs=builds.root(builds.kernels[kernel]),
                files=builds.files[workload.name],
                setting=study.setting,
                results=study.results,
                inputs=shared[group],
                scheduler=builds.schedulers.get(run.variant),
            )
        )
    return tuple(tasks)


def _capture(capture: CaptureSpec, scheduler: SchedulerInGuest | None) -> CaptureSpec:
    """Return the events to record, for a scheduler with those of sched_ext that the kernel has."""
    if scheduler is None:
        return capture
    named = {event.name for event in capture.events}
    more = (TraceEvent(name, optional=True) for name in SCX_EVENTS if name not in named)
    return replace(capture, events=(*capture.events, *more))


def describe_inputs(plan: Plan, run: PlannedRun, builds: Builds, choice: Choice) -> Manifest:
    """Return the manifest of a run with its inputs; the outcome is still missing."""
    workload, topology = plan.workload_of(run), plan.topologies[run.topology]
    kernel = builds.kernels[plan.study.variants[run.variant].kernel]
    emulator, image = choice.emulator, builds.image
    files = sorted(builds.files[workload.name].items())
    manifest = Manifest(
        run=run.id,
        study=plan.name,
        digest=plan.digest,
        topology=run.topology,
        machine=topology_to_dict(topology),
        variant=run.variant,
        seed=run.seed,
        mode=choice.mode,
        mode_reason=_mode_reason(plan, choice),
        emulator=EmulatorFacts.model_validate(emulator, from_attributes=True) if emulator else None,
        pages=guest_of(plan.study, topology, run.workload).pages,
        kernel=KernelFacts(
            name=kernel.spec_name,
            release=kernel.release,
            config_hash=kernel.config_hash,
            digest=kernel.digest,
            bzimage_sha256=kernel.bzimage_sha256,
            series=kernel.series,
            source_version=kernel.source_version,
            compiler=kernel.compiler,
        ),
        tunables=tunables_of(plan.study, run.variant, run.workload),
        workload=WorkloadFacts(
            name=workload.name,
            label=run.workload,
            argv=workload.argv,
            files={name: hashlib.sha256(data).hexdigest() for name, data in files},
            parameters=dict(workload.parameters),
            tasks=workload.tasks,
            allowed_cpus=workload.allowed_cpus,
        ),
        image=ImageFacts(name=image.name, digest=image.digest, packages=image.packages),
        metrics=_metrics_digest(workload),
    )
    if choice.mode == "timed":
        manifest = manifest.but(memory=describe_memory(topology))
    scheduler = builds.schedulers.get(run.variant)
    return manifest.but(scheduler=describe_scheduler(scheduler)) if scheduler else manifest


def _metrics_digest(workload: BoundWorkload) -> str:
    """Return a digest of what makes measures of the workload's output."""
    tables = [metric.model_dump(exclude_defaults=True) for metric in workload.metrics]
    return digest_of([workload.parser, tables])


def describe_memory(topology: Topology) -> MemoryFacts:
    """Describe the memory of a machine as it is simulated."""
    model, nodes = memory_model(as_guest_numbers(topology)), range(len(topology.nodes))
    l1, l2, llc = (
        CacheFacts.model_validate(cache, from_attributes=True)
        for cache in (model.l1, model.l2, model.llc)
    )
    return MemoryFacts(
        latency_ns=model.latency_ns,
        bandwidth_mb_s=tuple(
            tuple(round(model.bandwidth_mb_s(a, b), 1) for b in nodes) for a in nodes
        ),
        interrupt_ns=model.interrupt_ns,
        l1=l1,
        l2=l2,
        llc=llc,
        llc_groups=len(set(model.groups)),
    )


def describe_scheduler(scheduler: SchedulerInGuest) -> SchedulerFacts:
    """Return what went into a scheduler: its program, its libraries and its arguments."""
    files = sorted(scheduler.files.items())
    spec = scheduler.scheduler.spec
    return SchedulerFacts(
        name=spec.name,
        origin=spec.origin,
        version=spec.version,
        arguments=spec.arguments,
        files={name: hashlib.sha256(data).hexdigest() for name, data in files},
    )


def _mode_reason(plan: Plan, choice: Choice) -> str:
    """Return why runs have this mode; in mode timed also how its times are simulated."""
    if choice.mode != "timed":
        return choice.reason
    table = plan.study.machine
    times = table.slow_motion
    instruction_ns = (table.instruction_ns or 1 << SHIFTS["timed"]) * times
    return (
        f"{choice.reason}; quantum of {table.quantum_ns * times / 1000:g} us,"
        f" a vCPU executes {1000 / instruction_ns:g} million instructions a second"
        f"{f', in slow motion ({times} times)' if times > 1 else ''}"
    )


def failed(run: str, seconds: float, error: LabError, *, by_host: bool) -> Ended:
    """Return how a run failed."""
    return Ended(run, seconds, str(error) or type(error).__name__, error.exit_code, by_host)
