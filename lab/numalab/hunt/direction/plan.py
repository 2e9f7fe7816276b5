"""Compile what a hunt counts: the changed lines of a kernel, and the functions around them."""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.hunt.direction.hints import Bias, bias_of
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec, without_last_series
from numalab.kernel.patch_base import files_of
from numalab.kernel.patch_series import find_series
from numalab.progress import Progress, no_progress
from numalab.reach.kernel_code_artifact import kernel_code
from numalab.reach.line_table import LineTable
from numalab.reach.model import CodeChange
from numalab.reach.prepare import prepare_reach
from numalab.reach.reach_map import branch_table
from numalab.reach.source_text import parse_config
from numalab.source.changes import FileChange, line_changes

# Where the callers of changed functions are looked up; the objects that they are part of hold all
# other files of the scheduler, too (kernel/sched/build_policy.c, build_utility.c).
_SOURCES = ("core", "fair", "topology", "rt", "deadline", "idle")


@dataclass(frozen=True)
class CountedCode:
    """What boots count: the code around the last series of a kernel, or the whole scheduler.

    `bias` is what the changed code reads. None is the `series` of the whole scheduler.
    """

    series: str | None
    change: CodeChange
    table: LineTable
    bias: Bias


def plan_direction(spec: KernelSpec, on_progress: Progress = no_progress) -> CountedCode | None:
    """Return what boots of a kernel count; None for a prebuilt kernel, whose lines are unknown.

    That is the functions that its last series changes; all branches of the scheduler if it has no
    series, or if the kernel without it is not in `kernels.toml`. Raises BuildError, HostError or
    UserError as `prepare_reach` does.
    """
    base = without_last_series(spec)
    if spec.is_prebuilt:
        return None
    if base is None or not spec.series:
        return _plan_scheduler(spec, on_progress)
    series = find_series(spec.series[-1])
    kernels = [ensure_kernel(side, on_progress=on_progress) for side in (base, spec)]
    changes = line_changes([series], files_of(base, on_progress))
    plan = prepare_reach(
        series.name,
        changes,
        (base, kernels[0]),
        (spec, kernels[1]),
        on_progress,
        whole_functions=True,
    )
    bias = bias_on(base, changes, on_progress)
    return CountedCode(series.name, plan.code, plan.tables[kernels[1].digest], bias)


def bias_on(
    base: KernelSpec, changes: Sequence[FileChange], on_progress: Progress = no_progress
) -> Bias:
    """Return what the changes of a kernel read; callers are looked up in its scheduler."""
    read = files_of(base, on_progress)
    files = (read(f"kernel/sched/{name}.c") for name in _SOURCES)
    return bias_of(changes, [file.text for file in files if file is not None])


def _plan_scheduler(spec: KernelSpec, on_progress: Progress) -> CountedCode:
    kernel = ensure_kernel(spec, on_progress=on_progress)
    code = kernel_code(
        spec, kernel, [f"kernel/sched/{name}.c" for name in _SOURCES], (), on_progress
    )
    config = parse_config(kernel.config.read_text(encoding="utf-8") if kernel.config else "")
    table = branch_table(spec.name, code, int(config.get("HZ", "250")))
    return CountedCode(None, CodeChange.LINES, table, Bias({}, {}))
