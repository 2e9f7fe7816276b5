"""Benches whose boots count calls: what two kernels are compared in, and what a finding needs."""

from collections.abc import Iterable
from dataclasses import replace

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.functions import comparable, read_code, read_symbols
from numalab.hunt.calls.trend import CallTrends
from numalab.hunt.property import function_of
from numalab.kernel.patch_base import files_of
from numalab.progress import Progress, no_progress


def plan_calls(
    bench: HuntBench, reference: HuntBench, on_progress: Progress = no_progress
) -> CallTrends | None:
    """Return what boots of both kernels count and compare; None if a kernel has no symbols.

    Raises HostError, BuildError and UserError as `files_of` does.
    """
    codes = []
    for side in (bench, reference):
        symbols = side.builds.kernels[side.kernel.name].symbols
        if symbols is None:
            return None
        codes.append(read_code(symbols, files_of(side.kernel, on_progress)))
    names = comparable(*codes)
    mine, theirs = (code.counted(names) for code in codes)
    return CallTrends(mine, theirs) if names and mine.mark and theirs.mark else None


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
