"""Run one guest: prepare, start, follow, collect. The output of a lost guest is kept."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from numalab.errors import GuestLost, HostError, LabError, LossCause, UserError, WorkloadFailed
from numalab.files import left_by_guest, write_text
from numalab.guest.console import Beat, excerpt
from numalab.guest.follow import End, follow
from numalab.guest.proof import Proof
from numalab.guest.saved_guest_artifact import mapped_files, save_when_held
from numalab.guest.start import prepare, started
from numalab.guest.watch import Limits
from numalab.guest.witness import Timing, judge_timing
from numalab.host.read import slowness
from numalab.machine.memory import HeldMemory, Region, trace_region
from numalab.machine.model import DETERMINISTIC, Job, Machine, Mode, with_memory_first
from numalab.placement.planner import Placement
from numalab.qemu.collect import Collected, read_job_disk
from numalab.qemu.ending import Loss
from numalab.qemu.guest import Guest
from numalab.qemu.hypervisor import EMBED, Hypervisor, connect
from numalab.run_dir import RunDir


class RemarkKind(StrEnum):
    """The subject of a remark."""

    PLAN = "plan"  # distortions of the placement, known before the start
    MISPLACED = "misplaced"  # differences from the plan
    LEFT_OUT = "left out"  # output of the guest that was refused
    COMPLAINT = "complaint"  # of the guest's kernel
    BAD_BEATS = "bad beats"
    FLOOD = "flood"  # of its console
    UNKNOWN_KERNEL = "unknown kernel"  # newer than the kernels of the prediction
    DISTURBED = "disturbed"  # disturbances of timing


@dataclass(frozen=True)
class Remark:
    """A remark for readers of a run's results."""

    kind: RemarkKind
    text: str

    @classmethod
    def of_texts(cls, kind: RemarkKind, texts: Iterable[str], before: str = "") -> "list[Remark]":
        """Return a remark for each text, with the prefix `before`."""
        return [cls(kind, f"{before}{text}") for text in texts]


CANNOT_RUN = "the guest cannot run the job"
_MOST_LEFT = 20
_GAVE_UP = 125  # images/guest/init: the job could not be run at all


@dataclass(frozen=True)
class Rescue:
    """The trace of a lost guest, or in words why there is none."""

    trace: Path | None = None
    note: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of a run whose command ended, with any exit status.

    `wall_seconds`: by step (prepare, start, boot, held, setup, workload, collect, off, gather), in
    order. `guest_seconds`: the guest's uptime at its last beat.
    """

    status: int
    wall_seconds: dict[str, float]
    guest_seconds: float
    proof: Proof
    timing: Timing
    collected: Collected
    cmdline: str
    versions: dict[str, str]
    remarks: tuple[Remark, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """The texts of the remarks."""
        return tuple(remark.text for remark in self.remarks)

    @property
    def new_notes(self) -> tuple[str, ...]:
        """The notes that `numalab place` and `numalab host show` do not print before the run."""
        known_before = (RemarkKind.PLAN, RemarkKind.DISTURBED)
        return tuple(remark.text for remark in self.remarks if remark.kind not in known_before)


def is_full(run_dir: RunDir, collected: Collected) -> bool:
    """Whether the job disk was full when the command ended: what is never empty did not fit."""
    never_empty = (run_dir.exit_status.name, run_dir.vmstat_after.name)
    return any(collected.files.get(name) == 0 for name in never_empty)


def require_room(run_dir: RunDir, collected: Collected, mib: int) -> None:
    """Raise WorkloadFailed for a command that filled its job disk of `mib` MiB."""
    if is_full(run_dir, collected):
        raise WorkloadFailed(full_disk(mib))


def full_disk(mib: int) -> str:
    """Return what a full job disk of `mib` MiB means for the user."""
    return f"the job disk ({mib} MiB) is full: the command's output and files below $OUT are cut"


def left_out_remarks(collected: Collected) -> tuple[str, ...]:
    """Return a text for each file that was not copied from the job disk, 20 at most."""
    return tuple(f"not taken from the guest: {text}" for text in collected.left_out[:_MOST_LEFT])


def run_guest(
    machine: Machine,
    job: Job,
    run_dir: RunDir,
    *,
    connection: str = EMBED,
    limits: Limits | None = None,
    on_beat: Callable[[Beat], None] | None = None,
    join: Callable[[Guest], AbstractContextManager[None]] | None = None,
    rescue: bool = True,
    look: Callable[[HeldMemory], None] | None = None,
) -> Outcome:
    """Boot a guest, run its job, and copy its results to `run_dir`.

    In all modes but kvm, the guest continues a saved one if there is one, else it is saved
    for later ones (`guest/saved_guest_artifact.py`), unless it is `cold`. `join` returns a context
    for the running guest, which ends before the guest does. `look` receives the memory of a guest
    that ended as it should. The default `limits` depend on the current speed of this host and the
    number of the guest's CPUs.

    No QEMU is left running, even after errors. Raises GuestLost for a guest that panicked, hung
    or was killed; `run_dir` then holds its console, results and trace (a second guest reads the
    trace memory, unless `rescue` is False). Raises WorkloadFailed where the guest cannot run the
    job; HostError where it cannot be started; UserError for libvirt's test driver;
    PlacementMismatch where timing is measured in mode kvm and the placement differs from the plan
    (in other modes that is a remark).
    """
    if connection.startswith("test:"):
        uris = (EMBED, "qemu:///session", "qemu:///system")
        raise UserError("libvirt's test driver runs no guest", key="--connect", choices=uris)
    limits = limits or Limits().for_cpus(machine.topology.cpu_count).on_a_host(slowness(load=False))
    around = _Around(connect(connection), limits, on_beat, join, look, rescue)
    machine = with_memory_first(machine)
    counts = {path: path.read_bytes() for path in mapped_files(machine.plugins)}
    try:
        return _run_once(machine, job, run_dir, around)
    except _BootAgainError:
        for path, data in counts.items():
            path.write_bytes(data)
        return _run_once(replace(machine, cold=True), job, run_dir, around)


@dataclass(frozen=True)
class _Around:
    """What `run_guest` is given besides the guest, its job and its folder."""

    hypervisor: Hypervisor
    limits: Limits
    on_beat: Callable[[Beat], None] | None
    join: Callable[[Guest], AbstractContextManager[None]] | None
    look: Callable[[HeldMemory], None] | None
    rescue: bool


class _BootAgainError(Exception):
    """The guest has to boot cold: a saved one does not start, or one was not saved in its hold."""


def _run_once(machine: Machine, job: Job, run_dir: RunDir, around: _Around) -> Outcome:
    watch = _Stopwatch()
    hypervisor = around.hypervisor
    prepared = prepare(machine, job, run_dir, embedded=hypervisor.embedded)
    watch.lap("prepare")
    with ExitStack() as stack:
        try:
            running = stack.enter_context(started(hypervisor, machine, prepared))
        except HostError:
            if prepared.saved is None:
                raise
            prepared.saved.forget()
            raise _BootAgainError from None
        guest, memory, witness = running
        watch.lap("start")
        versions = guest.versions()
        if around.join is not None:
            stack.enter_context(around.join(guest))

        def save() -> None:
            assert prepared.entry is not None
            as_before = save_when_held(prepared.entry, machine, guest, memory, run_dir)
            if not as_before and machine.mode in DETERMINISTIC and around.join is None:
                raise _BootAgainError

        on_hold = save if prepared.entry is not None and prepared.saved is None else None
        with _kept_if_interrupted(guest, memory, prepared.region, run_dir):
            end = follow(
                guest, witness, run_dir, around.limits, around.on_beat,
                awake=job.mode == "shell", on_hold=on_hold,
            )  # fmt: skip
        guest.end()
        watch.phases(end)
        if around.look is not None and not end.loss:
            around.look(memory)
        if end.loss:
            _keep_memory(memory, prepared.region, run_dir)
            write_text(run_dir.qemu_log, guest.log())
    collected = read_job_disk(run_dir.job_disk, run_dir.out)
    watch.lap("gather")
    status = _status(run_dir, end)
    if end.loss or status is None:
        rescued = Rescue()
        if around.rescue:
            rescued = rescue_trace(hypervisor, machine, job, run_dir, end)
        raise _lost(end, run_dir, rescued)
    _check_gave_up(status, end)
    with suppress(WorkloadFailed):  # it left none
        end.watchdog.log(left_by_guest(run_dir.dmesg).decode("utf-8", "replace").splitlines())
    witness.check()
    timing = judge_timing(prepared.placement, witness.proof)
    run_dir.job_disk.unlink(missing_ok=True)
    return Outcome(
        status=status,
        wall_seconds=watch.laps,
        guest_seconds=end.watchdog.uptime,
        proof=witness.proof,
        timing=timing,
        collected=collected,
        cmdline=prepared.cmdline,
        versions=versions,
        remarks=_remarks(prepared.placement, witness.proof, collected, end, timing),
    )


@contextmanager
def _kept_if_interrupted(
    guest: Guest, memory: HeldMemory, region: Region | None, run_dir: RunDir
) -> Iterator[None]:
    """End the guest and keep its output when an error or Ctrl-C ends the block."""
    try:
        yield
    except _BootAgainError:
        raise
    except BaseException:
        guest.end()
        _keep_memory(memory, region, run_dir)
        with suppress(HostError):
            read_job_disk(run_dir.job_disk, run_dir.out)
        raise


def _check_gave_up(status: int, end: End) -> None:
    if status == _GAVE_UP and end.watchdog.message:
        tail = excerpt(end.watchdog.kept)
        raise WorkloadFailed(f"{CANNOT_RUN}: {end.watchdog.message}\n{tail}")


def _status(run_dir: RunDir, end: End) -> int | None:
    """Return the command's exit status from the job disk, or else from the last beat."""
    try:
        text = run_dir.exit_status.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        text = ""
    if text.isdecimal() and len(text) <= 3 and int(text) <= 255:
        return int(text)
    return end.watchdog.status if end.watchdog.phase == "done" else None


def _keep_memory(memory: HeldMemory, region: Region | None, run_dir: RunDir) -> None:
    if region is not None:
        with suppress(OSError):
            memory.save(region, run_dir.trace_memory)


def _lost(end: End, run_dir: RunDir, saved: Rescue) -> GuestLost:
    loss = end.loss or Loss(LossCause.GUEST, "the guest powered off before its command had ended")
    if end.watchdog.panic:
        loss = Loss(LossCause.GUEST, f"the guest's kernel panicked: {end.watchdog.panic}")
    return GuestLost(
        loss.reason,
        cause=loss.cause,
        kept=run_dir.path,
        trace=saved.trace and saved.trace.relative_to(run_dir.path),
        note=saved.note,
        tail=excerpt(end.watchdog.kept),
    )


def _remarks(
    placement: Placement, proof: Proof, collected: Collected, end: End, timing: Timing
) -> tuple[Remark, ...]:
    guest, remarks = end.watchdog, Remark.of_texts
    bad = [f"{guest.bad_beats} lines on ttyS1 were not beats"] if guest.bad_beats else []
    flood = ["the guest printed too much; its console is cut"] if end.floods else []
    return (
        *remarks(RemarkKind.PLAN, [placement.note] if placement.note else []),
        *remarks(RemarkKind.MISPLACED, map(str, proof.differs), "not placed as planned: "),
        *remarks(RemarkKind.LEFT_OUT, left_out_remarks(collected)),
        *remarks(RemarkKind.COMPLAINT, guest.troubles, "the guest's kernel complained: "),
        *remarks(RemarkKind.BAD_BEATS, bad),
        *remarks(RemarkKind.FLOOD, flood),
        *remarks(RemarkKind.DISTURBED, map(str, timing.disturbs)),
    )


class _Stopwatch:
    """Wall seconds by step."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.laps: dict[str, float] = {}

    def lap(self, name: str) -> None:
        """End a step."""
        now = time.monotonic()
        self.laps[name] = now - self._last
        self._last = now

    def phases(self, end: End) -> None:
        """Add the guest's phases; a phase lasts until the first beat of the next."""
        began = [("boot", self._last), *list(end.phase_began.items())[1:]]
        ends = [when for _, when in began[1:]] + [time.monotonic()]
        for (name, start), stop in zip(began, ends, strict=True):
            self.laps["off" if name == "done" else name] = stop - start
        self._last = time.monotonic()


def _nothing_to_read(machine: Machine, job: Job, run_dir: RunDir, end: End) -> str:
    """Return why a lost guest left no trace memory, or none that has to be read; else nothing."""
    if not job.events:
        return "nothing was being recorded"
    if trace_region(machine.topology, machine.trace_memory_mib) is None:
        return "its trace was in the guest's own memory, which is lost with its kernel"
    if "workload" not in end.phase_began:
        return "the guest was lost before the recording began"
    if run_dir.trace.exists():
        return "its trace had been written already"
    if machine.pages == "anonymous":
        return "its trace was in anonymous memory, which ended with QEMU"
    return "" if run_dir.trace_memory.exists() else "its trace memory could not be kept"


def rescue_trace(
    hypervisor: Hypervisor,
    machine: Machine,
    job: Job,
    run_dir: RunDir,
    end: End,
) -> Rescue:
    """Boot a second guest that reads the lost one's trace memory.

    The memory must have been saved in `run_dir`. The second guest has the same kernel, topology and
    command line, and the memory is put back before it starts: the kernel then finds the ring
    buffer of "the previous boot" (kernel/trace/ring_buffer.c, rb_meta_valid() in 6.12). The trace
    goes to `run_dir.trace`.
    """
    region = trace_region(machine.topology, machine.trace_memory_mib)
    if why := _nothing_to_read(machine, job, run_dir, end):
        return Rescue(note=why)
    assert region is not None
    rescue_dir = run_dir.rescue
    # Not tcg, in which a kernel may measure its clock wrongly (see cmdline.py).
    mode: Mode = "kvm" if machine.mode == "kvm" else "icount"
    rescuer = replace(
        machine, mode=mode, plugins=(), memory_model=None, measures_time=False,
        name=f"{machine.name[:70]}-rescue",
    )  # fmt: skip
    try:
        prepared = prepare(
            rescuer,
            Job(argv=(), mode="rescue", clock=job.clock),
            rescue_dir,
            embedded=hypervisor.embedded,
            restore=(run_dir.trace_memory.absolute(), region),
        )
        with started(hypervisor, rescuer, prepared) as (guest, _, witness):
            follow(guest, witness, rescue_dir, Limits(total=600.0), None)
            guest.end()
        collected = read_job_disk(rescue_dir.job_disk, rescue_dir.out)
    except (LabError, OSError) as error:
        return Rescue(note=f"its trace memory is kept, but could not be read: {error}")
    if rescue_dir.trace.name not in collected.files:
        return Rescue(note="its trace memory is kept, but held no trace that could be read")
    run_dir.out.mkdir(exist_ok=True)
    rescue_dir.trace.replace(run_dir.trace)
    if rescue_dir.trace_stats.exists():
        rescue_dir.trace_stats.replace(run_dir.trace_stats)
    shutil.rmtree(rescue_dir.path)
    return Rescue(run_dir.trace)
