"""Builds what runs need before the first of them starts, and chooses their mode."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from numalab.emulator.emulator_artifact import ensure_emulator
from numalab.emulator.emulator_specs import emulator_for
from numalab.emulator.memory_plugin_artifact import memory_plugin
from numalab.errors import UserError
from numalab.guest.kvm import Choice, pick_mode
from numalab.image.ext4_artifact import ensure_ext4
from numalab.image.image_artifact import BuiltImage, ensure_image
from numalab.image.recipe import Recipe
from numalab.kernel.kernel_build import BuiltKernel, ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.machine.model import Machine
from numalab.progress import Progress, no_progress
from numalab.qemu.hypervisor import EMBED
from numalab.results.layout import Results

if TYPE_CHECKING:  # `boot` needs none of these, and importing them takes time
    from numalab.reach.prepare import ReachPlan
    from numalab.scheduler.in_guest import SchedulerInGuest
    from numalab.study.plan import Plan
    from numalab.workload.workload import BoundWorkload


@dataclass(frozen=True)
class Builds:
    """Kernels by name, the image, and the files of each workload by its name, all built.

    `schedulers` are those of variants by the variant's name. `ext4` is the image for kernels that
    cannot mount erofs, None where no kernel needs it.
    """

    kernels: Mapping[str, BuiltKernel]
    image: BuiltImage
    files: Mapping[str, Mapping[str, bytes]]
    schedulers: Mapping[str, "SchedulerInGuest"] = field(default_factory=dict)
    ext4: Path | None = None

    def root(self, kernel: BuiltKernel) -> Path:
        """Return the image's file for a kernel."""
        return self.image.path if kernel.mounts_erofs or self.ext4 is None else self.ext4


@dataclass(frozen=True)
class Setting:
    """How runs are executed; `reach` is what their guests count."""

    choice: Choice
    connection: str = EMBED
    allow_mismatch: bool = False
    reach: "ReachPlan | None" = None


@dataclass(frozen=True)
class BuiltStudy:
    """A plan whose inputs are built, and the results that its runs go to.

    `left_out` are the planned runs, by name, that a budget of time leaves out.
    """

    plan: "Plan"
    builds: Builds
    results: Results
    setting: Setting
    left_out: frozenset[str] = frozenset()


def build_study(
    plan: "Plan",
    results: Results,
    mode: str,
    *,
    connection: str = EMBED,
    allow_mismatch: bool = False,
    reach: str | None = None,
    cold: bool = False,
    on_progress: Progress | None = None,
) -> BuiltStudy:
    """Build what the runs of a plan need, and choose their mode.

    `reach` is a patch whose lines are counted. `cold` guests boot. Raises what `build`,
    `choose_mode` and `plan_reach` raise.
    """
    builds = build_plan(plan, on_progress)
    builds = replace(builds, schedulers=_build_schedulers(plan, builds, on_progress))
    choice = choose_plan_mode(plan, mode, builds, connection, on_progress)
    counted = None
    if reach is not None:
        from numalab.reach.counting import check_countable  # noqa: PLC0415 - not for `boot`
        from numalab.reach.prepare import plan_reach  # noqa: PLC0415

        check_countable(choice.mode)
        counted = plan_reach(tuple(plan.kernels.values()), reach, on_progress or no_progress)
    setting = Setting(replace(choice, cold=cold), connection, allow_mismatch, counted)
    return BuiltStudy(plan, builds, results, setting)


def build(
    kernels: Iterable[KernelSpec],
    recipe: Recipe,
    workloads: Iterable["BoundWorkload"] = (),
    on_progress: Progress | None = None,
) -> Builds:
    """Build what the cache lacks; kernels get their own names. Raises BuildError or HostError."""
    return _build({spec.name: spec for spec in kernels}, recipe, workloads, on_progress)


def build_plan(plan: "Plan", on_progress: Progress | None = None) -> Builds:
    """Build what a plan lacks; a kernel gets the name that the study has for it, such as a path.

    Raises what `build` raises.
    """
    return _build(plan.kernels, plan.recipe, plan.workloads.values(), on_progress)


def _build(
    kernels: Mapping[str, KernelSpec],
    recipe: Recipe,
    workloads: Iterable["BoundWorkload"],
    on_progress: Progress | None,
) -> Builds:
    # The shortest builds come first, so that an error shows early.
    files = _build_workloads(workloads)
    image = ensure_image(recipe, on_progress=_titled(f"image {recipe.name}", on_progress))
    built = {
        name: ensure_kernel(spec, on_progress=_titled(f"kernel {spec.name}", on_progress))
        for name, spec in kernels.items()
    }
    old = any(not kernel.mounts_erofs for kernel in built.values())
    ext4 = ensure_ext4(image, _titled(f"image {recipe.name}", on_progress)) if old else None
    return Builds(built, image, files, ext4=ext4)


def _build_workloads(workloads: Iterable["BoundWorkload"]) -> dict[str, dict[str, bytes]]:
    """Return the files of each workload, by its name."""
    by_name = {workload.name: workload for workload in workloads}
    if not by_name:
        return {}
    from numalab.workload.workload_files import build_workload  # noqa: PLC0415 - not for `boot`

    return {name: build_workload(used.folder, *used.programs) for name, used in by_name.items()}


def _build_schedulers(
    plan: "Plan", builds: Builds, on_progress: Progress | None
) -> dict[str, "SchedulerInGuest"]:
    """Build the scheduler of each variant that has one, for the variant's kernel."""
    if not plan.schedulers:
        return {}
    from numalab.scheduler.in_guest import scheduler_in_guest  # noqa: PLC0415 - not for `boot`
    from numalab.scheduler.scheduler_artifact import ensure_scheduler  # noqa: PLC0415
    from numalab.scheduler.watchdog_artifact import ensure_watchdog  # noqa: PLC0415

    schedulers = {}
    for variant, spec in plan.schedulers.items():
        kernel = plan.study.variants[variant].kernel
        seconds = plan.study.variants[variant].scheduler_watchdog
        watchdog = ensure_watchdog(seconds) if seconds is not None else None
        progress = _titled(f"scheduler {spec.name}", on_progress)
        built = ensure_scheduler(spec, plan.kernels[kernel], builds.kernels[kernel], progress)
        schedulers[variant] = scheduler_in_guest(built, watchdog)
    return schedulers


def choose_plan_mode(
    plan: "Plan", mode: str, builds: Builds, connection: str, on_progress: Progress | None
) -> Choice:
    """Choose the mode of a plan's runs; raises what `choose_mode` raises."""
    table = plan.study.machine
    return choose_mode(
        mode, builds, connection, on_progress, words=table.cmdline, emulator=table.emulator
    )


def choose_mode(
    wanted: str,
    builds: Builds,
    connection: str,
    on_progress: Progress | None = None,
    *,
    words: Sequence[str] = (),
    emulator: str | None = None,
    repeatable: bool = True,
) -> Choice:
    """Choose one mode for all runs: `auto` is kvm only where KVM runs every kernel.

    Otherwise it is icount, or the faster tcg where runs need not be `repeatable`. `words` are added
    to the kernel command line. `emulator` names the QEMU to build; by default, mode timed uses
    numalab's and mode icount the host's own.

    Raises UserError for an unknown mode, or one that cannot use the emulator, HostError where
    `kvm` was requested and does not work.
    """
    choices = [
        pick_mode(
            wanted,
            kernel.bzimage,
            builds.root(kernel),
            initrd=kernel.initrd,
            words=words,
            connection=connection,
            on_progress=on_progress,
        )
        for kernel in builds.kernels.values()
    ]
    # Runs in different modes cannot be compared.
    choice = next((choice for choice in choices if choice.mode != "kvm"), choices[0])
    if wanted == "auto" and choice.mode == "icount" and not repeatable:
        return replace(choice, mode="tcg")
    old = [kernel.release for kernel in builds.kernels.values() if not kernel.runs_in_icount]
    if choice.mode == "icount" and old:
        reason = f"Linux {old[0]} does not bring up its CPUs in icount mode"
        if wanted == "icount":
            raise UserError(f"{reason}; say --mode tcg", key="mode")
        return Choice("tcg", choice.cpu_model, reason)
    spec = emulator_for(choice.mode, emulator)
    if spec is not None:
        built = ensure_emulator(spec, on_progress=_titled(f"emulator {spec.name}", on_progress))
        return replace(choice, emulator=built)
    if emulator is not None:
        raise UserError(
            f"mode {choice.mode} runs on the host's own QEMU, not on {emulator}",
            key="emulator",
            choices=("--mode timed", "--mode icount"),
        )
    return choice


def _titled(title: str, on_progress: Progress | None) -> Progress:
    return lambda text, part: on_progress(f"{title}: {text}", part) if on_progress else None


def with_kernel(machine: Machine, kernel: BuiltKernel) -> Machine:
    """Return the machine with a kernel to boot.

    A kernel that cannot find its trace in reserved memory gets none.
    """
    trace_mib = machine.trace_memory_mib if kernel.keeps_trace else 0
    return replace(
        machine,
        bzimage=kernel.bzimage,
        initrd=kernel.initrd,
        release=kernel.release,
        trace_memory_mib=trace_mib,
    )


def with_choice(machine: Machine, choice: Choice) -> Machine:
    """Return the machine in the chosen mode, with the emulator that was built for it."""
    chosen = replace(machine, mode=choice.mode, cpu_model=choice.cpu_model, cold=choice.cold)
    if choice.emulator is None:
        return chosen
    model = memory_plugin(choice.emulator) if choice.mode == "timed" else None
    return replace(chosen, emulator=choice.emulator.program, memory_model=model)
