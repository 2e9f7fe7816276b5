"""Compile what a hunt counts: the changed lines of a kernel, and the functions around them."""

from dataclasses import dataclass

from numalab.hunt.direction.hints import Bias, bias_of
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec, without_last_series
from numalab.kernel.patch_base import files_of
from numalab.kernel.patch_series import find_series
from numalab.progress import Progress, no_progress
from numalab.reach.line_table import LineTable
from numalab.reach.model import CodeChange
from numalab.reach.prepare import prepare_reach
from numalab.source.changes import line_changes

# Where the callers of changed functions are looked up.
_SOURCES = ("core", "fair", "topology", "rt", "deadline", "idle")


@dataclass(frozen=True)
class ChangedCode:
    """The last series of a kernel: the lines to count, and what the changed code reads."""

    series: str
    change: CodeChange
    table: LineTable
    bias: Bias


def plan_direction(spec: KernelSpec, on_progress: Progress = no_progress) -> ChangedCode | None:
    """Return the code that the last series of a kernel changes; None for a kernel without one.

    None also for a prebuilt kernel, and if the kernel without the series is not in `kernels.toml`.
    Raises BuildError, HostError or UserError as `prepare_reach` does.
    """
    base = without_last_series(spec)
    if base is None or spec.is_prebuilt or not spec.series:
        return None
    series = find_series(spec.series[-1])
    kernels = [ensure_kernel(side, on_progress=on_progress) for side in (base, spec)]
    read = files_of(base, on_progress)
    changes = line_changes([series], read)
    plan = prepare_reach(
        series.name,
        changes,
        (base, kernels[0]),
        (spec, kernels[1]),
        on_progress,
        whole_functions=True,
    )
    files = (read(f"kernel/sched/{name}.c") for name in _SOURCES)
    bias = bias_of(changes, [file.text for file in files if file is not None])
    return ChangedCode(series.name, plan.code, plan.tables[kernels[1].digest], bias)
