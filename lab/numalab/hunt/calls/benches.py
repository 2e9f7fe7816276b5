"""What boots of two kernels are compared in besides findings: calls, and words of run queues."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.blocks import shared_blocks
from numalab.hunt.calls.functions import (
    SOURCES,
    KernelFunctions,
    comparable,
    read_code,
    read_symbols,
)
from numalab.hunt.calls.lines import SharedLine, changed_names, lines_of, shared_lines
from numalab.hunt.calls.trend import CallTrends
from numalab.hunt.compare.leftovers import Leftovers
from numalab.hunt.property import function_in, function_of, is_line
from numalab.kernel.kernel_specs import without_last_series
from numalab.kernel.patch_base import files_of
from numalab.kernel.patch_series import find_series
from numalab.progress import Progress, no_progress
from numalab.reach.kernel_code_artifact import KernelCode, kernel_code
from numalab.reach.lines import LineCode
from numalab.reach.model import Side
from numalab.reach.prepare import PatchSide, changed_code
from numalab.source.c_functions import functions_in
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
    changed = _changed(bench, reference, on_progress)
    places = _blocks(changed, codes) if changed else {}
    of_lines = changed.lines if changed else ()
    mine, theirs = (code.counted([*names, *places]) for code in codes)
    if not (names and mine.mark and theirs.mark):
        return None
    mine = replace(mine, lines={line.name: line.mine for line in of_lines})
    theirs = replace(theirs, lines={line.name: line.theirs for line in of_lines})
    places |= {line.name: line.place for line in of_lines}
    members = changed.after.run_queue if changed else {}
    left = Leftovers(members) if headers[0] == headers[1] else None
    named = changed.functions if changed else frozenset[str]()
    return CallTrends(mine.with_lines(lines), theirs, places, named), left


@dataclass(frozen=True)
class _Changed:
    """What a series changes: objects, with it and without, shared lines in them, and functions."""

    after: KernelCode
    before: KernelCode
    lines: tuple[SharedLine, ...]
    functions: frozenset[str]


def _changed(bench: HuntBench, reference: HuntBench, on_progress: Progress) -> _Changed | None:
    """Return what the last series changes; None if the reference kernel is another one."""
    base = without_last_series(bench.kernel)
    if base is None or base.name != reference.kernel.name:
        return None
    read = files_of(base, on_progress)
    changes = line_changes([find_series(bench.kernel.series[-1])], read)
    sides: tuple[tuple[Side, HuntBench], ...] = (("patched", bench), ("baseline", reference))
    after, before = (
        changed_code(
            changes, PatchSide(side, of.kernel, of.builds.kernels[of.kernel.name]), on_progress
        )
        for side, of in sides
    )
    functions = changed_names(changes)
    lines = shared_lines(after, before, changes, read, functions)
    return _Changed(after, before, lines, functions)


def _blocks(changed: _Changed, codes: Sequence[KernelFunctions]) -> dict[str, str]:
    """Return the blocks of the changed objects that both kernels have, with their places."""
    mine, theirs = (code.sizes for code in codes)
    places = {}
    for block, place in shared_blocks(changed.after, changed.before).items():
        function = function_in(block)
        if function in mine and mine[function] == theirs.get(function):
            places[f"{block}/{mine[function]:#x}"] = place
    return places


def for_properties(bench: HuntBench, properties: Iterable[str]) -> HuntBench:
    """Return the bench whose boots judge these properties, those of calls of a function included.

    Raises HostError if the kernel's symbols cannot be read, and what `kernel_code` raises.
    """
    functions = {name for prop in properties if (name := function_of(prop)) is not None}
    if not functions:
        return bench
    symbols = bench.builds.kernels[bench.kernel.name].symbols
    if symbols is None:
        return bench
    names = functions - {name for name in functions if is_line(name)}
    calls = read_symbols(symbols).counted(names, judged=True)
    return replace(bench, calls=replace(calls, lines=_lines(bench, functions - names)))


def _lines(bench: HuntBench, names: Collection[str]) -> Mapping[str, LineCode]:
    """Return lines by name; those that the kernel does not have are left out."""
    if not names:
        return {}
    functions = {function_in(name) for name in names}
    read = files_of(bench.kernel, no_progress)
    files = ((file, read(file)) for file in SOURCES)
    texts = {
        name: file.text
        for name, file in files
        if file is not None and functions & {own for own, _ in functions_in(file.text)}
    }
    if not texts:
        return {}
    code = kernel_code(bench.kernel, bench.builds.kernels[bench.kernel.name], sorted(texts))
    return lines_of(code, texts, names)
