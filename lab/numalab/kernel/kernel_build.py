"""Builds a kernel: unpack, apply, configure, compile. The builder keeps it by its digest."""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, cached, log_file, resumable_folder
from numalab.artifact.digest import digest_of, hash_file
from numalab.document import read_record
from numalab.errors import HostError, UserError
from numalab.files import write_json
from numalab.kernel.config_fragment import Fragment, Option, merge, version_numbers
from numalab.kernel.kernel_artifact import KERNELS, BuiltKernel
from numalab.kernel.kernel_config import (
    Origin,
    added_options,
    config_origins,
    read_fragments,
    request_config,
)
from numalab.kernel.kernel_specs import KernelSpec, fragment_path
from numalab.kernel.patch_series import find_series
from numalab.kernel.prebuilt_kernel import fetch_prebuilt, prebuilt_artifact
from numalab.limits.cgroup import usable_cpus
from numalab.locks import locked
from numalab.process import run, version_line
from numalab.progress import Progress, no_progress
from numalab.source.debian_packages import NotFetched
from numalab.source.kernel_source import Source, fetch_source, find_source, unpack
from numalab.source.series import Series, SeriesInfo
from numalab.source.source_tree import switch_tree

__all__ = ["BuiltKernel", "built_kernel", "ensure_kernel"]

FORMAT = 1  # raise it when the build itself changes, so that old entries are not used

# Settings that would differ from build to build and host to host. rustc is not used, and pahole
# only for BTF, but the configuration records their versions.
SETTINGS: Mapping[str, str] = {
    "KBUILD_BUILD_TIMESTAMP": "Sun Nov 17 22:15:08 UTC 2024",  # Linux 6.12's release
    "KBUILD_BUILD_USER": "numalab",
    "KBUILD_BUILD_HOST": "numalab",
    "KBUILD_BUILD_VERSION": "1",
    "ARCH": "x86_64",
    "CROSS_COMPILE": "",
    "LLVM": "",
    "LOCALVERSION": "",
    "KCFLAGS": "",
    "KAFLAGS": "",
    "KCPPFLAGS": "",
    "RUSTC": "false",
    "PAHOLE": "false",
}

# binutils 2.31 made the pages of a linked file smaller. The boot code of x86 moves the parts of the
# kernel to their places within the unpacked file, and overwrites parts that it has yet to move.
# Linux 4.16 asks for large pages itself (e3d03598e8ae).
_LARGE_PAGES: Mapping[str, str] = {"LD": "ld -z max-page-size=0x200000"}
_ASKS_FOR_LARGE_PAGES = (4, 16)

ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC"}

BTF = "CONFIG_DEBUG_INFO_BTF"
PAHOLE = {"pahole": "dwarves"}  # makes BTF

# Program -> Debian package.
TOOLS = {"make": "make", "gcc": "gcc", "ld": "binutils", "objcopy": "binutils", "flex": "flex",
         "bison": "bison", "bc": "bc", "lz4": "lz4", "perl": "perl"}  # fmt: skip

STEPS = 1800  # lines that make prints for a whole build of 6.12, for the progress bar


@dataclass(frozen=True)
class KernelInputs:
    """Everything that decides a kernel's bytes."""

    source: Source
    series: tuple[Series, ...]
    options: tuple[Option, ...]
    compiler: str

    @property
    def settings(self) -> Mapping[str, str]:
        """Variables for make."""
        own = {"PAHOLE": "pahole"} if _has_btf(self.options) else {}
        if version_numbers(self.source.version) < _ASKS_FOR_LARGE_PAGES:
            own |= _LARGE_PAGES
        return {**SETTINGS, **own}

    @property
    def infos(self) -> tuple[SeriesInfo, ...]:
        """The records of the series: kernels with the same patches may have other names."""
        return tuple(series.info for series in self.series)

    @property
    def config_digest(self) -> str:
        """The digest of tree and configuration without the series: names the build folder."""
        options = [[option.name, option.value] for option in self.options]
        source = self.source.tree_digest
        return digest_of([FORMAT, source, options, self.compiler, dict(self.settings)])

    @property
    def digest(self) -> str:
        """The digest of all inputs: names the cache entry."""
        patches = [[patch.digest for patch in series.patches] for series in self.series]
        # The revisions of a repository share one tree.
        revision = [] if self.source.tree is None else [self.source.digest]
        added = added_options(self.series)
        return digest_of([self.config_digest, patches, *revision, *added])


def read_inputs(spec: KernelSpec) -> KernelInputs:
    """Read and check all inputs of `spec`, without building.

    Raises UserError for a bad fragment or series, HostError for a missing source or compiler.
    """
    series = tuple(find_series(name) for name in spec.series)
    source = find_source(spec.source)
    options = _options(spec, source.version)
    return KernelInputs(source, series, options, _compiler(has_btf=_has_btf(options)))


def inputs_of(spec: KernelSpec, kernel: BuiltKernel) -> KernelInputs:
    """Return the inputs that a kernel was built from.

    Raises UserError if they have changed, and what `read_inputs` raises.
    """
    inputs = read_inputs(spec)
    if inputs.digest != kernel.digest:
        raise UserError(f"what {spec.name} was built from has changed; start the command again")
    return inputs


def _has_btf(options: Sequence[Option]) -> bool:
    return any(option.name == BTF and option.value == "y" for option in options)


def _fragments(spec: KernelSpec) -> tuple[Fragment, ...]:
    return read_fragments(fragment_path(name) for name in spec.fragments)


def _options(spec: KernelSpec, version: str) -> tuple[Option, ...]:
    try:
        return merge(_fragments(spec), version)
    except UserError as error:
        raise UserError(str(error), key=f"kernel {spec.name}") from None


def built_kernel(spec: KernelSpec) -> BuiltKernel | None:
    """Return `spec` from the cache; None when it has not been built from its present inputs."""
    try:
        return cached(_artifact(spec))
    except NotFetched:
        return None


def ensure_kernel(
    spec: KernelSpec, *, on_progress: Progress = no_progress, jobs: int | None = None
) -> BuiltKernel:
    """Build `spec` unless the cache has it; a prebuilt kernel is copied into the cache.

    `jobs` compilers run at once, by default as many as there are CPUs. Raises UserError (series,
    fragment, refused option, file that is no kernel), HostError (missing tool, full disk) and
    BuildError, which ends with the last lines of the log.
    """
    if spec.is_prebuilt:
        fetch_prebuilt(spec, on_progress)
    else:
        fetch_source(spec.source, on_progress)
    return build(_artifact(spec, jobs), on_progress)


def _artifact(spec: KernelSpec, jobs: int | None = None) -> Artifact[BuiltKernel]:
    if spec.is_prebuilt:
        return prebuilt_artifact(spec)
    inputs = read_inputs(spec)
    return Artifact(
        KERNELS,
        spec.name,
        KERNELS.entry(inputs.digest),
        make=partial(_make_kernel, spec, inputs, jobs),
        read=partial(KERNELS.read, spec_name=spec.name, series=inputs.infos),
        lock=inputs.source.folder / "lock",
        tools={**TOOLS, **PAHOLE} if _has_btf(inputs.options) else TOOLS,
    )


def explain_kernel(spec: KernelSpec, on_progress: Progress) -> tuple[Origin, ...]:
    """Return the origin of each line of a kernel's configuration; it need not be built.

    Options that the source's version does not have come last, with no value. Raises UserError for
    a prebuilt kernel, and the errors of `ensure_kernel` except those of compiling.
    """
    if spec.is_prebuilt:
        raise UserError(f"{spec.name} was built elsewhere; --full prints its configuration")
    source = fetch_source(spec.source, on_progress)
    inputs = read_inputs(spec)
    with locked(source.folder / "lock", lambda: on_progress("waiting for another build", None)):
        on_progress(f"unpacking {source.name}", None)
        tree = unpack(source)
        built = cached(_artifact(spec))
        work = Work(spec.name, tree, log_file(KERNELS, spec.name), on_progress)
        config = built.config if built else _configure(inputs, tree, work)
        assert config is not None
        origins = config_origins(tree, config, inputs.options)
    asked = {option.name for option in inputs.options}
    every = (option for fragment in _fragments(spec) for option in fragment.options)
    left_out = {option.name: option for option in every if option.name not in asked}
    return origins + tuple(
        Origin(option.name, "", option.place, option.reason) for option in left_out.values()
    )


def _make_kernel(spec: KernelSpec, inputs: KernelInputs, jobs: int | None, work: Work) -> None:
    _check_path(inputs.source.folder)
    work.tell(f"unpacking {inputs.source.name}", None)
    tree = unpack(inputs.source)
    os.utime(inputs.source.folder)  # the time of last use, for `numalab cache prune`
    switch_tree(tree, inputs.series)
    out = _build_dir(tree, inputs)
    with resumable_folder(out):
        config = _configure(inputs, tree, work)
        _compile(_make(tree, out, inputs.settings), out, jobs or usable_cpus(), work)
        symbols = _symbols(out)
        btf = _btf(out) if _has_btf(inputs.options) else None
    seconds = work.seconds
    first_name, first_seconds = _first_build(out, spec.name, seconds)
    bzimage = out / "arch/x86/boot/bzImage"
    kernel = BuiltKernel(
        spec_name=spec.name,
        bzimage=bzimage,
        release=(out / "include/config/kernel.release").read_text(encoding="utf-8").strip(),
        config=config,
        config_hash=hash_file(config),
        digest=inputs.digest,
        series=inputs.infos,
        source_version=inputs.source.version,
        seconds=seconds,
        compiler=inputs.compiler,
        bzimage_sha256=hash_file(bzimage),
        symbols=symbols,
        btf=btf,
        first_name=first_name,
        first_seconds=first_seconds,
    )
    KERNELS.write(work.entry, kernel)


@dataclass(frozen=True)
class BuildFolder:
    """The folder in which a kernel was compiled, below its source tree."""

    tree: Path
    out: Path
    make: Callable[[Sequence[str]], None]  # builds targets


@contextmanager
def opened_build(spec: KernelSpec, kernel: BuiltKernel, work: Work) -> Iterator[BuildFolder]:
    """Give the build folder of a kernel, its sources patched and configured.

    The caller holds `build_lock(spec)`. Raises what `inputs_of` and `ensure_kernel` raise.
    """
    inputs = inputs_of(spec, kernel)
    tree = unpack(inputs.source)
    switch_tree(tree, inputs.series)
    out = _build_dir(tree, inputs)
    with resumable_folder(out):
        _configure(inputs, tree, work)
        make = _make(tree, out, inputs.settings)
        if not (out / "vmlinux").exists():
            _compile(make, out, usable_cpus(), work)
        make.append(f"-j{usable_cpus()}")
        yield BuildFolder(tree, out, lambda targets: work.step([*make, *targets], env=ENVIRONMENT))


def build_lock(spec: KernelSpec) -> Path:
    """Return the lock of the source tree in which a kernel is built."""
    return read_inputs(spec).source.folder / "lock"


def _configure(inputs: KernelInputs, tree: Path, work: Work) -> Path:
    """Let kbuild make the kernel's `.config` in its build folder, and check it; return it."""
    work.tell("configuring", None)
    out = _build_dir(tree, inputs)
    out.mkdir(exist_ok=True)

    def make(words: list[str]) -> None:
        work.step([*_make(tree, out, inputs.settings), *words], env=ENVIRONMENT)

    added = added_options(inputs.series)
    return request_config(tree, out, inputs.options, inputs.source.version, make, added=added)


def _build_dir(tree: Path, inputs: KernelInputs) -> Path:
    # A folder right below the tree makes kbuild use relative paths, which do not leak.
    return tree / f"build-{inputs.config_digest[:12]}"


def _first_build(out: Path, name: str, seconds: float) -> tuple[str, float]:
    """Return the kernel that was built first in a build folder, and the time that it took."""
    record = out / "numalab.first.json"
    first = read_record(record, tuple[str, float])
    if first is None:
        first = (name, seconds)
        write_json(record, first)
    return first


def _compile(make: Sequence[str], out: Path, jobs: int, work: Work) -> None:
    """Run make; progress is known in a first build only, where each line counts.

    A build that continues has the objects of the interrupted one.
    """
    variant = (out / "vmlinux").exists()
    done = 0 if variant else sum(1 for _ in out.rglob("*.o"))

    def count(line: str) -> None:
        nonlocal done
        if target := re.fullmatch(r"  [A-Z][A-Z0-9]* +(\S+).*", line):
            done += 1
            work.tell(target[1], None if variant else min(done / STEPS, 0.99))

    work.step([*make, f"-j{jobs}", "bzImage"], env=ENVIRONMENT, on_line=count)


def _symbols(out: Path) -> Path:
    """Write the symbols of vmlinux for a debugger: 2 MB of 22. It reads code from the guest."""
    symbols = out / "numalab.symbols"
    # .notes would keep its offset in the file, after 12 MB of zeros; a kernel with BTF has 120 MB
    # of debug information.
    unwanted = ["--remove-section=.notes", "--remove-section=.debug_*"]
    run(["objcopy", "--only-keep-debug", *unwanted, str(out / "vmlinux"), str(symbols)])
    return symbols


def _btf(out: Path) -> Path:
    """Write the types of vmlinux, which a guest has in /sys/kernel/btf/vmlinux."""
    types = out / "numalab.btf"
    run(["objcopy", "--only-section=.BTF", "--strip-all", out / "vmlinux", types])
    return types


def _make(tree: Path, out: Path, settings: Mapping[str, str]) -> list[str]:
    words = [f"{key}={value}" for key, value in settings.items()]
    if shutil.which("ccache"):
        words.append("CC=ccache gcc")
    return ["make", "-C", str(tree), f"O={out}", *words]


def _compiler(*, has_btf: bool) -> str:
    """Name compiler and linker: another version may make other bytes from the same source.

    Few kernels need pahole. Without it they can be looked for all the same, and a build ends with
    the name of its package.
    """
    lines = [version_line(program, TOOLS[program]) for program in ("gcc", "ld")]
    for program, package in PAHOLE.items() if has_btf else ():
        present = shutil.which(program) is not None
        lines.append(version_line(program, package) if present else f"no {program}")
    return "; ".join(lines)


def _check_path(folder: Path) -> None:
    if re.search(r"[\s:]", str(folder)):
        raise HostError(
            f"kernels cannot be built below {folder}: kbuild takes no space or colon in a path",
            hint="set NUMALAB_CACHE to another folder",
        )
