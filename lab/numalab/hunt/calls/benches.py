"""What boots of two kernels are compared in besides findings: calls, and words of run queues."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.blocks import shared_blocks
from numalab.hunt.calls.functions import KernelFunctions, comparable, read_code, read_symbols
from numalab.hunt.calls.trend import CallTrends
from numalab.hunt.compare.leftovers import Leftovers
from numalab.hunt.property import function_of
from numalab.kernel.kernel_specs import without_last_series
from numalab.kernel.patch_base import files_of
from numalab.kernel.patch_series import find_series
from numalab.progress import Progress, no_progress
from numalab.reach.kernel_code_artifact import KernelCode
from numalab.reach.model import Side
from numalab.reach.prepare import PatchSide, changed_code
from numalab.source.changes import line_changes

_STRUCT_RQ = "kernel/sched/sched.h"


def plan_calls(
    bench: HuntBench,
    reference: HuntBench,
    on_progress: Progress = no_progress,
    lines: Iterable[int] = (),
) -> tuple[CallTrends, Leftovers | None] | None:
    """Return what boots of both kernels count and compare; None if a kernel has no symbols.

    Boots of the first kernel also count what is at the addresses of `lines`, the changed ones.
    Run queues are compared if both kernels have the same kernel/sched/sched.h, and so struct rq.

    Raises HostError, BuildError and UserError as `files_of` does.
    """
    codes, headers = [], []
    for side in (bench, reference):
        symbols = side.builds.kernels[side.kernel.name].symbols
        if symbols is None:
            return None
        read = files_of(side.kernel, on_progress)
        codes.append(read_code(symbols, read))
        headers.append(read(_STRUCT_RQ))
    names = comparable(*codes)
    after, before = _changed(bench, reference, on_progress)
    places = _blocks(after, before, codes) if after and before else {}
    mine, theirs = (code.counted([*names, *places]) for code in codes)
    if not (names and mine.mark and theirs.mark):
        return None
    members = after.run_queue if after else {}
    left = Leftovers(members) if headers[0] == headers[1] else None
    return CallTrends(mine.with_lines(lines), theirs, places), left


def _changed(
    bench: HuntBench, reference: HuntBench, on_progress: Progress
) -> tuple[KernelCode | None, KernelCode | None]:
    """Return the objects that the last series changes on both kernels; None beside others."""
    base = without_last_series(bench.kernel)
    if base is None or base.name != reference.kernel.name:
        return None, None
    changes = line_changes([find_series(bench.kernel.series[-1])], files_of(base, on_progress))
    sides: tuple[tuple[Side, HuntBench], ...] = (("patched", bench), ("baseline", reference))
    after, before = (
        changed_code(
            changes, PatchSide(side, of.kernel, of.builds.kernels[of.kernel.name]), on_progress
        )
        for side, of in sides
    )
    return after, before


def _blocks(
    after: KernelCode, before: KernelCode, codes: Sequence[KernelFunctions]
) -> Mapping[str, str]:
    """Return the blocks of the changed objects that both kernels have, with their places."""
    mine, theirs = (code.sizes for code in codes)
    places = {}
    for block, place in shared_blocks(after, before).items():
        function = block.partition("+")[0]
        if function in mine and mine[function] == theirs.get(function):
            places[f"{block}/{mine[function]:#x}"] = place
    return places


def for_properties(bench: HuntBench, properties: Iterable[str]) -> HuntBench:
    """Return the bench whose boots judge these properties, those of calls of a function included.

    Raises HostError if the kernel's symbols cannot be read.
    """
    functions = {name for prop in properties if (name := function_of(prop)) is not None}
    if not functions:
        return bench
    symbols = bench.builds.kernels[bench.kernel.name].symbols
    if symbols is None:
        return bench
    return replace(bench, calls=read_symbols(symbols).counted(functions, judged=True))
