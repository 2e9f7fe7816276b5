"""What is booted and what it is to do: plain values, checked when they are made."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from lab.errors import UserError
from lab.machine.memory import backed_mib
from lab.topology.model import Topology

Mode = Literal["kvm", "tcg", "icount"]
MODES: tuple[Mode, ...] = ("kvm", "tcg", "icount")

CpuModel = Literal["host", "host-no-arch-capabilities", "qemu64"]
# In the order in which they are tried. Nested KVM on some hosts aborts QEMU when it reads
# MSR_IA32_ARCH_CAPABILITIES, so the second one leaves that feature out.
CPU_MODELS: tuple[CpuModel, ...] = ("host", "host-no-arch-capabilities", "qemu64")

# What the guest's memory is made of, and the size of such a page in KiB.
PageSize = Literal["anonymous", "2MiB", "1GiB"]
PAGE_KIB: Mapping[PageSize, int] = {"anonymous": 4, "2MiB": 2048, "1GiB": 1 << 20}

JobMode = Literal["run", "rescue", "shell"]

# The job disk and the root are NVDIMMs; Linux maps them in steps of this size (a memory
# subsection, include/linux/mmzone.h: SUBSECTION_SHIFT 21).
NVDIMM_ALIGNMENT = 2 << 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EVENT = re.compile(r"[A-Za-z0-9_-]+:[A-Za-z0-9_-]+(\t[^\n]*)?")
_CLOCK = re.compile(r"[a-z0-9_-]+")


@dataclass(frozen=True)
class Machine:
    """A guest to be: topology, kernel, root file system and how it is executed.

    `host_cpus` are the host CPUs it may use (none: all that this process may use); several
    machines that run beside each other in `icount` mode get one each. `trace_memory_mib` is
    reserved in the first node that has memory, so that a trace outlives the guest's kernel; 0
    reserves none. `icount_shift`: one instruction takes 2**shift nanoseconds of guest time.
    `vcpu_cpus`: the host CPU of each vCPU, where they are not to be planned.
    `pages`: what its memory is made of; hugepages are reserved for it. `shares_cpus`: in `kvm`
    mode, it may run where other guests run (it measures nothing).
    """

    topology: Topology
    bzimage: Path
    rootfs: Path
    mode: Mode
    seed: int
    name: str
    extra_cmdline: tuple[str, ...] = ()
    trace_memory_mib: int = 32
    host_cpus: tuple[int, ...] = ()
    cpu_model: CpuModel = "host"
    job_disk_mib: int = 128
    icount_shift: int = 3
    vcpu_cpus: tuple[int, ...] = ()
    pages: PageSize = "anonymous"
    shares_cpus: bool = False

    def __post_init__(self) -> None:
        """Refuse what could not be started. Raises UserError."""
        if self.mode not in MODES:
            raise UserError(f"unknown mode {self.mode!r}", key="mode", choices=MODES)
        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"{self.name!r} is no name for a machine: letters, digits, dot, dash", key="name"
            )
        if not 0 <= self.seed < 1 << 63:
            raise UserError(f"{self.seed} is not a number from 0 to 2**63 - 1", key="seed")
        if not 0 <= self.icount_shift <= 10:
            raise UserError(f"{self.icount_shift} is not a number from 0 to 10", key="icount_shift")
        if self.topology.nodes[0].memory_mib == 0:
            raise UserError("node 0 has no memory, and x86 boots in node 0", key="memory")
        if self.pages not in PAGE_KIB:
            raise UserError(f"unknown page size {self.pages!r}", key="pages", choices=PAGE_KIB)
        for node in self.topology.nodes:
            if (backed_mib(node) << 10) % PAGE_KIB[self.pages]:
                raise UserError(
                    f"node {node.id} has {backed_mib(node)} MiB, no multiple of {self.pages}",
                    key="pages",
                )


@dataclass(frozen=True)
class Job:
    """What the guest is to do.

    `argv` is the command. `env` is added to its environment. `tunables` maps files below /proc/sys
    or /sys to what is written to them before. `events` are `system:event` lines to record, each
    optionally followed by a tab and an ftrace filter. `clock` is the trace clock. `files` go below
    /job/files. `buffer_kib` is the trace buffer of each CPU where the machine reserves no memory.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    tunables: Mapping[str, str] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    clock: str = "mono"
    files: Mapping[str, bytes] = field(default_factory=dict)
    mode: JobMode = "run"
    buffer_kib: int = 4096

    def __post_init__(self) -> None:
        """Refuse what the guest's shell could not read back unchanged. Raises UserError."""
        if self.mode == "run" and not self.argv:
            raise UserError("no command to run in the guest")
        for word in (*self.argv, *self.env.values()):
            if "\0" in word:
                raise UserError(f"a NUL in {word[:40]!r}", key="argv")
        for name in self.env:
            if not _ENV_NAME.fullmatch(name):
                raise UserError(f"{name!r} is no name of an environment variable", key="env")
        for path, value in self.tunables.items():
            _check_tunable(path, value)
        for event in self.events:
            if not _EVENT.fullmatch(event):
                raise UserError(f"{event!r} is not `system:event`", key="events")
        if not _CLOCK.fullmatch(self.clock):
            raise UserError(f"{self.clock!r} is no trace clock", key="clock")
        for name in self.files:
            _check_file_name(name)


def _check_tunable(path: str, value: str) -> None:
    parts = path.split("/")
    if not path.startswith(("/proc/sys/", "/sys/")) or ".." in parts or set(path) & set(" \t\n\\"):
        raise UserError(f"{path!r} is not a file below /proc/sys or /sys", key="tunables")
    if "\n" in value or not value.strip():
        raise UserError(f"{value!r} is not one line", key=f"tunables.{path}")


def _check_file_name(name: str) -> None:
    parts = name.split("/")
    if not all(_NAME.fullmatch(part) for part in parts):
        raise UserError(f"{name!r} is no relative file name", key="files")
