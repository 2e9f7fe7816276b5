"""The kernels of `kernel-configs/kernels.toml`, and kernels that are named by a path."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from numalab.document import Document, read_document
from numalab.errors import UserError
from numalab.files import home_expanded
from numalab.places import (
    find_input,
    find_inputs,
    list_inputs,
    project_dir,
    skip_input,
)
from numalab.source import git
from numalab.source.kernel_source import ENDINGS, is_package
from numalab.source.own_trees import is_own_tree, own_release
from numalab.topology.predict.groups import Construction

DEB = "deb:"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class KernelSpec:
    """A kernel to build: source, patch series in the order they are applied, config fragments.

    `series` are arguments of `find_series`. A prebuilt kernel (a bzImage, a vmlinux or a Debian
    package) has neither series nor fragments. `groups` is the construction of sched groups that
    the series implements, for the prediction. `base` is the kernel below the patch of a patched
    kernel, and `note` a line for the user on how numalab chose it.
    """

    name: str
    summary: str
    source: str
    series: tuple[str, ...] = ()
    fragments: tuple[str, ...] = ()
    groups: Construction = Construction.NOW
    base: "KernelSpec | None" = field(default=None, compare=False)
    note: str = field(default="", compare=False)

    @property
    def is_prebuilt(self) -> bool:
        """Tell whether the kernel needs no build."""
        return not self.fragments

    @property
    def package(self) -> str | None:
        """The Debian package of a prebuilt kernel, as PACKAGE or PACKAGE/SUITE."""
        return self.source.removeprefix(DEB) if self.source.startswith(DEB) else None


class KernelTable(Document):
    """A named kernel build."""

    summary: str
    """One line for lists."""
    source: str
    """A source or a built kernel; see the forms below the table."""
    fragments: tuple[str, ...] | None = None
    """Config fragments; by default those of the file."""
    series: tuple[str, ...] = ()
    """Patch series in the order they are applied."""
    groups: Construction = Construction.NOW
    """How the series make the kernel build overlapping sched groups; the prediction follows it."""


class KernelsFile(Document):
    """The kernels of `kernels.toml`."""

    fragments: tuple[str, ...] = ()
    """Config fragments of kernels that name none."""
    kernel: dict[str, KernelTable]
    """Kernels by name."""


def fragment_path(name: str) -> Path:
    """Return the path of the config fragment `name`; UserError for an unknown name."""
    return _input_path(f"{name}.config", f"no fragment is called {name!r}", list_fragments)


def series_path(name: str) -> Path:
    """Return the folder of the patch series `name`; UserError for an unknown name."""
    return _input_path(f"series/{name}", f"no series is called {name!r}", list_series)


def is_series_name(name: str) -> bool:
    """Tell whether a patch series is called `name`. Raises UserError as `find_input` does."""
    if "/" in name or name in ("", ".", ".."):
        return False
    return find_input("kernel-configs", f"series/{name}/series") is not None


def list_fragments() -> list[str]:
    """Return the names of the config fragments, in order."""
    return [path.stem for path in list_inputs("kernel-configs", "*.config").values()]


def list_series() -> list[str]:
    """Return the names of the patch series, in order."""
    files = list_inputs("kernel-configs", "series/*/series").values()
    return [path.parent.name for path in files]


def _input_path(name: str, reason: str, choices: Callable[[], list[str]]) -> Path:
    if path := find_input("kernel-configs", name):
        return path
    raise UserError(reason, choices=choices())


def load_kernels() -> dict[str, KernelSpec]:
    """Read all named kernels, by name, in the order of the files, the user's first.

    Raises UserError for an unknown key, fragment, series or kind of source, a name that is listed
    twice, and fragments or series for a prebuilt kernel.
    """
    return _all_kernels()[0]


def list_kernels() -> dict[str, KernelSpec]:
    """Return the named kernels that can be used; a broken entry or file is left out."""
    specs: dict[str, KernelSpec] = {}
    fragments: tuple[str, ...] = ()
    choices = _Choices(list_fragments(), list_series())
    for file in reversed(list(find_inputs("kernel-configs", "kernels.toml"))):
        usable: dict[str, KernelSpec] = {}
        try:
            table = read_document(file, KernelsFile)
        except UserError as error:
            skip_input(error)
            continue
        fragments = table.fragments or fragments
        for name, kernel in table.kernel.items():
            try:
                alone = table.model_copy(update={"kernel": {name: kernel}})
                usable |= _specs(alone, file, fragments, choices)
            except UserError as error:
                skip_input(error)
        later = {name: spec for name, spec in specs.items() if name not in table.kernel}
        specs = usable | later
    return specs


def other_configurations(kernel: KernelSpec) -> list[str]:
    """Return the named kernels that differ from a kernel by their fragments only."""
    return [
        other.name
        for other in list_kernels().values()
        if (other.source, other.series) == (kernel.source, kernel.series)
        and other.fragments != kernel.fragments
    ]


def without_last_series(spec: KernelSpec) -> KernelSpec | None:
    """Return the kernel that is `spec` without its last patch series, None if none is named."""
    if spec.base is not None or not spec.series:
        return spec.base
    base = replace(spec, series=spec.series[:-1], groups=Construction.NOW)
    for named in load_kernels().values():
        if replace(base, name=named.name, summary=named.summary) == named:
            return named
    return None


def _all_kernels() -> tuple[dict[str, KernelSpec], tuple[str, ...]]:
    """Return the kernels of every `kernels.toml`, and the default fragments.

    A file without fragments uses those of the files after it.
    """
    files = list(find_inputs("kernel-configs", "kernels.toml"))
    if not files:
        raise UserError("no such file: kernels.toml", file=project_dir() / "kernel-configs")
    specs: dict[str, KernelSpec] = {}
    fragments: tuple[str, ...] = ()
    choices = _Choices(list_fragments(), list_series())
    for file in reversed(files):
        table = read_document(file, KernelsFile)
        fragments = table.fragments or fragments
        later = {name: spec for name, spec in specs.items() if name not in table.kernel}
        specs = _specs(table, file, fragments, choices) | later
    return specs, fragments


class _Choices(NamedTuple):
    """The names that a kernel may use. To list them takes a look at every file."""

    fragments: list[str]
    series: list[str]


def _specs(
    table: KernelsFile, file: Path, default: tuple[str, ...], choices: _Choices
) -> dict[str, KernelSpec]:
    fragments, series = choices
    _check_names(table.fragments, fragments, file, "fragments", "fragment")
    specs = {}
    for name, kernel in table.kernel.items():
        key = f"kernel.{name}"
        if not _NAME.fullmatch(name):
            raise UserError(
                "a kernel's name has up to 64 letters, digits, '.', '_', '-'", file=file, key=key
            )
        source, prebuilt = _source(kernel.source, file, f"{key}.source")
        if kernel.fragments == ():
            raise UserError(
                "is empty; leave it out for those of the file",
                file=file,
                key=f"{key}.fragments",
                choices=fragments,
            )
        own = kernel.fragments or ()
        _check_names(own, fragments, file, f"{key}.fragments", "fragment")
        _check_names(kernel.series, series, file, f"{key}.series", "series")
        if prebuilt and (own or kernel.series):
            raise UserError(
                "a prebuilt kernel takes no fragments and no series", file=file, key=key
            )
        chosen = () if prebuilt else (own or default)
        if not prebuilt and not chosen:
            raise UserError("names no fragments", file=file, key=key, choices=fragments)
        specs[name] = KernelSpec(name, kernel.summary, source, kernel.series, chosen, kernel.groups)
    return specs


def find_unpatched(name: str) -> KernelSpec:
    """Return the kernel called `name`, or the kernel of a path or package.

    A path or package is a bzImage, a vmlinux, `deb:PACKAGE[/SUITE]`, a package file, or a source,
    which gets the default fragments. Raises UserError, which lists the names.
    """
    kernels, fragments = _all_kernels()
    if name in kernels:
        return kernels[name]
    if is_name(name):
        choices = [*kernels, "a path", f"{DEB}..."]
        raise UserError(f"no kernel is called {name!r}", choices=choices)
    source, prebuilt = _source(name, None, "kernel")
    summary = "a kernel that was built elsewhere" if prebuilt else "not in kernels.toml"
    return KernelSpec(name, summary, source, (), () if prebuilt else fragments)


def is_name(text: str) -> bool:
    """Whether a text can only be the name of a kernel, no path and no package."""
    return not ("/" in text or ":" in text or is_package(text))


def _source(text: str, file: Path | None, key: str) -> tuple[str, bool]:
    """Check the form of a source; return it with an absolute path, and whether it is prebuilt."""
    if text.startswith(DEB) and "/" not in text.removeprefix(DEB).partition("/")[2]:
        return text, True
    if is_own_tree(text):
        own_release(text)
        return text, False
    if is_package(text) and not text.endswith(ENDINGS):
        return text, False
    prefix = git.PREFIX if text.startswith(git.PREFIX) else ""
    if "/" not in text and not prefix:
        raise UserError(
            f"{text!r} is no kernel source",
            file=file,
            key=key,
            choices=["linux-source-6.12[/SUITE]", "git:PATH[@REVISION]", "mainline:RELEASE",
                     "deb:PACKAGE[/SUITE]",
                     "the path of a folder, tarball, package, bzImage or vmlinux"],
        )  # fmt: skip
    path = home_expanded(text.removeprefix(prefix))
    if file is not None and not path.is_absolute():
        path = file.parent.parent / path  # the lab folder of the file
    if not prefix and not path.exists():
        raise UserError("no such file or folder", file=file, key=f"{key}: {text}")
    built = not prefix and path.is_file() and not path.name.endswith(ENDINGS)
    return f"{prefix}{path.absolute()}", built


def _check_names(names: Sequence[str], choices: list[str], file: Path, key: str, what: str) -> None:
    for index, name in enumerate(names):
        if name not in choices:
            raise UserError(f"no {what} is called {name!r}", file=file, key=key, choices=choices)
        if name in names[:index]:
            raise UserError(f"{name!r} is named twice", file=file, key=key)
