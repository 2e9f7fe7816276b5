"""Patch series by the names that users give: find one, add one to a kernel, renew its offsets."""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from numalab.errors import UserError
from numalab.files import home_expanded, open_regular, reading, replacing
from numalab.kernel.kernel_specs import KernelSpec, is_series_name, load_kernels, series_path
from numalab.locks import locked
from numalab.progress import Progress
from numalab.source import git
from numalab.source.git_range import format_patches
from numalab.source.kernel_source import ENDINGS, fetch_source, unpack
from numalab.source.mailbox import with_line_feeds
from numalab.source.patch import HunkFailed, PatchError, renew_offsets
from numalab.source.plain_files import NotPlain
from numalab.source.series import (
    Series,
    apply_series,
    is_named_as_patch,
    load_mailbox,
    load_series,
    looks_like_patch,
    read_patch,
)
from numalab.source.source_tree import original_reader
from numalab.topology.predict.groups import Construction

_LOOKED_AT = 1 << 20  # bytes of a file with another name


def find_series(text: str) -> Series:
    """Read the series that `text` names, in this order.

    A name below kernel-configs/series; a folder or a file (`load_series`); a range of revisions,
    `git:PATH@FROM..TO`, or FROM..TO in the repository of the current folder; one with a merge is
    one patch. `#N` at the end selects the first N patches. Raises UserError.
    """
    head, count = _split_count(text)
    if count is not None:
        return _first_patches(find_series(head), count)
    if is_series_name(text):
        return load_series(series_path(text))
    path = home_expanded(text)
    with reading(path):
        exists = path.exists()
    if exists:
        return load_series(path)
    if text.startswith(git.PREFIX) or is_range(text):
        return _load_range(text)
    raise UserError(
        f"{text!r} is no series: no such file",
        choices=["a name in kernel-configs/series", "a folder", "a patch", "a mailbox",
                 "FROM..TO", "git:PATH@FROM..TO"],
    )  # fmt: skip


def is_series(text: str) -> bool:
    """Tell whether `text` names patches rather than a kernel or its source.

    A file is a patch by its name or its content; a folder holds patches if it has a file `series`,
    *.patch or *.diff, and no Makefile.
    """
    if is_series_name(text):
        return True
    if is_range(text):
        return True
    path = home_expanded(_split_count(text)[0])
    with reading(path):
        if path.is_dir():
            patches = (path / "series").exists() or any(map(is_named_as_patch, path.iterdir()))
            return patches and not (path / "Makefile").exists()
        if not path.is_file() or path.name.endswith(ENDINGS):
            return False
        if is_named_as_patch(path):
            return True
        with open_regular(path) as file:
            return looks_like_patch(file.read(_LOOKED_AT))


def is_range(text: str) -> bool:
    """Tell whether `text` is `git:PATH@FROM..TO`, or FROM..TO in the current folder."""
    if text.startswith(git.PREFIX):
        with suppress(UserError):
            return ".." in git.split_git(text)[1]
        return ".." in text.rpartition("@")[2] and "@" in text
    is_path = text.startswith((".", "/", "~")) or re.search(r"(^|[/+])\.\.(/|$)", text)
    return ".." in text and not is_path and not home_expanded(text).exists()


def range_base(text: str) -> str:
    """Return the kernel source that a range starts from, as `git:PATH@REVISION`.

    It is FROM, or the last commit that FROM and TO have in common. Raises UserError.
    """
    path, revisions, (first, last) = _range_ends(text)
    common = git.merge_base(path, first, last)
    name = revisions.partition("..")[0]
    return f"{git.PREFIX}{path}@{name if common == first and name else common[:12]}"


def series_name(text: str) -> str:
    """Return the name of a series for lists: of a path, its last part."""
    return text.rstrip("/").rpartition("/")[2] if "/" in text else text


def _split_count(text: str) -> tuple[str, int | None]:
    """Split `#N` off the end, unless that is part of a file's name."""
    head, _, count = text.rpartition("#")
    if head and count.isdecimal() and not home_expanded(text).exists():
        return head, int(count)
    return text, None


def _first_patches(series: Series, count: int) -> Series:
    if not 1 <= count <= len(series.patches):
        raise UserError(f"{series.name} has patches 1 to {len(series.patches)}, not {count}")
    return Series(f"{series.name}#{count}", series.patches[:count])


def _range_ends(text: str) -> tuple[Path, str, tuple[str, str]]:
    """Return the repository of a range, its text, and the ids of its two ends."""
    text, _ = _split_count(text)
    text = text if text.startswith(git.PREFIX) else f"{git.PREFIX}.@{text}"
    path, revisions = git.split_git(text)
    first, dots, last = revisions.partition("..")
    if not dots:
        raise UserError(f"{revisions!r} is no range FROM..TO of revisions", file=path)
    ends = (git.resolve(path, end or "HEAD", "commit") for end in (first, last.lstrip(".")))
    return path, revisions, (next(ends), next(ends))


def _load_range(text: str) -> Series:
    path, revisions, ends = _range_ends(text)
    mails = format_patches(path, *ends)
    if not mails:
        raise UserError(f"no commit in {revisions}", file=path)
    name = f"{path.name}@{revisions.replace('/', '-')}"
    return load_mailbox(mails, Path(name), name)


def groups_by_series() -> dict[tuple[str, ...], Construction]:
    """Return the construction of sched groups of the kernels in kernels.toml, by patches' digests.

    A series that some kernel has without one, such as relax-at-bring-up, makes none. Raises
    UserError for a series that cannot be read.
    """
    pairs = [(name, spec.groups) for spec in load_kernels().values() for name in spec.series]
    digests = {name: _digests(find_series(name)) for name in dict.fromkeys(dict(pairs))}
    groups: dict[tuple[str, ...], Construction] = {}
    for name, construction in pairs:
        first = groups.setdefault(digests[name], construction)
        groups[digests[name]] = construction if construction is Construction.NOW else first
    return groups


def _digests(series: Series) -> tuple[str, ...]:
    return tuple(patch.digest for patch in series.patches)


def with_series(
    base: KernelSpec, text: str, groups: Mapping[tuple[str, ...], Construction] | None = None
) -> KernelSpec:
    """Return `base` with one more series, an argument of `find_series`.

    If all kernels in kernels.toml with that series, or with one whose patches are all in it, have a
    construction of sched groups, the result has the same; a caller with many series passes the
    `groups_by_series`. Raises UserError for a prebuilt base and for a series that cannot be read.
    """
    if base.is_prebuilt:
        raise UserError(f"{base.name} is prebuilt: patches need a source", key="--base")
    series = find_series(text)
    return replace(
        base,
        name=f"{base.name}+{series.name}",
        summary=f"{base.name} with {series.name}",
        series=(*base.series, text),
        groups=_made_by(series, groups_by_series() if groups is None else groups) or base.groups,
    )


def _made_by(series: Series, groups: Mapping[tuple[str, ...], Construction]) -> Construction | None:
    """Return the construction that a series makes, None for one that makes none."""
    own = _digests(series)
    parts = [own] if own in groups else [part for part in groups if set(part) <= set(own)]
    made = (groups[part] for part in parts if groups[part] is not Construction.NOW)
    return next(made, None)


def refresh_series(text: str, base: KernelSpec, tell: Progress) -> tuple[Path, ...]:
    """Renew the line numbers in a series so that it fits `base`; return the changed files.

    `text` is a name below kernel-configs/series or a folder. The earlier series of `base` are
    applied first. Raises UserError for a hunk that does not fit; no file is changed then.
    """
    folder = home_expanded(text)
    if is_series_name(text):
        folder = series_path(text)
    if not folder.is_dir():
        raise UserError("only the patches of a folder can be refreshed", file=folder)
    series = load_series(folder)
    for patch in series.patches:
        if not patch.path.exists():  # it is one of several mails
            box = patch.path.with_name(patch.path.name.rpartition(", patch ")[0])
            reason = "is a mailbox of several patches; save each as a file to refresh it"
            raise UserError(reason, file=box)
    source = fetch_source(base.source, tell)
    with locked(source.folder / "lock", lambda: tell("waiting for another build", None)):
        tell(f"unpacking {source.name}", None)
        read = original_reader(unpack(source))
        before = [find_series(name) for name in base.series]
        # A kernel that has the series already is the base without it.
        texts = _renewed(
            [applied for applied in before if applied.name != series.name], series, read
        )
    changed = [path for path, new in texts.items() if new != read_patch(path)]
    for path in changed:
        data, old = texts[path].encode("utf-8", "surrogateescape"), path.read_bytes()
        if with_line_feeds(old) != old:
            data = data.replace(b"\n", b"\r\n")
        with replacing(path) as new:
            new.write_bytes(data)
    return tuple(changed)


def _renewed(
    before: list[Series], series: Series, read: Callable[[str], str | None]
) -> dict[Path, str]:
    touched: dict[str, str | None] = {}

    def current(name: str) -> str | None:
        return touched[name] if name in touched else read(name)

    texts = {}
    for patch in (patch for applied in [*before, series] for patch in applied.patches):
        try:
            if patch in series.patches:
                texts[patch.path] = renew_offsets(read_patch(patch.path), current)
        except PatchError as error:
            reason = f"cannot be refreshed: {error}; first unpack a packed file or decode a mail"
            raise UserError(reason, file=patch.path) from None
        except (HunkFailed, NotPlain) as error:
            raise UserError(f"does not apply: {error}", file=patch.path) from None
        touched.update(apply_series([Series(series.name, (patch,))], current))
    return texts
