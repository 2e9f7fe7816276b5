"""Prepares reach: what the guests of both kernels of a patch have to count."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from numalab.errors import UserError
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.kernel_specs import KernelSpec, without_last_series
from numalab.kernel.patch_base import files_of
from numalab.kernel.patch_series import find_series, with_series
from numalab.progress import Progress, no_progress
from numalab.reach.fingerprint import changed_data, changed_functions, changed_variables
from numalab.reach.kernel_code_artifact import KernelCode, ObjectText, kernel_code
from numalab.reach.line_table import LineTable, TableFunction, TableLine, table_lines
from numalab.reach.model import CodeChange, LineState, Side
from numalab.reach.source_text import BLANK, COMMENT, SourceText, parse_config
from numalab.source.c_functions import enclosing_function, function_lines, macro_call
from numalab.source.changes import FileChange, line_changes
from numalab.source.series import Series

# What makes no code by itself: an include, a prototype, an export.
_DECLARES = re.compile(r"#\s*include\b|EXPORT_|[a-z][\w\s*]*\([^{}=]*\);\s*$")
_OPTION = re.compile(r"^(?:menu)?config[ \t]+(\w+)", re.MULTILINE)
_COMPILED = (".c", ".h", ".S")
_TEXTS = (".rst", ".md", ".yaml", ".gitignore", "MAINTAINERS", "CREDITS")
# What no x86 kernel is built from; kbuild runs objtool, resolve_btfids and bpftool.
_BESIDE = re.compile(
    r"(Documentation|LICENSES|samples|scripts/(coccinelle|gdb)|arch/(?!x86/)[^/]+"
    r"|tools/(?!(arch|bpf|build|include|lib|objtool|scripts)/)[^/]+)/"
    r"|scripts/(checkpatch|get_maintainer|kernel-doc|decode_stacktrace|faddr2line|spdxcheck)"
    r"|(\.mailmap|\.clang-format|\.editorconfig|README|COPYING)$"
)


@dataclass(frozen=True)
class ReachPlan:
    """What to count in the guests of a patch: a table for each kernel, by the kernel's digest."""

    series: str
    code: CodeChange
    tables: Mapping[str, LineTable]


@dataclass(frozen=True)
class PatchSide:
    """One of the two kernels of a patch."""

    side: Side
    spec: KernelSpec
    kernel: BuiltKernel


def prepare_reach(
    series: str,
    changes: Sequence[FileChange],
    base: tuple[KernelSpec, BuiltKernel],
    patched: tuple[KernelSpec, BuiltKernel],
    on_progress: Progress = no_progress,
    *,
    whole_functions: bool = False,
) -> ReachPlan:
    """Compile the objects that a patch touches with line numbers, and compare them.

    `changes` are those between the sources of both kernels. With `whole_functions` the tables hold
    all lines of the functions that are changed. Raises UserError for a prebuilt kernel, BuildError
    and HostError as `ensure_kernel` does.
    """
    # The patched kernel first: its tree is usually the last one that was built.
    sides = (PatchSide("patched", *patched), PatchSide("baseline", *base))
    codes = {side.side: changed_code(changes, side, on_progress) for side in sides}
    before, after = codes["baseline"], codes["patched"]
    differing = _differing(before, after)
    lines = {side.side: _lines(changes, side, codes[side.side], whole_functions) for side in sides}
    uncounted = _uncounted(changes, base[1], patched[1])
    change = _code_change(lines, differing, before, after)
    same_image = base[1].bzimage_sha256 == patched[1].bzimage_sha256
    missing = sorted({file for code in codes.values() for file in _missing(code)})
    if change is CodeChange.NONE and missing and not same_image:
        note = f"the kernels differ, although no object seems to contain {missing[0]}"
        uncounted = (*uncounted, note)
        lines = {side: _unexplained(own, missing, note) for side, own in lines.items()}
    if same_image:
        change = CodeChange.NONE
    elif uncounted and change in (CodeChange.NONE, CodeChange.DATA):
        change = CodeChange.FUNCTIONS
    changed = [line for own in lines.values() for line in own if line.is_changed]
    covered = {name for line in changed for name in line.functions}
    counted = covered.intersection(
        *(_unaffected(lines[side], changes, side, codes[side], covered) for side in codes)
    )
    entries = {side: tuple(_entries(codes[side], differing, counted)) for side in codes}
    pairs = _pairs(before, after)
    data = any(changed_variables(old.fingerprint, new.fingerprint) for old, new in pairs)
    is_counted = bool(covered) or any(entries.values())
    tables = {}
    for side in sides:
        config = _config(side.kernel)
        code, own = codes[side.side], lines[side.side]
        tables[side.kernel.digest] = LineTable(
            series=series,
            kernel=side.spec.name,
            side=side.side,
            change=change,
            lines=tuple(own),
            functions=entries[side.side],
            jiffies=code.jiffies,
            hz=int(config.get("HZ", "250")),
            notes=(*_notes(code), *uncounted),
            data=data or bool(uncounted or code.left_out) or not is_counted,
        )
    return ReachPlan(series, change, tables)


def _uncounted(
    changes: Sequence[FileChange], before: BuiltKernel, after: BuiltKernel
) -> tuple[str, ...]:
    """Return a note where files that are no C code, such as a Makefile, change the kernel.

    Its image differs then. Options that the patch adds to Kconfig are of its own lines only.
    """
    names = {name for change in changes for name in (change.old, change.new) if name}
    names = {name for name in names if not name.endswith((*_COMPILED, *_TEXTS))}
    rest = sorted(name for name in names if not _BESIDE.match(name))
    files = [change for change in changes if "Kconfig" in (change.new or "")]
    new, old = (
        {name for text in texts for name in _OPTION.findall(text)}
        for texts in ([file.after for file in files], [file.before for file in files])
    )
    options = [
        {k: v for k, v in _config(kernel).items() if v != "n" and k not in new - old}
        for kernel in (before, after)
    ]
    if options[0] == options[1]:
        rest = [name for name in rest if "Kconfig" not in name]
    if not rest or before.bzimage_sha256 == after.bzimage_sha256:
        return ()
    return (f"{rest[0]} may change code anywhere, which is not counted",)


def changed_code(
    changes: Sequence[FileChange], side: PatchSide, on_progress: Progress = no_progress
) -> KernelCode:
    """Return the code of the objects that the changes touch, in one of the two kernels.

    Raises what `kernel_code` raises.
    """
    names = {name for change in changes if (name := _name(change, side.side))}
    sources = sorted(name for name in names if name.endswith(_COMPILED))
    functions = sorted(_functions(changes, side.side))
    return kernel_code(side.spec, side.kernel, sources, functions, on_progress)


def _name(change: FileChange, side: Side) -> str | None:
    return change.new if side == "patched" else change.old


def _text(change: FileChange, side: Side) -> str:
    return change.after if side == "patched" else change.before


def _functions(changes: Iterable[FileChange], side: Side) -> set[str]:
    """Return the functions, macros and events around the changed lines of headers."""
    names = set()
    for change in changes:
        name = _name(change, side)
        if name is None or not name.endswith(".h"):
            continue
        text = _text(change, side)
        for part in change.changes:
            lines = part.added if side == "patched" else part.removed
            start = part.new_start if side == "patched" else part.old_start
            numbers = [line.number for line in lines] or [start]
            names |= {enclosing_function(text, number) for number in numbers}
    return {re.split(r"\W+", name.rstrip(")"))[-1] for name in names if name}


def _config(kernel: BuiltKernel) -> Mapping[str, str]:
    text = kernel.config.read_text(encoding="utf-8") if kernel.config else ""
    return parse_config(text)


def _lines(
    changes: Iterable[FileChange], side: PatchSide, code: KernelCode, whole_functions: bool
) -> list[TableLine]:
    config = _config(side.kernel)
    codes = [item.code for item in code.objects if not item.reason]
    lines: list[TableLine] = []
    for change in changes:
        name = _name(change, side.side)
        if name is None or not name.endswith(_COMPILED):
            continue
        text = _text(change, side.side)
        source = SourceText(text, config)
        for line in table_lines(change, side.side, codes, source, whole_functions=whole_functions):
            lines.append(_judged(line, code))
    return lines


def _judged(line: TableLine, code: KernelCode) -> TableLine:
    """Return a line without code with the reason that its objects give."""
    if line.code is not None or line.state is not LineState.NO_CODE:
        return line
    if name := code.outside.get(line.file):
        return _with(line, LineState.UNKNOWN, f"it is part of {name}, not of the kernel")
    if line.file in _missing(code):
        reason = f"no object of this configuration contains {line.file}"
        return _with(line, LineState.COMPILED_OUT, reason)
    unknown = [item for item in code.objects if item.reason]
    if unknown:
        return _with(line, LineState.UNKNOWN, f"{unknown[0].name}: {unknown[0].reason}")
    return line


def _missing(code: KernelCode) -> list[str]:
    """Return the sources that no object of any kind contains."""
    return [source for source, name in code.outside.items() if not name]


def _unexplained(
    lines: Iterable[TableLine], missing: Collection[str], reason: str
) -> list[TableLine]:
    """Return the lines of missing files as unknown: their objects may have been overlooked."""
    return [
        _with(line, LineState.UNKNOWN, reason)
        if line.file in missing and line.state is LineState.COMPILED_OUT
        else line
        for line in lines
    ]


def _with(line: TableLine, state: LineState, reason: str) -> TableLine:
    return TableLine(line.file, line.number, line.kind, line.text, None, reason, state)


def _is_for_others(line: TableLine, covered: Collection[str]) -> bool:
    """Tell whether a changed line without code may change the code of other lines.

    It is of a macro, a structure, or a function without changed code: not of a `covered` one.
    """
    is_silent = line.reason in (BLANK, COMMENT) or _DECLARES.match(line.text)
    return line.state is LineState.NO_CODE and not is_silent and line.function not in covered


def _unaffected(
    lines: Iterable[TableLine],
    changes: Iterable[FileChange],
    side: Side,
    code: KernelCode,
    covered: set[str],
) -> set[str]:
    """Return the covered functions that no changed line without code may change.

    Such a line may change those that hold code of the function around it, or, if it is of a macro
    or a structure, all.
    """
    texts = {_name(change, side): _text(change, side) for change in changes}
    silent = (line for line in lines if line.is_changed and _is_for_others(line, covered))
    bodies = {(line.file, _body(texts[line.file], line.number)) for line in silent}
    if not all(body for _, body in bodies):
        return set()
    holders = {
        instruction.function.partition(".")[0]
        for item in (code.objects if bodies else ())
        for instruction in (() if item.reason else item.code.instructions)
        for place, number in instruction.places
        if any(place == file and number in body for file, body in bodies)
    }
    return covered - holders


def _body(text: str, number: int) -> range:
    """Return the lines of the function whose body has a line, or of a macro call; else empty."""
    lines, around = text.split("\n"), function_lines(text, number)
    in_body = any(line.startswith("{") for line in lines[around.start : number - 1])
    return around if in_body or macro_call(lines, number) else range(0)


def _pairs(before: KernelCode, after: KernelCode) -> Iterable[tuple[ObjectText, ObjectText]]:
    old = {item.name: item for item in before.objects}
    for item in after.objects:
        if item.name in old:
            yield old[item.name], item


def _differing(before: KernelCode, after: KernelCode) -> Mapping[str, tuple[str, ...]]:
    """Return the functions whose code differs, by object."""
    return {
        new.name: changed_functions(old.fingerprint, new.fingerprint)
        for old, new in _pairs(before, after)
    }


def _code_change(
    lines: Mapping[Side, Sequence[TableLine]],
    differing: Mapping[str, tuple[str, ...]],
    before: KernelCode,
    after: KernelCode,
) -> CodeChange:
    """Return what a patch changes: code of its lines, other code, data, or nothing.

    Objects with a changed header that were not compared, and files outside, may have other code.
    """
    pairs = list(_pairs(before, after))
    same_objects = len(pairs) == len(before.objects) == len(after.objects)
    same_code = same_objects and not any(differing.values())
    changed = [line for side in lines.values() for line in side if line.is_changed]
    coded = (line.functions or line.state is LineState.UNKNOWN for line in changed)
    if any(coded) and not same_code:
        return CodeChange.LINES
    rest = [item for code in (before, after) for item in (code.left_out, *code.outside.values())]
    if not same_code or any(rest):
        return CodeChange.FUNCTIONS
    data = any(changed_data(old.fingerprint, new.fingerprint) for old, new in pairs)
    return CodeChange.DATA if data else CodeChange.NONE


def _entries(
    code: KernelCode, differing: Mapping[str, tuple[str, ...]], covered: Collection[str]
) -> Iterable[TableFunction]:
    """Return the functions whose code differs, but for those that the count of lines covers."""
    for item in (item for item in code.objects if not item.reason):
        starts: dict[str, int] = {}
        for instruction in item.code.instructions:
            starts.setdefault(instruction.function, instruction.address)
        for name in differing.get(item.name, ()):
            plain = name.partition(".")[0]
            if name in starts and plain not in covered and not name.endswith(".cold"):
                yield TableFunction(plain, item.name, starts[name])


def _notes(code: KernelCode) -> Iterable[str]:
    if code.left_out:
        yield f"{code.left_out} more objects include a changed header and are not counted"
    for item in code.objects:
        if item.reason:
            yield f"the lines of {item.name} are unknown: {item.reason}"


def plan_reach(
    specs: Sequence[KernelSpec], patch: str, on_progress: Progress = no_progress
) -> ReachPlan:
    """Build what is needed to count the lines of a patch (an argument of `find_series`).

    Those of `specs` whose last series is the patch are patched kernels, and what lies below it
    their baselines. If there are none, all are baselines. Raises UserError for a patch that does
    not apply or is not the last series, and what `prepare_reach` raises.
    """
    series = find_series(patch)
    pairs = list(filter(None, (_patched_pair(spec, series) for spec in specs)))
    if not pairs:
        pairs = [(spec, with_series(spec, patch)) for spec in specs]
    plans = [_plan_pair(*pair, series, on_progress) for pair in pairs]
    return replace(
        plans[0],
        tables={digest: table for plan in plans[::-1] for digest, table in plan.tables.items()},
    )


def _patched_pair(spec: KernelSpec, series: Series) -> tuple[KernelSpec, KernelSpec] | None:
    """Return the baseline of a patched kernel, and that kernel; None for another kernel."""
    if spec.is_prebuilt:
        raise UserError(f"{spec.name} is prebuilt: the lines of its code are unknown")
    digests = [find_series(name).info.digest for name in spec.series]
    if series.info.digest not in digests:
        return None
    if digests[-1] != series.info.digest:
        raise UserError(f"{series.name} is not the last series of {spec.name}", key="--reach")
    below = replace(spec, series=spec.series[:-1])
    return without_last_series(spec) or replace(below, name=f"{spec.name} without it"), spec


def _plan_pair(
    base: KernelSpec, patched: KernelSpec, series: Series, on_progress: Progress
) -> ReachPlan:
    kernels = [ensure_kernel(side, on_progress=on_progress) for side in (base, patched)]
    changes = line_changes([series], files_of(base, on_progress))
    sides = ((base, kernels[0]), (patched, kernels[1]))
    return prepare_reach(series.name, changes, *sides, on_progress)
