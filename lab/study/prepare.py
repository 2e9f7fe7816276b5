"""What runs need before the first of them starts: kernels, the root file system, the mode."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from lab.errors import UserError
from lab.image.build import BuiltImage, ensure_image
from lab.image.recipe import Recipe
from lab.kernel.build import BuiltKernel, ensure_kernel
from lab.kernel.catalogue import KernelSpec
from lab.machine.kvm import Choice, pick_mode
from lab.machine.machine import Machine

Progress = Callable[[str, float | None], None]


@dataclass(frozen=True)
class Prepared:
    """Kernels by name and the image, all built."""

    kernels: Mapping[str, BuiltKernel]
    image: BuiltImage


def prepare(
    kernels: Iterable[KernelSpec], recipe: Recipe, on_progress: Progress | None = None
) -> Prepared:
    """Build what the cache lacks: the image first, because it fails sooner if it fails.

    Raises BuildError or HostError.
    """

    def tell(what: str) -> Progress:
        return lambda text, part: on_progress(f"{what}: {text}", part) if on_progress else None

    image = ensure_image(recipe, on_progress=tell(f"image {recipe.name}"))
    built = {
        spec.name: ensure_kernel(spec, on_progress=tell(f"kernel {spec.name}")) for spec in kernels
    }
    return Prepared(built, image)


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
    wanted: str, prepared: Prepared, connection: str, on_progress: Progress | None = None
) -> Choice:
    """Choose one mode for all runs: `auto` is kvm only where KVM runs every kernel.

    Raises UserError for an unknown mode, HostError where `kvm` was asked for and does not work.
    """
    choices = [
        pick_mode(
            wanted,
            kernel.bzimage,
            prepared.image.path,
            initrd=kernel.initrd,
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
    return choice
