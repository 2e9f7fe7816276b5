"""A kernel by any name: of kernels.toml, a source, a built kernel, or a patch on one of them."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.errors import UserError
from numalab.kernel.kernel_specs import (
    KernelSpec,
    find_unpatched,
    is_name,
    is_series_name,
    list_kernels,
    list_series,
    load_kernels,
)
from numalab.kernel.patch_artifact import (
    SavedPatch,
    find_saved,
    is_gone,
    save_patch,
    saved_patches,
    short_name,
)
from numalab.kernel.patch_base import choose_base, files_of, has_source, refusal
from numalab.kernel.patch_series import (
    find_series,
    groups_by_series,
    is_range,
    is_series,
    range_base,
    with_series,
)
from numalab.places import require_in_lab, skip_input
from numalab.progress import Progress, no_progress
from numalab.source.changes import FileChange, line_changes
from numalab.source.git import PREFIX, is_tag, resolve, split_git
from numalab.source.kernel_source import is_package
from numalab.source.series import Series
from numalab.topology.predict.groups import Construction

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")


@dataclass(frozen=True)
class PatchedKernel:
    """A patch on its base kernel, and a line on how the base was chosen ("" if it was given)."""

    base: KernelSpec
    patched: KernelSpec
    series: Series
    note: str = ""


def patched_kernel(
    texts: Sequence[str], base: str | None = None, tell: Progress = no_progress
) -> PatchedKernel:
    """Return the kernel of a patch, without a build.

    `texts` are arguments of `find_series`; the patches of several are applied in this order.
    `base` is an argument of `find_kernel`; by default, it is the kernel that the first range of
    commits starts from, else the newest kernel that the patch applies to. The patches are copied to
    the cache, and the kernel is built from the copy. Raises UserError for a patch that does not
    apply.
    """
    series = _joined([find_series(text) for text in texts])
    name, note = base, ""
    if base is None and (first := next(filter(is_range, texts), None)) is not None:
        name = range_base(first)
        note = f"on {name}, where the range begins"
    if name is not None:
        kernel = find_kernel(name, tell)
        _check_base(kernel, series, tell)
    else:
        chosen = choose_base(series, tell)
        kernel, note = chosen.kernel, chosen.note
    named = len(texts) == 1 and is_series_name(texts[0])
    reference, commit = _reference(kernel), ""
    if reference.startswith(PREFIX):
        path, revision = split_git(reference)
        commit = "" if is_tag(path, revision) else resolve(path, revision)
    saved = save_patch(series, reference, _label(kernel), named=named, commit=commit)
    kernel = _at_commit(kernel, commit)
    return PatchedKernel(kernel, _saved_kernel(saved, kernel, note), series, note)


def patch_changes(kernel: PatchedKernel, tell: Progress = no_progress) -> tuple[FileChange, ...]:
    """Return the lines that a patch changes, by their numbers in base and patched source.

    Raises what `patched_kernel` raises.
    """
    return line_changes([kernel.series], files_of(kernel.base, tell))


def find_kernel(text: str, tell: Progress = no_progress) -> KernelSpec:
    """Return the kernel that `text` names, in this order.

    A name in kernels.toml; a patch (an argument of `find_series`) on the newest kernel that it
    applies to; the name of an earlier patched kernel, or of its patch; BASE+PATCH, with any kernel
    and any patch; a source or a built kernel (`find_unpatched`). Raises UserError.
    """
    named = load_kernels()
    if text in named:
        return named[text]
    if text and is_series(text):
        return patched_kernel([text], tell=tell).patched
    if _LABEL.fullmatch(text) and (saved := find_saved(text, saved_patches())) is not None:
        return _saved_kernel(saved, _saved_base(saved, tell))
    if (parts := _base_and_patch(text, named)) is not None:
        base, patch = parts
        return patched_kernel([patch], base, tell).patched
    return find_unpatched(text)


def list_all_kernels() -> dict[str, KernelSpec]:
    """Return the kernels of kernels.toml and of saved patches; broken ones are left out.

    So are patches with the name of a series, or on a kernel, that only another lab folder has.
    """
    kernels, names = list_kernels(), set(list_series())
    every = saved_patches()
    bases = {*kernels, *(saved.kernel for saved in every)}
    try:
        groups = groups_by_series() if every else {}
    except UserError as error:
        skip_input(error)
        return kernels
    for saved in every:
        if not saved.is_copy and saved.series not in names:
            continue
        if is_gone(saved.base):
            continue
        if is_name(saved.base) and saved.base not in bases:
            continue
        try:
            named = kernels.get(saved.base)
            base = _at_commit(named, saved.commit) if named else _saved_base(saved)
            kernels.setdefault(saved.kernel, _saved_kernel(saved, base, groups=groups))
        except UserError as error:
            skip_input(error)
    return kernels


def named_kernel(name: str, file: Path, key: str) -> KernelSpec:
    """Return the kernel called `name` for a foreign file, such as a case.

    It may be one of kernels.toml or of a patch that the user built. A path or package in such a
    file is refused: it would be built with the user's privileges.
    """
    kernels = load_kernels()
    if name in kernels:
        return kernels[name]
    patches = saved_patches()
    require_in_lab(name, [*kernels, *(patch.kernel for patch in patches)], file, key)
    saved = find_saved(name, patches)
    assert saved is not None
    return _saved_kernel(saved, _saved_base(saved))


def _saved_base(saved: SavedPatch, tell: Progress = no_progress) -> KernelSpec:
    return _at_commit(find_kernel(saved.base, tell), saved.commit)


def _at_commit(base: KernelSpec, commit: str) -> KernelSpec:
    """Return a base with the revision that its name had when the patch was saved."""
    if not commit:
        return base
    path, _ = split_git(base.source)
    return replace(base, source=f"{PREFIX}{path}@{commit}")


def _saved_kernel(
    saved: SavedPatch,
    base: KernelSpec,
    note: str = "",
    groups: Mapping[tuple[str, ...], Construction] | None = None,
) -> KernelSpec:
    kernel = with_series(base, saved.series, groups)
    return replace(kernel, name=saved.kernel, base=base, note=note)


def _joined(series: Sequence[Series]) -> Series:
    if not series:
        raise UserError("no patch is named")
    if len(series) == 1:
        return series[0]
    patches = tuple(patch for part in series for patch in part.patches)
    return Series(f"{series[0].name}-and-{len(series) - 1}", patches)


def _check_base(kernel: KernelSpec, series: Series, tell: Progress) -> None:
    if kernel.is_prebuilt:
        raise UserError(f"{kernel.name} is prebuilt: patches need a source", key="--base")
    if not has_source(kernel):
        return  # the build fetches it first
    tell(f"trying the patch on {kernel.name}", None)
    if (reason := refusal(series, files_of(kernel, tell))) is not None:
        raise UserError(f"{reason}\nbase: {kernel.name}")


def _base_and_patch(text: str, named: Collection[str]) -> tuple[str, str] | None:
    """Split BASE+PATCH where both sides are what they should be; None for another text."""
    parts = text.split("+")
    for count in range(len(parts) - 1, 0, -1):
        base, patch = "+".join(parts[:count]), "+".join(parts[count:])
        is_base = base in named or is_package(base) or "/" in base or ":" in base
        if not is_base and _LABEL.fullmatch(base):
            is_base = find_saved(base, saved_patches()) is not None
        if is_base and patch and is_series(patch):
            return base, patch
    return None


def _reference(kernel: KernelSpec) -> str:
    """Return the argument of `find_kernel` for a base, wherever the next command runs."""
    return kernel.name if _LABEL.fullmatch(kernel.name) else kernel.source


def _label(kernel: KernelSpec) -> str:
    if _LABEL.fullmatch(kernel.name):
        return kernel.name
    return short_name(kernel.name.rstrip("/").rpartition("/")[2])
