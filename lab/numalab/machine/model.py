"""The guest to boot and its job: values that are checked on creation."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from numalab.errors import UserError
from numalab.machine.memory import backed_mib
from numalab.topology.limits import MAX_APIC_ID
from numalab.topology.topology import Topology, memory_first, renumbered

Mode = Literal["kvm", "tcg", "icount", "timed"]
MODES: tuple[Mode, ...] = ("kvm", "tcg", "icount", "timed")
# Modes in which the same inputs and seed give the same run, byte for byte.
DETERMINISTIC: tuple[Mode, ...] = ("icount", "timed")

# By default, one instruction takes 2**shift ns of guest time: 8 ns and 4 ns.
SHIFTS: Mapping[Mode, int] = {"icount": 3, "timed": 2}

# In `icount` mode all CPUs share the instructions of a second. Until the kernel has chosen its
# clock source (clocksource_done_booting(), an fs_initcall) no CPU can stop its tick: each takes all
# ticks of CONFIG_HZ=250 and balances load in them. A tick takes so many instructions, and some for
# each distance, which is a level of domains (measured on 6.12).
_HZ = 250
_TICK, _TICK_FOR_DISTANCE = 3_150, 150
# If ticks take a larger part of a second, CPU 0 makes little or no progress.
_MOST_FOR_TICKS = 0.75

# Guest time (ns) that a vCPU may run ahead of the other vCPUs in `timed` mode.
QUANTUM_NS = 10_000
# From what the emulator takes (icount_configure() in emulator-configs/series) to less than a tick.
QUANTUM_RANGE = (1_000, 1_000_000)

CpuModel = Literal["host", "host-no-arch-capabilities", "qemu64"]
# In the order in which they are tried. Nested KVM on some hosts aborts QEMU when it reads
# MSR_IA32_ARCH_CAPABILITIES, so the second one leaves that feature out.
CPU_MODELS: tuple[CpuModel, ...] = ("host", "host-no-arch-capabilities", "qemu64")

# Backing of guest memory, and its page size in KiB. All but anonymous memory is in memfds, which
# outlive QEMU; anonymous memory may have transparent hugepages.
PageKind = Literal["memfd", "anonymous", "2M", "1G"]
PAGE_KIB: Mapping[PageKind, int] = {"memfd": 4, "anonymous": 4, "2M": 2048, "1G": 1 << 20}

JobMode = Literal["run", "rescue", "shell"]

# The job disk and the root are NVDIMMs; Linux maps them in steps of this size (a memory
# subsection, include/linux/mmzone.h: SUBSECTION_SHIFT 21).
NVDIMM_ALIGNMENT = 2 << 20

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EVENT = re.compile(r"\??[A-Za-z0-9_-]+(:[A-Za-z0-9_-]+)?(\t[^\n]*)?")
_PERF_EVENT = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(:[A-Za-z0-9_-]+)?")
_SAMPLED = re.compile("[vstp]*")
_CLOCK = re.compile(r"[a-z0-9_-]+")


@dataclass(frozen=True)
class Plugin:
    """A TCG plugin to load into QEMU, and its arguments.

    `mapped` is a file in which it counts at any time; a guest that starts from a saved one goes on
    with the counts of that one. `begins_anew` has the parameters of a plugin that forgets
    everything in the hold, so that it has no state there.
    """

    path: Path
    arguments: Mapping[str, str] = field(default_factory=dict)
    mapped: Path | None = None
    begins_anew: Path | None = None


@dataclass(frozen=True)
class CountedPlaces:
    """What the memory model needs to count pages and lines of programs between two moments.

    `mark` and `born` are the addresses of the kernel's functions that write a mark and that every
    new task enters (0: unknown), `barriers` are functions of programs as
    `emulator-configs/memory/plugin.c` reads them.
    """

    mark: int = 0
    born: int = 0
    barriers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Machine:
    """A guest to boot: topology, kernel, root file system and execution.

    The kernel: `initrd` loads drivers that are modules; `release` selects the kernel parameters
    that the version supports (empty: a recent one).

    Execution: one instruction takes 2**`icount_shift` nanoseconds of guest time (None: the default
    of the mode). A `cold` guest boots, even if there is a saved one. In `timed` mode, a vCPU runs
    at most `quantum_ns` ahead of the others, the plugin `memory_model` adds the time of memory
    accesses and may count `places`, and instructions and quantum take `slow_motion` times as long.
    `emulator` is the QEMU to start (None: the host's own), `plugins` are loaded into it, `gdb` is
    the socket at which it waits for a debugger.

    Memory: `trace_memory_mib` is reserved in the first node that has memory, so that a trace
    outlives the guest's kernel; 0 reserves none. The job disk has a file system of `job_disk_mib`,
    and behind it `inbox_mib` for files that the host sends while the guest runs. `pages` is the
    backing of all memory. `host_root`: the guest can mount the root folder of this host, read-only.

    The host: `host_cpus` are the CPUs that it may use (empty: all CPUs of this process).
    `vcpu_cpus` (host CPU of each vCPU) and `host_nodes` (host node of each guest node) replace the
    planned placement. `measures_time`: in `kvm` mode, the placement must be as planned.
    `shares_cpus`: in `kvm` mode, it may use the CPUs of other guests.
    """

    topology: Topology
    bzimage: Path
    rootfs: Path
    mode: Mode
    seed: int
    name: str
    initrd: Path | None = None
    release: str = ""
    extra_cmdline: tuple[str, ...] = ()
    cpu_model: CpuModel = "host"
    icount_shift: int | None = None
    cold: bool = False
    quantum_ns: int = QUANTUM_NS
    slow_motion: int = 1
    memory_model: Path | None = None
    places: CountedPlaces | None = field(default=None, repr=False)  # saved guests go by the rest
    emulator: Path | None = None
    plugins: tuple[Plugin, ...] = ()
    gdb: Path | None = None
    trace_memory_mib: int = 32
    job_disk_mib: int = 128
    inbox_mib: int = 0
    pages: PageKind = "memfd"
    host_root: bool = False
    host_cpus: tuple[int, ...] = ()
    vcpu_cpus: tuple[int, ...] = ()
    host_nodes: tuple[int, ...] = ()
    measures_time: bool = False
    shares_cpus: bool = False

    @property
    def shift(self) -> int:
        """One instruction takes 2**shift nanoseconds of guest time where they are counted."""
        usual = self.icount_shift
        if usual is None:
            usual = usual_shift(self.mode, self.topology)
        return usual + (self.slow_motion.bit_length() - 1 if self.mode == "timed" else 0)

    @property
    def turn_ns(self) -> int:
        """Guest time (ns) that a vCPU may run ahead of the other vCPUs in `timed` mode."""
        return self.quantum_ns * self.slow_motion

    @property
    def huge(self) -> bool:
        """Whether its memory is backed by hugepages."""
        return PAGE_KIB[self.pages] > PAGE_KIB["memfd"]

    def __post_init__(self) -> None:
        """Raise UserError for a machine that cannot start."""
        if self.mode not in MODES:
            raise UserError(f"unknown mode {self.mode!r}", key="mode", choices=MODES)
        if not _NAME.fullmatch(self.name):
            raise UserError(
                f"{self.name!r} is an invalid name for a machine: letters, digits, dot, dash",
                key="name",
            )
        if not 0 <= self.seed < 1 << 63:
            raise UserError(f"{self.seed} is not a number from 0 to 2**63 - 1", key="seed")
        if not 0 <= self.shift <= 10:
            raise UserError(f"{self.icount_shift} is not a number from 0 to 10", key="icount_shift")
        if self.mode == "timed":
            check_quantum(self.quantum_ns, self.shift, self.slow_motion)
        if self.host_root and self.mode in DETERMINISTIC:
            reason = f"mode {self.mode} repeats to the byte, and files of this host may change"
            raise UserError(reason, key="host_root", choices=("kvm", "tcg"))
        if self.pages not in PAGE_KIB:
            raise UserError(f"unknown page size {self.pages!r}", key="pages", choices=PAGE_KIB)
        check_cpu_count(self.topology)
        check_by_hand(self.topology, self.vcpu_cpus, self.host_nodes)
        for node in self.topology.nodes:
            if (backed_mib(node) << 10) % PAGE_KIB[self.pages]:
                has = "has" if node.memory_mib else "has no memory, for which QEMU holds"
                raise UserError(
                    f"node {node.id} {has} {backed_mib(node)} MiB, no multiple of {self.pages}",
                    key="pages",
                )


def with_memory_first(machine: Machine) -> Machine:
    """Return the machine with nodes in the order of QEMU: the first has memory."""
    order = memory_first(machine.topology)
    if machine.topology.nodes[0].memory_mib:
        return machine
    return replace(
        machine,
        topology=renumbered(machine.topology, order),
        host_nodes=tuple(machine.host_nodes[node] for node in order) if machine.host_nodes else (),
    )


@dataclass(frozen=True)
class Job:
    """The job of a guest.

    The command: `argv`, with `env` added to its environment, `tunables` (files below /proc/sys or
    /sys, and the values to write), and `files`, which go below /job/files.

    The recording: `events` are `system:event` or `system` lines, each optionally followed by a tab
    and an ftrace filter; with a `?` in front it may be absent. `clock` is the trace clock.
    `buffer_kib` is the trace buffer of each CPU where the machine reserves no memory.

    Counters: `perf_stat` are events that perf counts. Every `sample_ms` milliseconds
    the counters `sampled` are read (letters, see images/src/numalab-run.c); 0: never. `numastat`:
    whether the nodes' counters are read before and after.
    """

    argv: tuple[str, ...]
    mode: JobMode = "run"
    env: Mapping[str, str] = field(default_factory=dict)
    tunables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    events: tuple[str, ...] = ()
    clock: str = "mono"
    buffer_kib: int = 4096
    perf_stat: tuple[str, ...] = ()
    sample_ms: int = 0
    sampled: str = ""
    numastat: bool = False

    def __post_init__(self) -> None:
        """Raise UserError for values that the guest's shell cannot read unchanged."""
        if self.mode == "run" and not self.argv:
            raise UserError("no command to run in the guest")
        for word in (*self.argv, *self.env.values()):
            if "\0" in word:
                raise UserError(f"a NUL in {word[:40]!r}", key="argv")
        for name in self.env:
            if not _ENV_NAME.fullmatch(name):
                raise UserError(
                    f"{name!r} is an invalid name of an environment variable", key="env"
                )
        for path, value in self.tunables.items():
            _check_tunable(path, value)
        self._check_recording()
        for name in self.files:
            _check_file_name(name)

    def _check_recording(self) -> None:
        for event in self.events:
            if not _EVENT.fullmatch(event):
                raise UserError(f"{event!r} is not `system:event`", key="events")
        for event in self.perf_stat:
            if not _PERF_EVENT.fullmatch(event):
                raise UserError(f"{event!r} is not an event of perf", key="perf_stat")
        if not _SAMPLED.fullmatch(self.sampled):
            raise UserError(f"{self.sampled!r} is not made of v, s, t and p", key="sampled")
        if not _CLOCK.fullmatch(self.clock):
            raise UserError(f"{self.clock!r} is not a trace clock", key="clock")


def usual_shift(mode: Mode, topology: Topology) -> int:
    """Return the default shift of a mode; in `icount`, smaller on machines with many CPUs."""
    shift = SHIFTS.get(mode, 0)
    if mode != "icount":
        return shift
    distances = {distance for row in topology.distances for distance in row}
    ticks = _HZ * topology.cpu_count * (_TICK + _TICK_FOR_DISTANCE * len(distances))
    while shift and ticks > _MOST_FOR_TICKS * (10**9 >> shift):
        shift -= 1
    return shift


def check_quantum(
    quantum_ns: int, shift: int, slow_motion: int = 1, key: str = "quantum_ns"
) -> None:
    """Raise UserError for a quantum that the emulator refuses: it gets that times slow motion."""
    low, high = max(QUANTUM_RANGE[0], 100 << shift), QUANTUM_RANGE[1]
    if not low <= quantum_ns * slow_motion <= high:
        low, high = -(-low // slow_motion), high // slow_motion
        slowly = f" in slow motion {slow_motion}" if slow_motion > 1 else ""
        raise UserError(
            f"{quantum_ns} is not a number of nanoseconds from {low} to {high}{slowly}", key=key
        )


def check_cpu_count(topology: Topology) -> None:
    """Raise UserError for a topology with too many CPUs for a guest."""
    last = topology.packaging.apic_id(topology.cpu_count - 1)
    if last > MAX_APIC_ID:
        raise UserError(
            f"{topology.name} has {topology.cpu_count} CPUs, the last with APIC id {last}; a guest"
            f" without interrupt remapping ends at {MAX_APIC_ID}",
            key="cpus",
        )


def check_by_hand(topology: Topology, vcpu_cpus: Sequence[int], host_nodes: Sequence[int]) -> None:
    """Raise UserError unless a manual placement has a number for each vCPU or node."""
    if vcpu_cpus and len(vcpu_cpus) != topology.cpu_count:
        raise UserError(
            f"{len(vcpu_cpus)} host CPUs for {topology.cpu_count} vCPUs", key="vcpu_cpus"
        )
    if host_nodes and len(host_nodes) != len(topology.nodes):
        raise UserError(
            f"{len(host_nodes)} host nodes for {len(topology.nodes)} guest nodes", key="nodes"
        )


def _check_tunable(path: str, value: str) -> None:
    parts = path.split("/")
    if not path.startswith(("/proc/sys/", "/sys/")) or ".." in parts or set(path) & set(" \t\n\\"):
        raise UserError(f"{path!r} is not a file below /proc/sys or /sys", key="tunables")
    if "\n" in value or not value.strip():
        raise UserError(f"{value!r} is not one line", key=f"tunables.{path}")


def _check_file_name(name: str) -> None:
    parts = name.split("/")
    long = any(len(os.fsencode(part)) > 255 for part in parts)
    if long or "\0" in name or {"", ".", ".."}.intersection(parts):
        raise UserError(f"{name!r} is not a relative file name", key="files")
