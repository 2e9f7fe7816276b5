"""The kernel of an option, with a line on how it was chosen."""

from collections.abc import Iterable

from numalab.cli.output import progress_lines, say
from numalab.kernel.kernel_specs import KernelSpec
from numalab.kernel.patched_kernel import find_kernel


def chosen_kernel(text: str) -> KernelSpec:
    """Return the kernel of an option; print why a patch has this base. Raises UserError."""
    with progress_lines("kernel") as tell:
        spec = find_kernel(text, tell)
    say_bases([spec])
    return spec


def say_bases(kernels: Iterable[KernelSpec]) -> None:
    """Print for each patched kernel how its base was chosen."""
    for spec in kernels:
        if spec.note:
            say(f"{spec.name}: {spec.note}")
