"""The kernel that a patch is for: the newest one whose source it fits, found without a build."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from numalab.errors import HostError, LabError, UserError
from numalab.kernel.kernel_specs import KernelSpec, load_kernels
from numalab.kernel.patch_series import find_series
from numalab.locks import locked
from numalab.progress import Progress
from numalab.source.debian_packages import NotFetched
from numalab.source.git import read_source_file
from numalab.source.kernel_source import Source, fetch_source, find_source, unpack
from numalab.source.plain_files import SourceFile
from numalab.source.series import Series, patch_files
from numalab.source.source_tree import read_original

Read = Callable[[str], SourceFile | None]
_MOST_LINES = 24  # of the explanation for a kernel that a patch does not fit


@dataclass(frozen=True)
class Base:
    """The kernel below a patch, and a line on how it was chosen."""

    kernel: KernelSpec
    note: str


def files_of(kernel: KernelSpec, tell: Progress) -> Read:
    """Return a function that reads files of a kernel's source with the kernel's own series.

    It fetches and unpacks the source if necessary. Raises UserError, HostError and BuildError.
    """
    return _with_series(kernel, _reader(fetch_source(kernel.source, tell), tell))


def choose_base(series: Series, tell: Progress) -> Base:
    """Return the newest kernel that a series applies to.

    Candidates are the named kernels with a source on this host; of the kernels with the same
    source, the one with the fewest series and fragments. Without any, the first one is fetched.
    Raises UserError, which shows for each kernel the first hunk that does not fit.
    """
    unpatched = _one_for_each_source(load_kernels().values())
    present, absent = [], []
    for kernel in unpatched:
        try:
            present.append((find_source(kernel.source), kernel))
        except LabError:
            absent.append(kernel)
    if not present and absent:
        kernel = absent.pop(0)
        present.append((fetch_source(kernel.source, tell), kernel))
    present.sort(key=lambda pair: version_key(pair[0].version), reverse=True)
    refusals: list[tuple[str, str]] = []
    for source, kernel in present:
        tell(f"trying the patch on {kernel.name}", None)
        try:
            reason = refusal(series, _with_series(kernel, _reader(source, tell)))
        except UserError as error:  # its own series do not apply
            reason = str(error)
        if reason is None:
            newer = [other for other in absent if _may_be_newer(other, source.version)]
            return Base(kernel, _note(kernel, [name for name, _ in refusals], newer))
        refusals.append((kernel.name, reason))
    raise UserError(_no_kernel(refusals, absent), file=series.patches[0].path)


def has_source(kernel: KernelSpec) -> bool:
    """Tell whether the source of a kernel is on this host."""
    try:
        find_source(kernel.source)
    except NotFetched:
        return False
    return True


def refusal(series: Series, read: Read) -> str | None:
    """Return why a series does not apply to files, None where it does. Raises HostError."""
    try:
        patch_files([series], read)
    except UserError as error:
        return str(error)
    return None


def version_key(version: str) -> tuple[int, ...]:
    """Return the sort key of a kernel version: "6.12-rc3" comes before "6.12.0" and "6.12.1"."""
    number, _, rest = version.partition("-")
    numbers = [int(part) for part in re.findall(r"\d+", number)[:3]]
    candidate = re.match(r"rc(\d+)", rest)
    return (*numbers, *[0] * (3 - len(numbers)), int(candidate[1]) if candidate else 1000)


def _one_for_each_source(kernels: Iterable[KernelSpec]) -> list[KernelSpec]:
    chosen: dict[str, KernelSpec] = {}
    for kernel in kernels:
        other = chosen.setdefault(kernel.source, kernel)
        if _additions(kernel) < _additions(other):
            chosen[kernel.source] = kernel
    return [kernel for kernel in chosen.values() if not kernel.is_prebuilt]


def _may_be_newer(absent: KernelSpec, version: str) -> bool:
    named = re.search(r"\d+\.\d+", absent.source)
    return named is None or version_key(named[0])[:2] > version_key(version)[:2]


def _additions(kernel: KernelSpec) -> tuple[int, int]:
    return len(kernel.series), len(kernel.fragments)


def _reader(source: Source, tell: Progress) -> Read:
    if source.tree is not None:
        return partial(read_source_file, source.tree)
    tree = source.folder / "source"
    if not tree.is_dir():
        with locked(source.folder / "lock", lambda: tell("waiting for another build", None)):
            tell(f"unpacking {source.name}", None)
            unpack(source)
    return partial(read_original, tree)


def _with_series(kernel: KernelSpec, read: Read) -> Read:
    """Return a reader of the files with the kernel's series applied."""
    if not kernel.series:
        return read
    try:
        changed = patch_files([find_series(name) for name in kernel.series], read)
    except UserError as error:
        raise UserError(f"{kernel.name} cannot be built: {error}") from None
    return lambda name: changed[name] if name in changed else read(name)


def _note(kernel: KernelSpec, refused: Sequence[str], absent: Sequence[KernelSpec]) -> str:
    text = f"applies to {kernel.name}"
    if refused:
        text += f"; not to {', '.join(refused)}"
    if absent:
        names = ", ".join(other.name for other in absent)
        text += f"; not tried on {names}, whose source is not on this host"
    return text


def _no_kernel(refusals: Sequence[tuple[str, str]], absent: Sequence[KernelSpec]) -> str:
    if not refusals:
        raise HostError("no kernel in kernels.toml is built from a source")
    lines = ["applies to no kernel on this host; choose another with --base or BASE+PATCH"]
    for name, reason in refusals:
        first, *rest = reason.splitlines()
        if len(rest) > _MOST_LINES:
            rest = [*rest[:_MOST_LINES], "..."]
        lines += [f"{name}: {first}", *(f"  {line}" for line in rest)]
    if absent:
        names = ", ".join(kernel.name for kernel in absent)
        lines.append(f"not tried: {names} (source not on this host; numalab kernel build fetches)")
    return "\n".join(lines)
