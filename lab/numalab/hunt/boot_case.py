"""Boot one case on one kernel, and judge its loads."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from numalab.artifact.digest import digest_of
from numalab.campaign.boot import guest
from numalab.campaign.build import Builds, build, choose_mode
from numalab.campaign.check import check_topology, predicted
from numalab.capture.decode import decode_guest
from numalab.errors import GuestLost, HostBusy, HostError, LabError, LossCause, UserError
from numalab.files import left_by_guest
from numalab.guest.console import is_report, is_scheduler_error
from numalab.guest.kvm import Choice
from numalab.guest.run import Outcome, RemarkKind, run_guest
from numalab.guest.watch import Limits
from numalab.hunt.calls.counting import counting_calls, read_calls
from numalab.hunt.calls.functions import CountedFunctions
from numalab.hunt.case import Case
from numalab.hunt.compare.facts import differing_levels, facts_of_guest, with_facts
from numalab.hunt.compare.memory_look import MemoryLook, look_into
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.loads.driver_output import explain_faults
from numalab.hunt.loads.load_text import render_loads
from numalab.hunt.property import (
    DOMAINS,
    DRIVER,
    LOST,
    SCHEDULER,
    SPLAT,
    judge_load,
    property_names,
)
from numalab.hunt.recording import LoadRecording, read_loads
from numalab.image.recipe import load_recipe
from numalab.kernel.kernel_specs import KernelSpec
from numalab.machine.memory import HeldMemory
from numalab.machine.model import Job, with_memory_first
from numalab.parquet import read_parquet
from numalab.places import cache_dir
from numalab.progress import Progress, no_progress
from numalab.qemu.emulator import parse_qemu_version
from numalab.qemu.hypervisor import EMBED
from numalab.reach.counting import counting, read_reach
from numalab.reach.line_table import LineTable
from numalab.recording.events import describe_lacking, lacking_fields
from numalab.results.guest_output import guest_text_if_any, read_guest_view
from numalab.run_dir import RunDir
from numalab.scheduler.in_guest import (
    SchedulerInGuest,
    explain_end,
    parse_record,
    scheduler_in_guest,
)
from numalab.scheduler.scheduler_artifact import ensure_scheduler
from numalab.scheduler.scheduler_spec import SchedulerSpec
from numalab.scheduler.watchdog_artifact import LONGEST_SECONDS, ensure_watchdog
from numalab.scratch import scratch_folder
from numalab.topology.differences import Difference, MachinePart
from numalab.topology.guest_view import is_warning_of_machine
from numalab.workload.workload import IN_GUEST, load_workload
from numalab.workload.workload_files import build_workload, shaker

WORKLOAD = "hunt"
EVENTS = (
    "sched:sched_switch",
    "sched:sched_wakeup",
    "sched:sched_wakeup_new",
    "sched:sched_migrate_task",
    "sched:sched_move_numa",
    "sched:sched_swap_numa",
    "sched:sched_stick_numa",
)
_TRACE_MIB = 96
_MOST_EVENTS = 4 << 20
_EVENTS_BYTES = 1 << 30
_LONGEST_WORD = 512  # COMMAND_LINE_SIZE of x86 is 2048 (arch/x86/include/asm/setup.h)
_WAIT = 2.0  # seconds between two attempts on a busy host


@dataclass(frozen=True)
class HuntBench:
    """The setup of boots: a kernel, the build results, the mode, and the host CPUs.

    `scheduler` (sched_ext), if any, has the tasks of all loads. `wall` is the limit of one boot in
    seconds of wall time. Loads are judged by `properties` (None: all). `reach` are the changed
    lines of a patch to count, `calls` functions. A driver that comes with `shaker` starts each boot
    in a state that the seed decides. With `varies_boot` kernel, case and seed decide the
    length of the kernel command line, and so when the kernel calibrates its clocks.
    """

    kernel: KernelSpec
    builds: Builds
    choice: Choice
    connection: str = EMBED
    host_cpus: tuple[int, ...] = ()
    wall: float = 600.0
    properties: frozenset[str] | None = None
    reach: LineTable | None = None
    calls: CountedFunctions | None = None
    scheduler: SchedulerInGuest | None = None
    varies_boot: bool = False

    @property
    def title(self) -> str:
        """The name of the kernel, and the scheduler (sched_ext), if any."""
        scheduler = f" with {self.scheduler.scheduler.spec.title}" if self.scheduler else ""
        return self.kernel.name + scheduler

    @property
    def selected(self) -> frozenset[str]:
        """The names of the properties to judge."""
        return frozenset(property_names()) if self.properties is None else self.properties

    def for_new_machines(self) -> "HuntBench":
        """Return the bench for machines most of which boot once: their guests are not saved."""
        return replace(self, choice=replace(self.choice, cold=True))

    def for_confirmation(self) -> "HuntBench":
        """Return the bench for boots that seeds make as different as two kernels may be.

        In mode icount a kernel with a few other instructions calibrates its clocks at other times,
        and its timers fire a little earlier or later in each load, whatever the seed.
        """
        return replace(self.for_new_machines(), varies_boot=True)


def boot_case(case: Case, bench: HuntBench, seed: int) -> BootResult:
    """Boot a case, run its loads, and return the finding of each property.

    A failure of the host or of numalab is the `error` of the result. Ctrl-C is passed on.
    """
    began = time.monotonic()
    try:
        with scratch_folder(cache_dir("boots"), "hunt-") as path:
            result = _boot_and_judge(case, bench, seed, RunDir(path))
    except GuestLost as lost:
        result = BootResult((), 0.0, str(lost))
        if lost.cause is LossCause.GUEST:
            result = BootResult((Finding(LOST, None, 1.0, 0.0, lost.reason),), 0.0)
    except LabError as other:
        result = BootResult((), 0.0, str(other))
    return replace(result, seconds=round(time.monotonic() - began, 2))


def record_case(
    case: Case, bench: HuntBench, seed: int, directory: RunDir
) -> tuple[LoadRecording, ...]:
    """Boot a case and return the recordings of its loads; files of the run go to `directory`.

    Raises GuestLost, HostError, and other LabErrors of the boot.
    """
    _run(case, bench, seed, directory)
    stdout = left_by_guest(directory.stdout).decode("utf-8", "replace")
    events = _read_events(case, directory)
    return read_loads(events, stdout, case.machine, case.loads, directory=directory)


def _boot_and_judge(case: Case, bench: HuntBench, seed: int, directory: RunDir) -> BootResult:
    ended = _run(case, bench, seed, directory)
    return replace(_judged(case, bench, directory, ended), reach=read_reach(directory))


@dataclass(frozen=True)
class _Ended:
    """A guest that ended: its outcome, the memory reserved for the trace, a look at its memory."""

    outcome: Outcome
    reserved_mib: int
    look: MemoryLook


def _run(case: Case, bench: HuntBench, seed: int, directory: RunDir) -> _Ended:
    """Boot a case until its guest ends."""
    machine = replace(
        guest(case.machine, bench.kernel.name, bench.builds, bench.choice, trace_mib=_TRACE_MIB),
        seed=seed,
        name="hunt",
        host_cpus=bench.host_cpus,
        extra_cmdline=(_word(case, bench, seed),) if bench.varies_boot else (),
    )
    files = bench.builds.files[WORKLOAD]
    shaken = [f"{IN_GUEST}/{shaker().stem}"] if shaker().stem in files else []
    turns = ["env", "LONG_TURNS=1"] if bench.choice.has_long_turns else []
    argv: tuple[str, ...] = (*turns, *shaken, f"{IN_GUEST}/{WORKLOAD}", render_loads(case.loads))
    if bench.scheduler is not None:
        argv, files = bench.scheduler.around(argv), {**files, **bench.scheduler.files}
    job = Job(
        argv=argv, events=EVENTS, files=files,
        buffer_kib=max(64, (_TRACE_MIB << 10) // case.machine.cpu_count),
    )  # fmt: skip
    looks: list[MemoryLook] = []

    def look(memory: HeldMemory) -> None:
        topology = with_memory_first(machine).topology
        kernel = bench.builds.kernels[bench.kernel.name]
        looks.append(look_into(memory, topology, kernel.symbols, kernel.release))

    deadline = time.monotonic() + bench.wall
    while True:
        try:
            limits = Limits(total=bench.wall, uptime=_most_seconds(case))
            with (
                counting(machine, bench.reach, directory) as with_lines,
                counting_calls(with_lines, bench.calls, directory) as counted,
            ):
                outcome = run_guest(
                    counted, job, directory, connection=bench.connection, limits=limits,
                    rescue=False, look=look,
                )  # fmt: skip
            break
        except HostBusy:
            if time.monotonic() > deadline:
                raise
            time.sleep(_WAIT)
    return _Ended(outcome, machine.trace_memory_mib, looks[0] if looks else MemoryLook())


def _word(case: Case, bench: HuntBench, seed: int) -> str:
    """Return a word for the kernel command line whose length follows from kernel, case and seed.

    So two kernels differ as two boots of one of them. The kernel ignores the word: it is a
    parameter of a module that does not exist.
    """
    length = int(digest_of([bench.kernel.name, case.text, seed])[:8], 16) % _LONGEST_WORD
    return "numalab.boot=" + "x" * (1 + length)


def _most_seconds(case: Case) -> float:
    """Return the guest time in seconds after which a boot counts as hung."""
    return 120.0 + 10.0 * len(case.loads) + 5.0 * sum(load.ms for load in case.loads) / 1000


def _judged(case: Case, bench: HuntBench, directory: RunDir, ended: _Ended) -> BootResult:
    outcome, facts = ended.outcome, ended.look.facts
    scheduler = _scheduler(bench, directory)
    if scheduler is not None and scheduler.violated:
        return BootResult((scheduler,), 0.0)
    stdout = left_by_guest(directory.stdout).decode("utf-8", "replace")
    if outcome.status != 0:
        errors = left_by_guest(directory.stderr).decode("utf-8", "replace")
        text = f"the driver ended with {outcome.status}: {errors[-300:]}"
        return BootResult((Finding(DRIVER, None, 1.0, 0.0, text, weak=True),), 0.0)
    # What the loads made of the domains is compared, too: they leave the machine as it was.
    guest_view = replace(with_facts(read_guest_view(directory), facts), boot_log=None)
    qemu = parse_qemu_version(outcome.versions["qemu"])
    differences = check_topology(
        case.machine, bench.kernel, guest_view, reserved_mib=ended.reserved_mib, allow=True,
        qemu=qemu,
    )  # fmt: skip
    differences += differing_levels(predicted(case.machine, bench.kernel, guest_view, qemu), facts)
    files = guest_text_if_any(directory.sched_domains)
    rebuilt = any(load.rebuilds_domains for load in case.loads)
    facts += facts_of_guest(guest_view, files, capacities=not rebuilt)
    alive = Finding(LOST, None, 0.0, 0.0, "the guest came to its end")
    faults = explain_faults(stdout)
    text = "; ".join(faults) or "the driver came to its end"
    driven = Finding(DRIVER, None, float(len(faults)), 0.0, text[:300], weak=True)
    domains = [] if guest_view.cut else [_domains(differences)]
    findings = [alive, driven, *domains, _splat(outcome, directory, differences)]
    findings += [scheduler] if scheduler is not None else []
    result = BootResult(tuple(findings), 0.0, facts=facts, run_queues=ended.look.run_queues)
    try:
        events = _read_events(case, directory)
    except UserError as error:
        return replace(result, error=str(error), unjudged=len(case.loads))
    timed, failures = bench.choice.mode == "timed", dict[str, str]()
    runs = read_loads(events, stdout, case.machine, case.loads, far_costs=timed,
                      directory=directory)  # fmt: skip
    for run in runs:
        about_load, failed = judge_load(run, bench.selected)
        findings += about_load
        failures = {**failed, **failures}
    calls, of_calls = read_calls(directory, bench.calls, events)
    return replace(result, findings=(*findings, *of_calls), failures=failures, calls=calls,
                   unjudged=len(case.loads) - len(runs))  # fmt: skip


def _scheduler(bench: HuntBench, directory: RunDir) -> Finding | None:
    """Return whether the scheduler was enabled until the loads ended; None without one."""
    if bench.scheduler is None:
        return None
    why = _end_of_scheduler(bench.scheduler, directory).reason.partition("\n")[0]
    text = why or f"{bench.scheduler.scheduler.spec.name} was enabled until the loads ended"
    return Finding(SCHEDULER, None, float(bool(why)), 0.0, text)


@dataclass(frozen=True)
class SchedulerEnd:
    """How a scheduler ended: the reason with messages, "" if it was enabled until the loads ended.

    `log` is what it printed. Both are from the guest.
    """

    reason: str
    log: str


def end_of_scheduler(case: Case, bench: HuntBench, seed: int) -> SchedulerEnd:
    """Boot a case with a scheduler and return how it ended. Raises GuestLost, other LabErrors."""
    assert bench.scheduler is not None
    with scratch_folder(cache_dir("boots"), "hunt-") as path:
        _run(case, bench, seed, RunDir(path))
        return _end_of_scheduler(bench.scheduler, RunDir(path))


def _end_of_scheduler(scheduler: SchedulerInGuest, directory: RunDir) -> SchedulerEnd:
    record, log, kernel_log = (
        left_by_guest(file).decode("utf-8", "replace")
        for file in (directory.scheduler, directory.scheduler_log, directory.dmesg)
    )
    name = scheduler.scheduler.spec.name
    return SchedulerEnd(explain_end(name, parse_record(record), log, kernel_log), log)


def _read_events(case: Case, directory: RunDir) -> pl.DataFrame:
    """Decode and read the recorded events.

    Raises HostError if they do not fit into memory, UserError if the recording is damaged or the
    kernel's events lack fields.
    """
    if faults := decode_guest(directory, case.machine).faults:
        raise UserError(f"no load can be judged: {faults[0]}")
    try:
        events = read_parquet(directory.events, _EVENTS_BYTES, _MOST_EVENTS)
    except ValueError as error:
        raise HostError(f"{directory.events}: {error}") from None
    if lacking := describe_lacking(lacking_fields(events)):
        raise UserError(f"no load can be judged: {'; '.join(lacking)}")
    return events


def _domains(differences: tuple[Difference, ...]) -> Finding:
    about = [str(item) for item in differences if item.part is MachinePart.DOMAINS]
    text = about[0] if about else "all as predicted"
    return Finding(DOMAINS, None, float(len(about)), 0.0, text)


def _splat(outcome: Outcome, directory: RunDir, differences: tuple[Difference, ...]) -> Finding:
    """Count the warnings in the kernel log, except the predicted ones about the machine."""
    lines = left_by_guest(directory.dmesg).decode("utf-8", "replace").splitlines()
    lines += [remark.text for remark in outcome.remarks if remark.kind is RemarkKind.COMPLAINT]
    # Warnings about the machine are compared with the prediction in `differences`.
    errors = [line for line in lines if is_report(line) or is_scheduler_error(line)]
    new = [line for line in errors if not is_warning_of_machine(line)]
    new += [str(item) for item in differences if item.part is MachinePart.WARNINGS]
    text = new[0][:300] if new else "no warning"
    return Finding(SPLAT, None, float(len(new)), 0.0, text)


def prepare_benches(
    specs: Sequence[KernelSpec],
    mode: str,
    connection: str = EMBED,
    on_progress: Progress | None = None,
    *,
    emulator: str | None = None,
    cold: bool = False,
    properties: frozenset[str] | None = None,
    scheduler: SchedulerSpec | None = None,
    watchdog: float = LONGEST_SECONDS,
) -> list[HuntBench]:
    """Return a bench for each kernel, all in one mode; build what the cache lacks.

    `emulator` names a QEMU to build, as for `choose_mode`. `cold` guests boot. None judges all
    `properties`. The first kernel has the `scheduler`, if any, whose tasks may wait for `watchdog`
    seconds until the kernel reports a stall.

    Raises BuildError, HostError or UserError.
    """
    builds = build(specs, load_recipe("base"), (), on_progress)
    builds = replace(builds, files=driver())
    choice = choose_mode(mode, builds, connection, on_progress, emulator=emulator)
    choice = replace(choice, cold=cold)
    first, *later = [
        HuntBench(spec, builds, choice, connection, properties=properties) for spec in specs
    ]
    if scheduler is not None:
        kernel = builds.kernels[first.kernel.name]
        built = ensure_scheduler(scheduler, first.kernel, kernel, on_progress or no_progress)
        shorter = ensure_watchdog(watchdog) if watchdog < LONGEST_SECONDS else None
        first = replace(first, scheduler=scheduler_in_guest(built, shorter))
    return [first, *later]


def bench_like(other: HuntBench, spec: KernelSpec, on_progress: Progress | None) -> HuntBench:
    """Return a bench for another kernel, in the mode of an existing bench."""
    builds: Builds = build([spec], load_recipe("base"), (), on_progress)
    choice: Choice = other.choice
    return HuntBench(spec, replace(builds, files=driver()), choice, other.connection)


def driver(*beside: Path) -> dict[str, dict[str, bytes]]:
    """Return the files of the driver in the guest, by its workload, with further C files."""
    return {WORKLOAD: build_workload(load_workload(WORKLOAD).file.parent, *beside)}
