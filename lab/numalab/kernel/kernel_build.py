"""Builds a kernel once: unpack, apply, configure, compile, keep by a digest of all inputs."""

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from numalab.artifact.build_step import build_step, under_way
from numalab.artifact.digest import digest_of, hash_file
from numalab.document import read_record
from numalab.errors import HostError, UserError
from numalab.files import write_json
from numalab.kernel.config.configure import config_origins, read_fragments, request_config
from numalab.kernel.config.kconfig import Option, merge
from numalab.kernel.config.option_origin import Origin
from numalab.kernel.kernel_artifact import BuiltKernel, load_built, store_built
from numalab.kernel.kernel_specs import KernelSpec, fragment_path
from numalab.kernel.patch_series import find_series
from numalab.kernel.prebuilt.prebuilt_kernel import find_prebuilt, take_prebuilt
from numalab.locks import locked
from numalab.places import cache_dir
from numalab.process import find_program, run
from numalab.progress import Progress
from numalab.source.debian_packages import NotFetched
from numalab.source.kernel_source import Source, fetch_source, find_source, unpack
from numalab.source.series import Series
from numalab.source.source_tree import switch_tree

__all__ = ["BuiltKernel", "built_kernel", "ensure_kernel"]

FORMAT = 1  # raise it when the build itself changes, so that old entries are not used

# What would otherwise differ from build to build and host to host. rustc and pahole are not used,
# but the configuration records their versions.
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

# A `make` above this process must not hand its own flags down.
ENVIRONMENT = {"MAKEFLAGS": "", "MFLAGS": "", "MAKELEVEL": "", "LC_ALL": "C", "TZ": "UTC"}

# Program -> Debian package.
TOOLS = {"make": "make", "gcc": "gcc", "ld": "binutils", "objcopy": "binutils", "flex": "flex",
         "bison": "bison", "bc": "bc", "lz4": "lz4", "perl": "perl"}  # fmt: skip

STEPS = 1800  # lines that make prints for a whole build of 6.12, for the progress bar


@dataclass(frozen=True)
class KernelInputs:
    """Everything that decides what a kernel's bytes are."""

    source: Source
    series: tuple[Series, ...]
    options: tuple[Option, ...]
    compiler: str

    @property
    def config_digest(self) -> str:
        """Names the build folder: tree and configuration, but not the series."""
        source = self.source.tree_digest
        return digest_of([FORMAT, source, self._options, self.compiler, dict(SETTINGS)])

    @property
    def digest(self) -> str:
        """Names the cache entry."""
        patches = [[patch.digest for patch in series.patches] for series in self.series]
        # The revisions of a repository share a tree, whose name then does not say enough.
        revision = [] if self.source.tree is None else [self.source.digest]
        return digest_of([self.config_digest, patches, *revision])

    @property
    def _options(self) -> list[list[str]]:
        return [[option.name, option.value] for option in self.options]


def read_inputs(spec: KernelSpec) -> KernelInputs:
    """Read and check everything that goes into `spec`, without building.

    Raises UserError for a bad fragment or series, HostError for a missing source or compiler.
    """
    series = tuple(find_series(name) for name in spec.series)
    source = find_source(spec.source)
    options = tuple(one for one in _asked(spec) if one.is_for(source.version))
    return KernelInputs(source, series, options, _compiler())


def _asked(spec: KernelSpec) -> tuple[Option, ...]:
    """Return what the fragments ask for, of whichever version."""
    return merge(read_fragments(fragment_path(name) for name in spec.fragments))


def built_kernel(spec: KernelSpec) -> BuiltKernel | None:
    """Return `spec` from the cache; None when it has not been built from its present inputs."""
    if spec.is_prebuilt:
        return find_prebuilt(spec)
    try:
        return load_built(spec.name, read_inputs(spec).digest)
    except NotFetched:
        return None


def ensure_kernel(
    spec: KernelSpec, *, on_progress: Progress | None = None, jobs: int | None = None
) -> BuiltKernel:
    """Build `spec` unless the cache has it.

    `on_progress` gets a message and the fraction done, None where it is unknown. `jobs` compilers
    run at once, as many as there are CPUs where it is not said. Raises UserError
    (series, fragment, refused option), HostError (missing tool, full disk) and BuildError, which
    ends with the last lines of the log.
    """
    tell = on_progress or (lambda _message, _fraction: None)
    if spec.is_prebuilt:
        return take_prebuilt(spec, tell)
    fetch_source(spec.source, tell)
    inputs = read_inputs(spec)
    if (built := load_built(spec.name, inputs.digest)) is not None:
        return built
    for program, package in TOOLS.items():
        find_program(program, package)
    folder = inputs.source.folder
    _check_path(folder)
    with locked(folder / "lock", lambda: tell("waiting for another build of this source", None)):
        # Another process may have built it while this one waited.
        return load_built(spec.name, inputs.digest) or _build(spec, inputs, jobs, tell)


def explain_kernel(spec: KernelSpec, on_progress: Progress) -> tuple[Origin, ...]:
    """Say where each line of a kernel's configuration comes from; it need not be built.

    Options that the source's version is not asked for come last, with no value. Raises UserError
    for a kernel that was built elsewhere, and what `ensure_kernel` raises but for compiling.
    """
    if spec.is_prebuilt:
        raise UserError(f"{spec.name} was built elsewhere; --full prints what is known")
    source = fetch_source(spec.source, on_progress)
    inputs = read_inputs(spec)
    with locked(source.folder / "lock", lambda: on_progress("waiting for another build", None)):
        on_progress(f"unpacking {source.name}", None)
        tree = unpack(source)
        built = load_built(spec.name, inputs.digest)
        config = built.config if built else _configure(spec, inputs, tree, on_progress)
        assert config is not None
        origins = config_origins(tree, config, inputs.options)
    left_out = [one for one in _asked(spec) if not one.is_for(source.version)]
    return origins + tuple(
        Origin(one.name, "", f"{one.fragment}.config:{one.line}", one.reason) for one in left_out
    )


def _build(spec: KernelSpec, inputs: KernelInputs, jobs: int | None, tell: Progress) -> BuiltKernel:
    began = time.monotonic()
    log = _log(spec)
    log.write_bytes(b"")
    tell(f"unpacking {inputs.source.name}", None)
    tree = unpack(inputs.source)
    os.utime(inputs.source.folder)  # when it was last used, for `numalab cache prune`
    switch_tree(tree, inputs.series)
    out = _build_dir(tree, inputs)
    with under_way(out):
        config = _configure(spec, inputs, tree, tell)
        make = [*_make(tree, out), f"-j{jobs or len(os.sched_getaffinity(0))}"]
        _compile(spec, make, out, log, tell)
        symbols = _symbols(out)
    seconds = round(time.monotonic() - began, 1)
    bzimage = out / "arch/x86/boot/bzImage"
    first_name, first_seconds = _first_in(out, spec.name, seconds)
    return store_built(
        BuiltKernel(
            spec_name=spec.name,
            bzimage=bzimage,
            release=(out / "include/config/kernel.release").read_text(encoding="utf-8").strip(),
            config=config,
            config_hash=hash_file(config),
            digest=inputs.digest,
            series=tuple(series.info for series in inputs.series),
            source_version=inputs.source.version,
            seconds=seconds,
            compiler=inputs.compiler,
            bzimage_sha256=hash_file(bzimage),
            symbols=symbols,
            first_name=first_name,
            first_seconds=first_seconds,
        )
    )


def _configure(spec: KernelSpec, inputs: KernelInputs, tree: Path, tell: Progress) -> Path:
    """Let kbuild make the kernel's `.config` in its build folder, and check it; return it."""
    tell("configuring", None)
    out = _build_dir(tree, inputs)
    out.mkdir(exist_ok=True)

    def make(words: list[str]) -> None:
        build_step(spec.name, [*_make(tree, out), *words], _log(spec), env=ENVIRONMENT)

    return request_config(tree, out, inputs.options, inputs.source.version, make)


def _build_dir(tree: Path, inputs: KernelInputs) -> Path:
    # A folder right below the tree makes kbuild use relative paths, which do not leak.
    return tree / f"build-{inputs.config_digest[:12]}"


def _log(spec: KernelSpec) -> Path:
    name = re.sub(r"[^A-Za-z0-9.+_-]+", "_", spec.name)
    return cache_dir("logs") / f"kernel-{name[-100:]}.log"


def _first_in(out: Path, name: str, seconds: float) -> tuple[str, float]:
    """Return which kernel was built first in a build folder, and how long that took."""
    memory = out / "numalab.first.json"
    first = read_record(memory, tuple[str, float])
    if first is None:
        first = (name, seconds)
        write_json(memory, first)
    return first


def _compile(spec: KernelSpec, make: list[str], out: Path, log: Path, tell: Progress) -> None:
    """Run make, and tell how far it is: by its lines in a new build, unknown in a variant."""
    variant = (out / "vmlinux").exists()
    done = 0

    def count(line: str) -> None:
        nonlocal done
        if found := re.fullmatch(r"  [A-Z][A-Z0-9]* +(\S+).*", line):
            done += 1
            tell(found[1], None if variant else min(done / STEPS, 0.99))

    build_step(spec.name, [*make, "bzImage"], log, env=ENVIRONMENT, on_line=count)


def _symbols(out: Path) -> Path:
    """Write what a debugger needs of vmlinux: 2 MB of 22. The code it reads from the guest."""
    symbols = out / "numalab.symbols"
    # .notes would keep its place in the file, behind 12 MB of nothing.
    words = ["--only-keep-debug", "--remove-section=.notes", str(out / "vmlinux"), str(symbols)]
    run(["objcopy", *words])
    return symbols


def _make(tree: Path, out: Path) -> list[str]:
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    if shutil.which("ccache"):  # the same compiler, asked less often
        settings.append("CC=ccache gcc")
    return ["make", "-C", str(tree), f"O={out}", *settings]


def _compiler() -> str:
    """Name compiler and linker: another version may make other bytes from the same source."""
    names = []
    for program in ("gcc", "ld"):
        found = find_program(program, TOOLS[program])
        names.append(run([found, "--version"], env=ENVIRONMENT).stdout.partition("\n")[0])
    return "; ".join(names)


def _check_path(folder: Path) -> None:
    if re.search(r"[\s:]", str(folder)):
        raise HostError(
            f"kernels cannot be built below {folder}: kbuild takes no space or colon in a path",
            hint="set NUMALAB_CACHE to another folder",
        )
