"""What schedulers are built with: tools/sched_ext of a kernel, its bpftool, libbpf and types.

It belongs to one kernel, whose types the BPF programs read. libbpf relocates them when they are
loaded (CO-RE), so that a scheduler may run on another kernel than that of its toolkit.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from numalab.artifact.builder import Artifact, Work, build
from numalab.artifact.digest import digest_of
from numalab.artifact.kinds import Kind, register_kind
from numalab.errors import UserError
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.kernel.kernel_build import ENVIRONMENT, build_lock, inputs_of
from numalab.kernel.kernel_specs import KernelSpec
from numalab.limits.cgroup import usable_cpus
from numalab.process import version_line
from numalab.progress import Progress, no_progress
from numalab.scheduler.clang import PACKAGE, PROGRAMS, find_clang
from numalab.source.kernel_source import unpack
from numalab.source.source_tree import switch_tree

FORMAT = 1  # raise it when the content of an entry changes
NEEDED = ("SCHED_CLASS_EXT", "DEBUG_INFO_BTF")
FRAGMENT = "sched-ext"
_SOURCES = "tools/sched_ext"
_UAPI = "tools/include/uapi"
_LAST = "schedulers"  # written last


@dataclass(frozen=True)
class Toolkit:
    """A toolkit in the cache."""

    path: Path

    @property
    def bpftool(self) -> Path:
        """bpftool of the kernel's tree."""
        return self.path / "bpftool"

    @property
    def libbpf(self) -> Path:
        """The static libbpf of the kernel's tree."""
        return self.path / "libbpf.a"

    @property
    def include(self) -> tuple[Path, ...]:
        """Folders of headers: scx/common.h, bpf/bpf.h and vmlinux.h, linux/bpf.h, libbpf's own."""
        return tuple(self.path / name for name in ("scx", "include", _UAPI))

    @property
    def schedulers(self) -> tuple[str, ...]:
        """The names of the kernel's own schedulers."""
        return tuple((self.path / _LAST).read_text(encoding="utf-8").split())

    def sources(self, name: str) -> Iterator[Path]:
        """Yield the sources of one of the kernel's own schedulers."""
        yield from sorted((self.path / "src").glob(f"{name}.*"))


def _read(entry: Path) -> Toolkit | None:
    return Toolkit(entry) if (entry / _LAST).is_file() else None


TOOLKITS = register_kind(Kind(name="scheduler-toolkit", folder="scheduler-toolkits"))


def check_kernel(kernel: BuiltKernel) -> None:
    """Raise UserError for a kernel that no scheduler can be loaded into."""
    if lacking := kernel.lacks(*NEEDED):
        reason = f"kernel {kernel.spec_name} lacks {', '.join(lacking)}, as the fragment"
        raise UserError(
            f"{reason} {FRAGMENT} has", key="scheduler", choices=("debian-6.12-sched-ext",)
        )


def ensure_toolkit(
    spec: KernelSpec, kernel: BuiltKernel, on_progress: Progress = no_progress
) -> Toolkit:
    """Return the toolkit of a kernel, built unless the cache has it.

    Raises UserError for a kernel without BTF, HostError (a missing tool) and BuildError.
    """
    check_kernel(kernel)
    if spec.is_prebuilt or kernel.btf is None:
        reason = f"kernel {spec.name} has no source: name a scheduler that is built already"
        raise UserError(reason, key="scheduler")
    clang = find_clang()
    digest = digest_of([FORMAT, kernel.digest, version_line(str(clang), PACKAGE)])
    return build(
        Artifact(
            TOOLKITS,
            f"tools/sched_ext of {spec.name}",
            TOOLKITS.entry(digest),
            partial(_make, spec, kernel, kernel.btf, clang),
            _read,
            lock=build_lock(spec),
            tools=PROGRAMS,
        ),
        on_progress,
    )


def _make(spec: KernelSpec, kernel: BuiltKernel, btf: Path, clang: Path, work: Work) -> None:
    inputs = inputs_of(spec, kernel)
    tree = unpack(inputs.source)
    switch_tree(tree, inputs.series)
    sources, made = tree / _SOURCES, work.entry.parent / "made"
    made.mkdir()
    if not (sources / "Makefile").is_file():
        raise UserError(f"the source of {spec.name} has no {_SOURCES}", key="scheduler")
    names = sorted(path.name.removesuffix(".bpf.c") for path in sources.glob("scx_*.bpf.c"))
    settings = [
        f"O={made}",
        f"VMLINUX_BTF={btf}",
        f"CLANG={clang}",
        "BUILD_BPF_SKELS=0",  # bpftool's own programs, which need llvm-strip
        "ARCH=x86",
    ]
    bpf = made / "build"
    targets = [bpf / "include/vmlinux.h", bpf / "obj/libbpf/libbpf.a", bpf / "sbin/bpftool"]
    work.tell("bpftool and libbpf", None)
    work.step(["make", "-C", sources, f"-j{usable_cpus()}", *settings, *targets], env=ENVIRONMENT)
    entry = work.entry
    entry.mkdir(mode=0o755)
    shutil.copytree(sources / "include", entry / "scx")
    shutil.copytree(bpf / "include", entry / "include")
    for name in (_UAPI, "tools/arch/x86/include/uapi"):  # the first includes the second
        shutil.copytree(tree / name, entry / name)
    shutil.copy(bpf / "obj/libbpf/libbpf.a", entry / "libbpf.a")
    shutil.copy(bpf / "sbin/bpftool", entry / "bpftool")
    (entry / "src").mkdir()
    for path in (path for name in names for path in sources.glob(f"{name}.*")):
        shutil.copy(path, entry / "src")
    (entry / _LAST).write_text("\n".join([*names, ""]), encoding="utf-8")
