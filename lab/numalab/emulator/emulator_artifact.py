"""Builds an emulator: unpack, apply, configure, compile. The builder keeps it by its digest."""

import os
import re
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, cached, resumable_folder
from numalab.artifact.digest import digest_of, hash_file
from numalab.artifact.kinds import RecordKind, record_title, register_kind
from numalab.emulator.emulator_specs import EmulatorSpec
from numalab.errors import HostError
from numalab.limits.cgroup import usable_cpus
from numalab.places import cache_dir
from numalab.process import find_program, packages_of_missing, run, version_line
from numalab.progress import Progress, no_progress
from numalab.source.debian_packages import Fetched, NotFetched
from numalab.source.series import Series, SeriesInfo, load_series
from numalab.source.source_package import fetch_source_package, fetched_source, unpack_source
from numalab.source.source_tree import switch_tree

FORMAT = 2  # raise it when the build itself changes, so that old entries are not used

BINARY = "qemu-system-x86_64"
HEADER = "qemu-plugin.h"

# Only features that a guest of this lab needs, so that a build is short. Mode timed does not use
# KVM, but where /dev/kvm opens, libvirt probes a QEMU without KVM again at every start
# (virQEMUCapsIsValid() in libvirt 9.0).
CONFIGURE = (
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--without-default-devices",
    "--with-devices-x86_64=numalab",
    "--enable-system",
    "--enable-tcg",
    "--enable-kvm",
    "--enable-plugins",
    "--enable-seccomp",
    "--enable-fdt=system",
    "--disable-tools",
    "--disable-docs",
    "--disable-debug-info",
    # Firmware comes from the distribution's packages. A prefix of its own, or QEMU would look for
    # these folders beside its program (get_relocated_path() in util/cutils.c).
    "--prefix=/numalab",
    "--firmwarepath=/usr/share/qemu:/usr/share/seabios",
    "--with-pkgversion=numalab",
)
ENVIRONMENT = {"LC_ALL": "C", "TZ": "UTC", "MAKEFLAGS": "", "CFLAGS": "", "LDFLAGS": "",
               "SOURCE_DATE_EPOCH": "1731881708"}  # fmt: skip

# Program -> Debian package; libraries are looked for by pkg-config's names, or by a header.
TOOLS = {"gcc": "gcc", "ninja": "ninja-build", "pkg-config": "pkg-config",
         "python3": "python3", "dpkg-source": "dpkg-dev", "bzip2": "bzip2"}  # fmt: skip
LIBRARIES = {"glib-2.0": "libglib2.0-dev", "pixman-1": "libpixman-1-dev",
             "libseccomp": "libseccomp-dev"}  # fmt: skip
HEADERS = {Path("/usr/include/libfdt.h"): "libfdt-dev"}


@dataclass(frozen=True)
class BuiltEmulator:
    """An emulator in the cache, and everything that went into it.

    `digest` is that of all inputs and names the cache entry; `sha256` that of the program.
    """

    name: str
    program: Path
    header: Path  # for plug-ins
    version: str
    source: str  # package=version
    series: SeriesInfo
    compiler: str
    digest: str
    sha256: str
    seconds: float


EMULATORS = register_kind(
    RecordKind(
        name="emulator",
        folder="emulators",
        title=record_title("emulator.json", "name"),
        record="emulator.json",
        model=BuiltEmulator,
        paths={"program": BINARY, "header": HEADER},
        hash_fields=("program", "sha256"),
    )
)


@dataclass(frozen=True)
class EmulatorInputs:
    """Everything that decides an emulator's bytes."""

    source: Fetched
    series: Series
    configure: tuple[str, ...]
    compiler: str

    @property
    def folder(self) -> Path:
        """The cache folder of the source: its tree, the originals of changed files, builds."""
        return cache_dir("emulator-trees", self.source.digest[:16])

    @property
    def build_digest(self) -> str:
        """The digest of all inputs except the series: names the build folder."""
        return digest_of([FORMAT, self.source.digest, self.configure, ENVIRONMENT, self.compiler])

    @property
    def digest(self) -> str:
        """The digest of all inputs: names the cache entry."""
        return digest_of([self.build_digest, [patch.digest for patch in self.series.patches]])


def built_emulator(spec: EmulatorSpec) -> BuiltEmulator | None:
    """Return `spec` from the cache; None when it has not been built from its present inputs."""
    try:
        return cached(_artifact(spec))
    except NotFetched:
        return None


def ensure_emulator(
    spec: EmulatorSpec, *, on_progress: Progress = no_progress, jobs: int | None = None
) -> BuiltEmulator:
    """Build `spec` unless the cache has it.

    `jobs` compilers run at once, by default as many as there are CPUs. Raises UserError (series),
    HostError (missing tool or library, full disk) and BuildError, which ends with the last lines
    of the log.
    """
    fetch_source_package(spec.source, on_progress)
    return build(_artifact(spec, jobs), on_progress)


def _artifact(spec: EmulatorSpec, jobs: int | None = None) -> Artifact[BuiltEmulator]:
    series, compiler = load_series(spec.series), version_line("gcc", "gcc")
    source = fetched_source(spec.source)
    inputs = EmulatorInputs(source, series, configure_options(spec), compiler)
    return Artifact(
        EMULATORS,
        spec.name,
        EMULATORS.entry(inputs.digest),
        make=partial(_make_emulator, spec, inputs, jobs),
        read=partial(EMULATORS.read, name=spec.name, series=series.info),
        lock=inputs.folder / "lock",
    )


def configure_options(spec: EmulatorSpec) -> tuple[str, ...]:
    """Return the options of QEMU's configure."""
    return (*CONFIGURE, *spec.configure)


def check_tools() -> None:
    """Raise HostError that names all packages that a build needs and this host lacks."""
    lacking = list(lacking_packages())
    if lacking:
        raise HostError(
            f"packages to build QEMU are missing: {', '.join(lacking)}",
            hint=f"apt-get install {' '.join(lacking)}",
        )


def lacking_packages() -> tuple[str, ...]:
    """Return the Debian packages that a build needs and this host lacks."""
    lacking = packages_of_missing(TOOLS)
    lacking += [package for header, package in HEADERS.items() if not header.is_file()]
    if "pkg-config" in lacking:
        return (*lacking, *LIBRARIES.values())
    for library, package in LIBRARIES.items():
        argv: list[str | Path] = [find_program("pkg-config", "pkg-config"), "--exists", library]
        if run(argv, check=False).returncode != 0:
            lacking.append(package)
    return tuple(lacking)


def _make_emulator(
    spec: EmulatorSpec, inputs: EmulatorInputs, jobs: int | None, work: Work
) -> None:
    check_tools()
    work.tell(f"unpacking {spec.source}", None)
    tree = unpack_source(inputs.source, inputs.folder / "source")
    switch_tree(tree, (inputs.series,))
    out = tree / f"build-{inputs.build_digest[:12]}"
    # The meson that was installed with numalab comes first: Debian 12's is too old for QEMU 10.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    step = partial(work.step, cwd=out, env={**ENVIRONMENT, "PATH": path})
    with resumable_folder(out):
        if not (out / "build.ninja").is_file():
            work.tell("configuring", None)
            # __FILE__ in a header would be a path of this cache, and another cache another program.
            same = f"--extra-cflags=-ffile-prefix-map={tree}=."
            step([tree / "configure", *inputs.configure, same])
        ninja = find_program("ninja", "ninja-build")
        processes = jobs or usable_cpus()
        step([ninja, f"-j{processes}", BINARY], on_line=_counted(work.tell))
        version = re.search(r"version (\S+)", run([out / BINARY, "--version"]).stdout)
    emulator = BuiltEmulator(
        name=spec.name,
        program=out / BINARY,
        header=tree / "include/qemu" / HEADER,
        version=version[1] if version else "",
        source=", ".join(inputs.source.versions),
        series=inputs.series.info,
        compiler=inputs.compiler,
        digest=inputs.digest,
        sha256=hash_file(out / BINARY),
        seconds=work.seconds,
    )
    EMULATORS.write(work.entry, emulator)


def _counted(tell: Progress) -> Callable[[str], None]:
    """Return a function that reports ninja's lines: `[17/1234] Compiling C object ...`."""

    def count(line: str) -> None:
        if match := re.match(r"\[(\d+)/(\d+)\] .*?([^ /]+)$", line):
            tell(match[3], int(match[1]) / int(match[2]))

    return count
