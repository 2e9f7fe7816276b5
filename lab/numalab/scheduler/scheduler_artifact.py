"""Builds a scheduler: from sources with a kernel's toolkit, or from crates.io with cargo."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build, existing_file
from numalab.artifact.digest import digest_of, hash_file
from numalab.artifact.kinds import Kind, register_kind
from numalab.errors import UserError
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_build import ENVIRONMENT
from numalab.kernel.kernel_specs import KernelSpec
from numalab.process import run, version_line
from numalab.progress import Progress, no_progress
from numalab.scheduler.clang import HEADERS, PACKAGE, find_cargo, find_clang
from numalab.scheduler.scheduler_spec import SOURCE_ENDING, SchedulerOrigin, SchedulerSpec
from numalab.scheduler.toolkit_artifact import Toolkit, check_kernel, ensure_toolkit

FORMAT = 1  # raise it when the build changes
# Of the sources in a user's folder.
_MOST_BYTES, _MOST_HEADERS, _DEEPEST = 32 << 20, 1000, 3
_SKELETON = re.compile(r'^#include "([A-Za-z_]\w{0,63})\.bpf\.skel\.h"', re.MULTILINE)
_INCLUDES = re.compile(r"search starts here:\n(.*)End of search list", re.DOTALL)


def _title(entry: Path) -> str:
    return entry.name.rpartition("-")[0]


SCHEDULERS = register_kind(Kind(name="scheduler", folder="schedulers", title=_title))


def _program(name: str, entry: Path) -> Path | None:
    """Read an entry: a folder with the program, whose name its tasks have."""
    return existing_file(entry / name)


@dataclass(frozen=True)
class BuiltScheduler:
    """The program of a scheduler on this host, and the SHA-256 of its bytes."""

    spec: SchedulerSpec
    program: Path
    sha256: str


def ensure_scheduler(
    spec: SchedulerSpec,
    kernel: KernelSpec,
    built: BuiltKernel,
    on_progress: Progress = no_progress,
) -> BuiltScheduler:
    """Return a scheduler for a kernel, built unless the cache has it.

    Raises UserError for a kernel without sched_ext, or whose sources lack the scheduler; HostError
    for a missing tool, BuildError with the compiler's output.
    """
    check_kernel(built)
    match spec.origin:
        case SchedulerOrigin.PROGRAM:
            assert spec.path is not None
            program = spec.path
        case SchedulerOrigin.CRATE:
            program = _crate(spec, on_progress)
        case SchedulerOrigin.KERNEL:
            toolkit = ensure_toolkit(kernel, built, on_progress)
            program = _kernel_tool(spec, kernel, toolkit, on_progress)
        case SchedulerOrigin.SOURCE:
            assert spec.path is not None
            toolkit = ensure_toolkit(kernel, built, on_progress)
            program = _from_sources(spec.name, _user_sources(spec.path), toolkit, on_progress)
    return BuiltScheduler(spec, program, hash_file(program))


def _kernel_tool(
    spec: SchedulerSpec, kernel: KernelSpec, toolkit: Toolkit, on_progress: Progress
) -> Path:
    if spec.name not in toolkit.schedulers:
        reason = f"tools/sched_ext of {kernel.name} has no {spec.name}"
        raise UserError(reason, key="scheduler", choices=toolkit.schedulers)
    sources = {path.name: path for path in toolkit.sources(spec.name)}
    return _from_sources(spec.name, sources, toolkit, on_progress)


def _user_sources(path: Path) -> dict[str, Path]:
    """Return the sources of a scheduler of the user by their names below its folder.

    Headers may lie in folders below, such as the `scx` folder of another version. Raises UserError
    for too many.
    """
    folder = path.parent
    sources = {path.name: path}
    loader = path.with_name(f"{path.name.removesuffix(SOURCE_ENDING)}.c")
    sources[loader.name] = loader
    for where, folders, names in os.walk(folder):
        below = Path(where).relative_to(folder)
        deep = len(below.parts) >= _DEEPEST
        folders[:] = [] if deep else sorted(name for name in folders if not name.startswith("."))
        headers = sorted(name for name in names if name.endswith(".h"))
        sources |= {str(below / name): Path(where) / name for name in headers}
        if len(sources) > _MOST_HEADERS:
            reason = f"more than {_MOST_HEADERS} headers lie beside it; give it a folder of its own"
            raise UserError(reason, file=path)
    if sum(source.stat().st_size for source in sources.values()) > _MOST_BYTES:
        reason = f"and the headers beside it have more than {_MOST_BYTES >> 20} MiB"
        raise UserError(reason, file=path)
    return sources


def _from_sources(
    name: str, sources: Mapping[str, Path], toolkit: Toolkit, on_progress: Progress
) -> Path:
    for header in HEADERS:
        if not header.is_file():
            raise UserError(f"no such file: {header}; apt-get install {HEADERS[header]}")
    clang = find_clang()
    compilers = [version_line("gcc", "gcc"), version_line(str(clang), PACKAGE)]
    files = [[place, hash_file(path)] for place, path in sources.items()]
    digest = digest_of([FORMAT, toolkit.path.name, compilers, files])
    return build(
        Artifact(
            SCHEDULERS,
            name,
            SCHEDULERS.entry(f"{name}-{digest}"),
            partial(_compile, name, sources, toolkit, clang),
            partial(_program, name),
            tools={"gcc": "gcc"},
        ),
        on_progress,
    )


def _compile(
    name: str, sources: Mapping[str, Path], toolkit: Toolkit, clang: Path, work: Work
) -> None:
    """Compile the BPF program and the program that loads it: tools/sched_ext/Makefile, 6.12."""
    work.tell(f"{name}{SOURCE_ENDING}", None)
    folder = work.entry.parent / "made"
    folder.mkdir()
    for place, path in sources.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / place)
    headers = [word for path in toolkit.include for word in ("-I", str(path))]

    def step(*words: str | Path) -> None:
        work.step(list(words), env=ENVIRONMENT, cwd=folder)

    compat = ["-I", str(toolkit.include[0] / "bpf-compat")]
    target = ["-g", "-O2", "-mcpu=v3", "-mlittle-endian", "-D__TARGET_ARCH_x86", "-target", "bpf"]
    quiet = ["-Wall", "-Wno-compare-distinct-pointer-types", "-fno-color-diagnostics"]
    program = [*target, *quiet, "-I", ".", *headers, *compat, *_system_headers(clang)]
    step(clang, *program, "-c", f"{name}{SOURCE_ENDING}", "-o", f"{name}.1.o")
    step(toolkit.bpftool, "gen", "object", f"{name}.2.o", f"{name}.1.o")
    skeleton = _skeleton(folder / f"{name}.c", name)
    words = ("gen", "skeleton", f"{name}.2.o", "name", skeleton)
    text = run([toolkit.bpftool, *words], cwd=folder).stdout
    (folder / f"{skeleton}.bpf.skel.h").write_text(text, encoding="utf-8")
    work.entry.mkdir(mode=0o755)
    step(
        *("gcc", "-g", "-O2", "-rdynamic", "-pthread", "-Wall", "-I", ".", *headers),
        *(f"{name}.c", "-o", work.entry / name, toolkit.libbpf, "-lelf", "-lz", "-lpthread"),
    )


def _skeleton(program: Path, name: str) -> str:
    """Return the name of the skeleton that a program includes: a copy may keep the original's."""
    match = _SKELETON.search(program.read_text(encoding="utf-8", errors="replace"))
    return match[1] if match else name


def _system_headers(clang: Path) -> list[str]:
    """Return the host's folders of headers, which `-target bpf` leaves out."""
    text = run([clang, "-v", "-E", "-", "-o", "/dev/null"], stdin="", env={"LC_ALL": "C"}).stderr
    match = _INCLUDES.search(text)
    lines = match[1].splitlines() if match else []
    return [word for line in lines if line.startswith(" /") for word in ("-idirafter", line[1:])]


def _crate(spec: SchedulerSpec, on_progress: Progress) -> Path:
    cargo, rustc = find_cargo()
    clang = find_clang()
    digest = digest_of([FORMAT, spec.name, spec.version, rustc, version_line(str(clang), PACKAGE)])
    return build(
        Artifact(
            SCHEDULERS,
            f"{spec.name} {spec.version}",
            SCHEDULERS.entry(f"{spec.name}-{spec.version}-{digest}"),
            partial(_install_crate, spec, cargo, clang),
            partial(_program, spec.name),
            tools={"gcc": "gcc", "pkg-config": "pkg-config", "make": "make"},
        ),
        on_progress,
    )


def _install_crate(spec: SchedulerSpec, cargo: Path, clang: Path, work: Work) -> None:
    """Let cargo build a crate from crates.io, by its own lock file."""
    root = work.entry.parent / "root"
    env = {
        "LC_ALL": "C",
        "CARGO_TARGET_DIR": str(work.entry.parent / "target"),
        "BPF_CLANG": str(clang),
        # bindgen loads libclang.
        "LIBCLANG_PATH": str(clang.resolve().parents[1] / "lib"),
    }

    def tell(line: str) -> None:
        work.tell(line.strip()[:60], None)

    words: list[str | Path] = [
        "install",
        "--locked",
        "--root",
        root,
        "--version",
        spec.version,
        spec.name,
    ]
    work.step([cargo, *words], env=env, on_line=tell)
    program = root / "bin" / spec.name
    if not program.is_file():
        raise UserError(f"the crate {spec.name} has no program of its name", key="scheduler")
    work.entry.mkdir(mode=0o755)
    shutil.copy(program, work.entry)
