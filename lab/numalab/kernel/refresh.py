"""Renews the offsets of a series: every hunk header says where the hunk is in a source."""

from collections.abc import Callable
from pathlib import Path

from numalab.errors import UserError
from numalab.files import home_expanded, replacing
from numalab.kernel.catalogue import KernelSpec, list_series, series_path
from numalab.kernel.find import find_series
from numalab.locks import locked
from numalab.progress import Progress
from numalab.source.beneath import NotPlain
from numalab.source.patch import HunkFailed, renew_offsets
from numalab.source.series import Series, apply_series, load_series, read_patch
from numalab.source.source import fetch_source, unpack
from numalab.source.tree import original_reader


def refresh_series(text: str, base: KernelSpec, tell: Progress) -> tuple[Path, ...]:
    """Renew the patches of a series so that they fit `base`; return the files that changed.

    `text` is a name below kernel-configs/series or a folder. The series of `base` before it are
    applied first. Raises UserError for a hunk that does not fit, and then changes no file.
    """
    folder = home_expanded(text)
    if "/" not in text and text in list_series():
        folder = series_path(text)
    if not folder.is_dir():
        raise UserError("only the patches of a folder can be refreshed", file=folder)
    series = load_series(folder)
    source = fetch_source(base.source, tell)
    with locked(source.folder / "lock", lambda: tell("waiting for a build of this source", None)):
        tell(f"unpacking {source.name}", None)
        read = original_reader(unpack(source))
        before = [find_series(name) for name in base.series]
        # A kernel that has the series already is the base without it.
        texts = _renewed([one for one in before if one.name != series.name], series, read)
    changed = [path for path, new in texts.items() if new != read_patch(path)]
    for path in changed:
        with replacing(path) as new:
            new.write_bytes(texts[path].encode("utf-8", "surrogateescape"))
    return tuple(changed)


def _renewed(
    before: list[Series], series: Series, read: Callable[[str], str | None]
) -> dict[Path, str]:
    touched: dict[str, str | None] = {}

    def now(name: str) -> str | None:
        return touched[name] if name in touched else read(name)

    texts = {}
    for patch in (patch for one in [*before, series] for patch in one.patches):
        try:
            if patch in series.patches:
                texts[patch.path] = renew_offsets(read_patch(patch.path), now)
        except (HunkFailed, NotPlain) as error:
            raise UserError(f"does not apply: {error}", file=patch.path) from None
        touched.update(apply_series([Series(series.name, (patch,))], now))
    return texts
