"""manifest.json: everything that went into a run, and how it came out."""

import json
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from numalab.document import Count
from numalab.errors import LossCause
from numalab.guest.proof import Proof
from numalab.guest.witness import Timing
from numalab.machine.model import Mode, PageKind
from numalab.results.plan import Cell
from numalab.results.stored import FORMAT, Integer, PlainName, Seconds, Seed, Stored
from numalab.source.series import SeriesInfo

# Runs that differ in one of these cannot stand beside each other as repetitions.
IDENTITY = ("kernel", "scheduler", "image", "mode", "workload", "machine", "tunables", "pages")
VARIED = ("kernel", "scheduler", "tunables")  # by the variants of a study
# The same for how they were executed and read, with names for messages.
EXECUTION: Mapping[str, str] = {
    "emulator": "emulator",
    "memory": "memory model",
    "quantum_ns": "quantum",
    "icount_shift": "time of an instruction",
    "metrics": "metrics of the workload",
}
UNKNOWN = "unknown"
NONE = "none"  # of an input that a run can be without


def brief(values: Iterable[Any]) -> list[str]:
    """Write plain values that differ as JSON of at most 60 characters; of objects, only the keys
    that differ."""
    every = list(values)
    if all(isinstance(value, Mapping) for value in every):
        same = {
            key
            for key, value in every[0].items()
            if all(key in another and another[key] == value for another in every)
        }
        every = [{key: value[key] for key in value.keys() - same} for value in every]
    texts = (json.dumps(value, sort_keys=True).strip('"') for value in every)
    return [text if len(text) <= 60 else f"{text[:57]}..." for text in texts]


def _plain(value: Any) -> Any:
    """Return an input as plain values of JSON."""
    plain = value.model_dump(mode="json") if isinstance(value, Stored) else value
    return NONE if plain is None else plain


class RunStatus(StrEnum):
    """How a run came out."""

    OK = "ok"
    FAILED = "failed"
    LOST = "lost"
    INTERRUPTED = "interrupted"


class KernelFacts(Stored):
    """The kernel that was booted."""

    name: str
    release: str
    config_hash: str
    digest: str
    bzimage_sha256: str
    series: tuple[SeriesInfo, ...]
    source_version: str
    compiler: str

    @property
    def title(self) -> str:
        """The release and the series on it."""
        return " + ".join([self.release, *(series.name for series in self.series)])


class EmulatorFacts(Stored):
    """QEMU as it was built for mode timed; `source` as `package=version`."""

    name: str
    version: str
    source: str
    series: SeriesInfo
    compiler: str
    digest: str
    sha256: str


class CacheFacts(Stored):
    """A cache of the memory model: its size, and what a hit costs beyond the instruction."""

    kib: Count
    hit_ns: Count


class MemoryFacts(Stored):
    """The memory model of mode timed: from a node's CPUs (row) to a node's memory, in ns and
    10^6 bytes a second; private caches and those of `llc_groups` groups of CPUs; interrupts from
    node to node in ns."""

    latency_ns: tuple[tuple[Count, ...], ...]
    bandwidth_mb_s: tuple[tuple[float, ...], ...]
    interrupt_ns: tuple[tuple[Count, ...], ...]
    l1: CacheFacts
    l2: CacheFacts
    llc: CacheFacts
    llc_groups: Count

    @model_validator(mode="after")
    def _square(self) -> "MemoryFacts":
        size = len(self.latency_ns)
        for table in (self.latency_ns, self.bandwidth_mb_s, self.interrupt_ns):
            if [len(row) for row in table] != [size] * size:
                raise ValueError("memory: its tables are not square or differ in size")
        return self


class ImageFacts(Stored):
    """The root file system; `packages` as `name=version`."""

    name: str
    digest: str
    packages: tuple[str, ...]

    @property
    def written(self) -> "ImageFacts":
        """Return it with the part of the digest that the image holds, which is always known."""
        return self.model_copy(update={"digest": self.digest[:32]})


class SchedulerFacts(Stored):
    """A sched_ext scheduler: its origin (kernel, crate, source or program), and the SHA-256 of its
    program and libraries by their names in the guest."""

    name: str
    origin: str
    version: str
    arguments: tuple[str, ...]
    files: dict[str, str]

    @property
    def title(self) -> str:
        """The name, the version and the arguments."""
        return " ".join(filter(None, [self.name, self.version, *self.arguments]))


class WorkloadFacts(Stored):
    """The use of a workload: its command, the SHA-256 of its files, its parameters as resolved, the
    names of its tasks, and the CPUs that they were allowed on."""

    name: str
    label: PlainName
    argv: tuple[str, ...]
    files: dict[str, str]
    parameters: dict[str, str | Integer | float]
    tasks: tuple[str, ...]
    allowed_cpus: tuple[Count, ...]


class HostFacts(Stored):
    """The host, without naming it; memory in MiB."""

    kernel: str
    processor: str
    cpus: Count | None
    memory_mib: Count

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.processor}, {self.cpus} CPUs, {self.memory_mib} MiB, Linux {self.kernel}"


class Versions(Stored):
    """The programs beside the guest."""

    model_config = ConfigDict(extra="allow")

    qemu: str = UNKNOWN
    libvirt: str = UNKNOWN


class RecordingFacts(Stored):
    """How much of a recording there is: events by name, those known to be lost, places where some
    are missing, pages that are damaged, records that fit no format; needed fields that the kernel's
    events lack; `notes` on what it leaves out."""

    model_config = ConfigDict(extra="allow")

    clock: str = ""
    events: Count
    counts: dict[str, Count]
    first_ns: Integer | None
    last_ns: Integer | None
    lost: Count
    gaps: Count
    unsound: Count
    unreadable: Count
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lacking: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    whole: bool


class Manifest(Stored):
    """A run. A key that is None or empty was not known when the run ended.

    `metrics` is a digest of the workload's metrics and parser.
    `kernel_reports` names the errors that the guest's kernel reported in its log.
    `machine` is the topology as a table. `scheduler_ops` is the scheduler's name in
    /sys/kernel/sched_ext/root/ops. `cause` is why a guest was lost.
    """

    format: Literal[5] = FORMAT
    run: PlainName
    study: str
    digest: str
    topology: PlainName
    machine: dict[str, JsonValue]
    variant: PlainName
    seed: Seed
    mode: Mode
    mode_reason: str
    pages: PageKind
    kernel: KernelFacts
    tunables: dict[str, str | Integer]
    workload: WorkloadFacts
    image: ImageFacts
    host: HostFacts | None = None
    started: Annotated[str, Field(max_length=100)] = ""
    icount_shift: Count | None = None
    quantum_ns: Count | None = None
    metrics: str | None = None
    memory: MemoryFacts | None = None
    emulator: EmulatorFacts | None = None
    scheduler: SchedulerFacts | None = None
    scheduler_ops: Annotated[str, Field(max_length=200)] = ""
    exit_status: Integer | None = None
    guest_seconds: Seconds | None = None
    wall_seconds: dict[str, Seconds] = Field(default_factory=dict)
    cmdline: str | None = None
    versions: Versions = Versions()
    proof: Proof | None = None
    timing: Timing | None = None
    notes: tuple[str, ...] = ()
    kernel_reports: tuple[str, ...] = ()
    trace: RecordingFacts | None = None
    topology_differences: tuple[str, ...] = ()
    status: RunStatus | None = None
    cause: LossCause | None = None
    reason: str = ""
    seconds: Seconds | None = None

    @model_validator(mode="after")
    def _memory_of_machine(self) -> "Manifest":
        nodes = self.machine.get("nodes")
        if self.memory and isinstance(nodes, list) and len(nodes) != len(self.memory.latency_ns):
            raise ValueError("memory: its tables do not have a row for each node")
        return self

    @property
    def cell(self) -> Cell:
        """The cell of the matrix that it belongs to."""
        return Cell(self.topology, self.workload.label)

    @property
    def planned_cpus(self) -> tuple[tuple[int, ...], ...]:
        """The host CPUs that each vCPU's thread was to have, in the vCPUs' order, then all others.

        How many others QEMU has left, and in which order they are numbered, is not the plan's.
        """
        threads = () if self.proof is None else self.proof.threads
        vcpus = sorted((thread.vcpus, thread.planned) for thread in threads if thread.vcpus)
        other_cpus = {cpu for thread in threads if not thread.vcpus for cpu in thread.planned}
        return (*(planned for _, planned in vcpus), tuple(sorted(other_cpus)))

    def but(self, **changes: Any) -> "Manifest":
        """Return it with more known of the run, or for another run of the same inputs."""
        return self.model_copy(update=changes)

    def execution(self, key: str) -> Any:
        """Return an input of `EXECUTION`; None where an older numalab did not store it."""
        if key not in self.model_fields_set:
            return None
        value = getattr(self, key)
        return value.sha256[:12] if isinstance(value, EmulatorFacts) else _plain(value)

    def _input(self, key: str) -> Any:
        return self.image.written if key == "image" else getattr(self, key)

    def differs_from(self, other: "Manifest", but: Collection[str] = ()) -> str:
        """Name an input, not of `but`, in which two runs differ, and both values; empty for none.

        `pages (2M, memfd)`. What one of them did not store differs from nothing.
        """
        pairs = ((key, self._input(key), other._input(key)) for key in IDENTITY)
        inputs = [(key, mine, theirs) for key, mine, theirs in pairs if key not in but]
        for key, name in EXECUTION.items():
            mine, theirs = self.execution(key), other.execution(key)
            inputs += [(name, mine, theirs)] * (mine is not None and theirs is not None)
        for name, mine, theirs in inputs:
            if mine != theirs:
                return f"{name} ({', '.join(brief(map(_plain, (mine, theirs))))})"
        return ""

    def table(self) -> Mapping[str, Any]:
        """Return what is known of the run as the plain values of its file."""
        return {"format": FORMAT, **self.model_dump(mode="json", exclude_unset=True)}
