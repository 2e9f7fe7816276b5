"""The kernels that have a name: `kernel-configs/kernels.toml`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lab.document import Document, read_document
from lab.errors import UserError
from lab.store import project_dir

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SOURCE = re.compile(r"linux-source-[0-9]+\.[0-9]+")


@dataclass(frozen=True)
class KernelSpec:
    """A named build: source, patch series in the order they are applied, config fragments.

    `groups_before_fix`: the series brings back the sched groups of kernels before 4.13, which the
    prediction has to follow.
    """

    name: str
    summary: str
    source: str
    series: tuple[str, ...]
    fragments: tuple[str, ...]
    groups_before_fix: bool = False


class _Kernel(Document):
    summary: str
    source: str
    fragments: tuple[str, ...]
    series: tuple[str, ...] = ()
    groups_before_fix: bool = False


class _Kernels(Document):
    kernel: dict[str, _Kernel]


def kernel_configs() -> Path:
    """Return the folder of `kernels.toml`, the fragments and the series."""
    return project_dir() / "kernel-configs"


def fragment_path(name: str) -> Path:
    """Return where the config fragment `name` lies."""
    return kernel_configs() / f"{name}.config"


def series_path(name: str) -> Path:
    """Return the folder of the patch series `name`."""
    return kernel_configs() / "series" / name


def load_kernels() -> dict[str, KernelSpec]:
    """Read all named kernels, by name, in the order of the file.

    Raises UserError for an unknown key, a fragment or series that is not there, one named twice,
    and a source that is not a Debian source package.
    """
    file = kernel_configs() / "kernels.toml"
    table = read_document(file, _Kernels)
    fragments = sorted(path.stem for path in kernel_configs().glob("*.config"))
    series = sorted(path.parent.name for path in kernel_configs().glob("series/*/series"))
    found = {}
    for name, kernel in table.kernel.items():
        key = f"kernel.{name}"
        if not _NAME.fullmatch(name):
            raise UserError(
                "a kernel's name has up to 64 letters, digits, '.', '_', '-'", file=file, key=key
            )
        if not _SOURCE.fullmatch(kernel.source):
            raise UserError(
                f"{kernel.source!r} is not a Debian source package such as linux-source-6.12",
                file=file,
                key=f"{key}.source",
            )
        _check_names(kernel.fragments, fragments, file, f"{key}.fragments", "fragment")
        _check_names(kernel.series, series, file, f"{key}.series", "series")
        found[name] = KernelSpec(
            name,
            kernel.summary,
            kernel.source,
            kernel.series,
            kernel.fragments,
            kernel.groups_before_fix,
        )
    return found


def find_kernel(name: str) -> KernelSpec:
    """Return the kernel called `name`; UserError lists the names there are."""
    kernels = load_kernels()
    if name not in kernels:
        raise UserError(f"no kernel is called {name!r}", choices=kernels)
    return kernels[name]


def _check_names(wanted: Iterable[str], there: list[str], file: Path, key: str, what: str) -> None:
    seen = set()
    for name in wanted:
        if name not in there:
            raise UserError(f"no {what} is called {name!r}", file=file, key=key, choices=there)
        if name in seen:
            raise UserError(f"{name!r} is named twice", file=file, key=key)
        seen.add(name)
