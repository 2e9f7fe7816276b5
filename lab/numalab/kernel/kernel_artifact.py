"""A built kernel, and its kind of cache entry."""

import re
from dataclasses import dataclass
from pathlib import Path

from numalab.artifact.kinds import RecordKind, record_title, register_kind
from numalab.kernel.old_kernels import PAUSE, PAUSES
from numalab.source.series import SeriesInfo

# Since 6.12 a trace instance can lie in reserved memory (kernel/trace/ring_buffer.c, rb_meta_*).
_KEEPS_TRACE = (6, 12)
# erofs is there since 4.19, but its format was not fixed before 5.4 (fs/erofs).
_MOUNTS_EROFS = (5, 4)
# Before 6.5 an x86 machine brings up CPUs one by one, and the waiting CPU never executes `pause`.
# In QEMU 7.2's icount mode the other CPUs then get no time, unless this series is applied.
_RUNS_IN_ICOUNT = (6, 5)


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel in the cache, and everything that went into it."""

    spec_name: str
    bzimage: Path
    release: str  # of `uname -r`
    config: Path | None  # None for a prebuilt kernel without one
    config_hash: str  # SHA-256 of the resulting .config, "" for none
    digest: str  # of all inputs; names the cache entry
    series: tuple[SeriesInfo, ...]
    source_version: str
    seconds: float  # of the build
    compiler: str
    bzimage_sha256: str
    initrd: Path | None = None  # loads the drivers of a prebuilt kernel
    symbols: Path | None = None  # of vmlinux, for a debugger
    btf: Path | None = None  # the types of vmlinux, for schedulers; None where it has none
    first_name: str = ""  # the kernel that was built first in the same build folder
    first_seconds: float = 0.0

    @property
    def keeps_trace(self) -> bool:
        """Tell whether a trace can lie in reserved memory, where it outlives the guest's kernel."""
        return self._is_since(_KEEPS_TRACE)

    @property
    def mounts_erofs(self) -> bool:
        """Tell whether the kernel mounts images as they are; older ones need them as ext4."""
        return self._is_since(_MOUNTS_EROFS)

    @property
    def runs_in_icount(self) -> bool:
        """Tell whether the kernel brings up its CPUs in icount mode."""
        return self.pauses or self._is_since(_RUNS_IN_ICOUNT)

    @property
    def pauses(self) -> bool:
        """Tell whether it has the series `PAUSES`, or its patch in one of another name."""
        return any(series.name == PAUSES or PAUSE in series.patches for series in self.series)

    def lacks(self, *options: str) -> tuple[str, ...]:
        """Return the options, such as `SMP`, that are not built in; none if that is not known."""
        if self.config is None:
            return ()
        lines = set(self.config.read_text(encoding="utf-8").splitlines())
        return tuple(name for name in options if f"CONFIG_{name}=y" not in lines)

    def _is_since(self, version: tuple[int, int]) -> bool:
        numbers = re.match(r"(\d+)\.(\d+)", self.release)
        return numbers is None or (int(numbers[1]), int(numbers[2])) >= version


KERNELS = register_kind(
    RecordKind(
        name="kernel",
        folder="kernels",
        title=record_title("kernel.json", "spec_name"),
        record="kernel.json",
        model=BuiltKernel,
        paths={
            "bzimage": "bzImage",
            "config": "config",
            "initrd": "initrd",
            "symbols": "vmlinux",
            "btf": "vmlinux.btf",
        },
        hash_fields=("bzimage", "bzimage_sha256"),
    )
)
