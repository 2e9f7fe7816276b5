"""What runs need before the first of them starts: kernels, the root file system, the mode."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from numalab.emulator.emulator_artifact import ensure_emulator
from numalab.emulator.emulator_specs import emulator_for
from numalab.emulator.memory_plugin_artifact import memory_plugin
from numalab.errors import UserError
from numalab.guest.kvm import Choice, pick_mode
from numalab.image.image_artifact import BuiltImage, ensure_image
from numalab.image.recipe import Recipe
from numalab.kernel.kernel_build import BuiltKernel, ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec
from numalab.machine.model import Machine
from numalab.progress import Progress
from numalab.workload.workload import BoundWorkload
from numalab.workload.workload_files import build_workload


@dataclass(frozen=True)
class Builds:
    """Kernels by name, the image, and the files of each workload by its name, all built."""

    kernels: Mapping[str, BuiltKernel]
    image: BuiltImage
    files: Mapping[str, Mapping[str, bytes]]


def prepare(
    kernels: Iterable[KernelSpec],
    recipe: Recipe,
    workloads: Iterable[BoundWorkload] = (),
    on_progress: Progress | None = None,
) -> Builds:
    """Build what the cache lacks. Raises BuildError or HostError."""
    # Workloads first, then the image: what fails soonest if it fails.
    used = {each.name: each for each in workloads}
    files = {name: build_workload(each.folder, *each.programs) for name, each in used.items()}
    image = ensure_image(recipe, on_progress=_told(f"image {recipe.name}", on_progress))
    built = {
        spec.name: ensure_kernel(spec, on_progress=_told(f"kernel {spec.name}", on_progress))
        for spec in kernels
    }
    return Builds(built, image, files)


def with_kernel(machine: Machine, kernel: BuiltKernel) -> Machine:
    """Return the machine with a kernel to boot.

    No memory is reserved for the trace of a kernel that would not find it there.
    """
    trace_mib = machine.trace_memory_mib if kernel.keeps_trace else 0
    return replace(
        machine,
        bzimage=kernel.bzimage,
        initrd=kernel.initrd,
        release=kernel.release,
        trace_memory_mib=trace_mib,
    )


def choose_mode(
    wanted: str,
    prepared: Builds,
    connection: str,
    on_progress: Progress | None = None,
    *,
    words: Sequence[str] = (),
    emulator: str | None = None,
) -> Choice:
    """Choose one mode for all runs: `auto` is kvm only where KVM runs every kernel.

    `words` are what their command lines get. `emulator` is a QEMU that is built for it: mode timed
    has the default one where none is said, icount the host's own.

    Raises UserError for an unknown mode, or one that an emulator is no use for, HostError where
    `kvm` was asked for and does not work.
    """
    choices = [
        pick_mode(
            wanted,
            kernel.bzimage,
            prepared.image.path,
            initrd=kernel.initrd,
            words=words,
            connection=connection,
            on_progress=on_progress,
        )
        for kernel in prepared.kernels.values()
    ]
    # Runs in different modes could not be compared.
    choice = next((choice for choice in choices if choice.mode != "kvm"), choices[0])
    old = [one.release for one in prepared.kernels.values() if not one.runs_in_icount]
    if choice.mode == "icount" and old:
        reason = f"Linux {old[0]} does not bring up its CPUs in icount mode"
        if wanted == "icount":
            raise UserError(f"{reason}; say --mode tcg", key="mode")
        return Choice("tcg", choice.cpu_model, reason)
    spec = emulator_for(choice.mode, emulator)
    if spec is not None:
        built = ensure_emulator(spec, on_progress=_told(f"emulator {spec.name}", on_progress))
        return replace(choice, emulator=built)
    if emulator is not None:
        raise UserError(
            f"mode {choice.mode} runs on the host's own QEMU, not on {emulator}",
            key="emulator",
            choices=("--mode timed", "--mode icount"),
        )
    return choice


def _told(what: str, on_progress: Progress | None) -> Progress:
    return lambda text, part: on_progress(f"{what}: {text}", part) if on_progress else None


def with_choice(machine: Machine, choice: Choice) -> Machine:
    """Return the machine in the mode that was chosen, with the emulator that was built for it."""
    chosen = replace(machine, mode=choice.mode, cpu_model=choice.cpu_model)
    if choice.emulator is None:
        return chosen
    model = memory_plugin(choice.emulator) if choice.mode == "timed" else None
    return replace(chosen, emulator=choice.emulator.program, memory_model=model)
