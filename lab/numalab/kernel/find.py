"""Finds a patch series by what a user calls it."""

from pathlib import Path

from numalab.errors import UserError
from numalab.files import home_expanded, reading
from numalab.kernel.catalogue import list_series, series_path
from numalab.source import git
from numalab.source.series import Series, load_mailbox, load_series


def find_series(text: str) -> Series:
    """Read a series by what names it, in this order.

    A name below kernel-configs/series; a folder or a file (`load_series`); a range of revisions,
    `git:PATH@FROM..TO`, or FROM..TO in the repository of the current folder. With `#N` after it,
    only the first N patches of it. Raises UserError.
    """
    head, _, count = text.rpartition("#")
    if head and count.isdecimal() and not home_expanded(text).exists():
        return _first_patches(find_series(head), int(count))
    if "/" not in text and text in list_series():
        return load_series(series_path(text))
    path = home_expanded(text)
    with reading(path):
        exists = path.exists()
    if exists:
        return load_series(path)
    if text.startswith(git.PREFIX):
        return _load_range(text)
    if ".." in text and text[0] not in "./~":  # FROM..TO, and not ../a-file
        return _load_range(f"{git.PREFIX}.@{text}")
    raise UserError(
        f"{text!r} is no series: there is no such file",
        choices=[
            "a name in kernel-configs/series",
            "a folder",
            "a patch",
            "a mailbox",
            "FROM..TO",
            "git:PATH@FROM..TO",
        ],
    )


def _first_patches(series: Series, count: int) -> Series:
    if not 1 <= count <= len(series.patches):
        raise UserError(f"{series.name} has patches 1 to {len(series.patches)}, not {count}")
    return Series(f"{series.name}#{count}", series.patches[:count])


def _load_range(text: str) -> Series:
    path, revisions = git.split_git(text)
    first, dots, last = revisions.partition("..")
    if not dots:
        raise UserError(f"{revisions!r} is no range FROM..TO of revisions", file=path)
    ends = [git.resolve(path, f"{one or 'HEAD'}^{{commit}}") for one in (first, last.lstrip("."))]
    mails = git.format_patches(path, *ends)
    if not mails:
        raise UserError(f"there is no commit in {revisions}", file=path)
    return load_mailbox(mails, Path(f"{path.name}@{revisions.replace('/', '-')}"))
