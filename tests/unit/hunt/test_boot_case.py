"""What a boot of a case gives: verdicts about the guest, and errors that are none of its doing."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import polars as pl
import pytest

from numalab.capture.decode import Decoded
from numalab.emulator.emulator_artifact import BuiltEmulator
from numalab.errors import GuestLost, HostBusy, HostError, LossCause
from numalab.guest.kvm import Choice
from numalab.guest.run import Remark, RemarkKind
from numalab.hunt import boot_case as module
from numalab.hunt.boot_case import WORKLOAD, HuntBench, boot_case
from numalab.hunt.case import Case
from numalab.hunt.finding import BootResult
from numalab.hunt.property import DOMAINS, DRIVER, LOST, SCHEDULER, SPLAT
from numalab.machine.model import Job, Machine
from numalab.run_dir import RunDir
from numalab.topology.differences import Difference, MachinePart
from numalab.topology.guest_view import GuestView, parse_guest_view
from numalab.topology.predict.groups import Construction
from numalab.topology.topology import Topology

BENCH = cast(
    HuntBench,
    SimpleNamespace(
        kernel=SimpleNamespace(name="k", groups=Construction.NOW),
        builds=SimpleNamespace(files={WORKLOAD: {}}),
        choice=Choice("icount", "host", ""),
        varies_boot=False,
        reach=None,
        calls=None,
        connection="",
        host_cpus=(),
        wall=60.0,
        selected=frozenset(),
        scheduler=None,
    ),
)
DIFFERENT = (
    Difference("CPU 0, sched domains", "MC", "none", MachinePart.DOMAINS),
    Difference("CPU 1, sched domains", "MC", "none", MachinePart.DOMAINS),
    Difference("kernel log", "no warning", "a warning", MachinePart.WARNINGS),
    Difference("node 0, memory", "1 MiB", "2 MiB"),
)
REBUILT = (
    "Linux version 6.12.1\nRun /init as init process\nCPU0 attaching sched-domain(s):\n"
    " domain-0: span=0-1 level=MC\n  groups: 0:{ span=0 }, 1:{ span=1 }\n"
)
Boot = Callable[[RunDir], SimpleNamespace]


@pytest.fixture
def boots(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., BootResult]:
    """Examine the case with a guest that `boot` plays."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))

    def result(
        boot: Boot, differences: tuple[Difference, ...] = (), bench: HuntBench = BENCH
    ) -> BootResult:
        def run_guest(_machine: Machine, _job: Job, run_dir: RunDir, **_: Any) -> SimpleNamespace:
            run_dir.out.mkdir(parents=True, exist_ok=True)
            for left in (run_dir.stdout, run_dir.stderr, run_dir.dmesg):
                left.write_bytes(b"")
            return boot(run_dir)

        def check_topology(
            _topology: Topology,
            _kernel: object,
            view: GuestView,
            *,
            qemu: tuple[int, ...],
            **_: Any,
        ) -> tuple[Difference, ...]:
            assert qemu == (7, 2)
            assert view.sched_log.cpus and view.boot_log is None  # the build of the loads
            return differences

        monkeypatch.setattr(
            module, "guest", lambda topology, *_args, **_more: machine_of(topology, tmp_path)
        )
        monkeypatch.setattr(module, "run_guest", run_guest)
        monkeypatch.setattr(module, "read_guest_view", lambda _: parse_guest_view({}, "", REBUILT))
        monkeypatch.setattr(module, "check_topology", check_topology)
        monkeypatch.setattr(module, "decode_guest", decode_guest)
        monkeypatch.setattr(module, "read_loads", lambda *_, **_more: ())
        monkeypatch.setattr("time.sleep", lambda _: None)
        return boot_case(case, bench, 1)

    return result


@pytest.fixture
def case(drawn_case: Case) -> Case:
    return drawn_case.only(drawn_case.loads[0])


def machine_of(topology: Any, folder: Path) -> Machine:
    return Machine(topology, folder / "bzImage", folder / "root", "icount", 1, "m")


def ended(status: int = 0, *complaints: str) -> SimpleNamespace:
    remarks = Remark.of_texts(RemarkKind.COMPLAINT, complaints)
    return SimpleNamespace(status=status, remarks=tuple(remarks), versions={"qemu": "7.2.22"})


def values(result: BootResult) -> dict[str, float]:
    return {finding.prop: finding.value for finding in result.findings}


def test_a_guest_that_ends_well_violates_nothing(boots: Callable[..., BootResult]) -> None:
    result = boots(lambda _: ended())
    assert values(result) == {LOST: 0.0, DRIVER: 0.0, DOMAINS: 0.0, SPLAT: 0.0}
    assert not result.error


def test_domains_and_warnings_are_counted_apart(boots: Callable[..., BootResult]) -> None:
    def noisy(run_dir: RunDir) -> SimpleNamespace:
        run_dir.dmesg.write_text(
            "[1] WARNING: CPU: 0 at kernel/sched/fair.c:1\n[2] all is well\n"
            "[3] WARNING: CPU: 0 at kernel/sched/topology.c:9\n"  # what `differences` is about
            "[    4.000000] bad: scheduling from the idle thread!\n"
        )
        return ended(0, "BUG: unable to handle", "something else")

    result = boots(noisy, DIFFERENT)
    assert values(result) == {LOST: 0.0, DRIVER: 0.0, DOMAINS: 2.0, SPLAT: 4.0}
    texts = {finding.prop: finding.text for finding in result.findings}
    assert texts[DOMAINS] == "CPU 0, sched domains: expected MC, found none"
    assert texts[SPLAT] == "[1] WARNING: CPU: 0 at kernel/sched/fair.c:1"


def test_predicted_warnings_about_siblings_are_no_splat(
    boots: Callable[..., BootResult],
) -> None:
    def noisy(run_dir: RunDir) -> SimpleNamespace:
        run_dir.dmesg.write_text(
            "[1] WARNING: at topology_sane.isra.0+0x37/0x59, CPU#1: swapper/1/0\n"
            "[1] WARNING: at set_cpu_sibling_map+0x393/0x6bd, CPU#1: swapper/1/0\n"
            "[1] WARNING: CPU: 0 PID: 1 at build_balance_mask+0x1/0x2\n"
            "[2] WARNING: at native_cpu_disable+0x1/0x2, CPU#1: swapper/1/0\n"
        )
        return ended(0, "the guest's kernel complained: WARNING: at topology_sane.isra.0+0x37/0x59")

    (splat,) = (finding for finding in boots(noisy).findings if finding.prop == SPLAT)
    assert splat.text.startswith("[2] WARNING: at native_cpu_disable") and splat.value == 1.0


def decode_guest(
    directory: RunDir, _: Any, events: pl.DataFrame | None = None, **counts: Any
) -> Decoded:
    (pl.DataFrame() if events is None else events).write_parquet(directory.events)
    return Decoded(**counts)


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ({"problems": ("CPU 1: 9 events dropped for lack of room",)}, "CPU 1: 9 events dropped"),
        ({"unsound": 2}, "2 pages are damaged, 0 records fit no event format"),
    ],
)
def test_a_damaged_recording_is_not_judged(
    boots: Callable[..., BootResult],
    monkeypatch: pytest.MonkeyPatch,
    counts: dict[str, Any],
    reason: str,
) -> None:
    def boot(run_dir: RunDir) -> SimpleNamespace:
        run_dir.dmesg.write_text("[1] WARNING: CPU: 0 at kernel/sched/fair.c:1\n")
        monkeypatch.setattr(module, "decode_guest", partial(decode_guest, **counts))
        return ended()

    result = boots(boot)
    assert result.error.startswith(f"no load can be judged: {reason}") and result.unjudged == 1
    # What does not come from it is.
    assert values(result) == {LOST: 0.0, DRIVER: 0.0, DOMAINS: 0.0, SPLAT: 1.0}


def test_a_kernel_whose_events_lack_fields_is_not_judged(
    boots: Callable[..., BootResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = pl.DataFrame({"event": ["sched_migrate_task"], "event_pid": [1], "event_comm": ["a"],
                            "src_cpu": [0], "dst_cpu": [1]})  # fmt: skip

    def boot(_: RunDir) -> SimpleNamespace:
        monkeypatch.setattr(module, "decode_guest", partial(decode_guest, events=renamed))
        return ended()

    result = boots(boot)
    fields = "sched_migrate_task has no field orig_cpu, dest_cpu: nothing is measured by it"
    assert result.error == f"no load can be judged: {fields}"


def raising(error: Exception) -> Boot:
    def boot(_: RunDir) -> SimpleNamespace:
        raise error

    return boot


def test_a_guest_that_is_lost_violates_a_property(boots: Callable[..., BootResult]) -> None:
    result = boots(raising(GuestLost("it panicked", kept=Path("/gone"))))
    assert values(result) == {LOST: 1.0}
    assert result.findings[0].violated and result.findings[0].text == "it panicked"
    assert not result.error


def test_what_the_host_took_away_is_no_verdict(boots: Callable[..., BootResult]) -> None:
    result = boots(raising(GuestLost("QEMU was killed", cause=LossCause.HOST)))
    assert not result.findings and result.error == "QEMU was killed"
    result = boots(raising(HostError("no memory")))
    assert not result.findings and result.error == "no memory"


def test_a_driver_that_fails_counts_beside_a_reference_kernel_only(
    boots: Callable[..., BootResult],
) -> None:
    def boot(run_dir: RunDir) -> SimpleNamespace:
        run_dir.stderr.write_text("hunt: no cpuset")
        return ended(1)

    result = boots(boot)
    assert values(result) == {DRIVER: 1.0}
    (finding,) = result.findings
    assert finding.weak and finding.text == "the driver ended with 1: hunt: no cpuset"


def test_loads_that_do_not_start_or_lose_a_task_are_told_and_the_others_are_judged(
    boots: Callable[..., BootResult],
) -> None:
    def boot(run_dir: RunDir) -> SimpleNamespace:
        run_dir.stdout.write_text(
            "load 3 part 1 does not start\nload 3 part 1 does not start at all\n"
            "load 5 part 0 does not start\nload 6 part 2 ended by signal 11\nloads 7 done\n"
        )
        return ended()

    result = boots(boot)
    assert values(result) == {LOST: 0.0, DRIVER: 3.0, DOMAINS: 0.0, SPLAT: 0.0}
    driven = next(finding for finding in result.findings if finding.prop == DRIVER)
    assert driven.text == (
        "load 3: part 1 does not start; load 5: part 0 does not start;"
        " load 6: part 2: a task ended by signal 11"
    )
    assert driven.weak and driven.violated


def test_a_busy_host_is_waited_for(boots: Callable[..., BootResult]) -> None:
    answers: list[Exception | None] = [HostBusy("others"), HostBusy("others"), None]

    def boot(_: RunDir) -> SimpleNamespace:
        if (error := answers.pop(0)) is not None:
            raise error
        return ended()

    assert values(boots(boot))[LOST] == 0.0 and not answers


def test_nothing_is_left_behind(boots: Callable[..., BootResult], tmp_path: Path) -> None:
    boots(lambda _: ended())
    assert not list((tmp_path / "boots").iterdir())


def test_a_boot_may_take_several_times_the_time_of_its_loads(case: Case) -> None:
    loads = sum(load.ms for load in case.loads) / 1000
    assert module._most_seconds(case) == 120 + 10 * len(case.loads) + 5 * loads


def under_a_scheduler() -> HuntBench:
    """A bench with a scheduler (sched_ext)."""
    spec = SimpleNamespace(spec=SimpleNamespace(name="scx_s"))
    scheduler = SimpleNamespace(scheduler=spec, files={"x": b""}, around=lambda argv: argv)
    return bench_with(scheduler=scheduler)


@pytest.mark.parametrize(
    ("record", "violated", "text"),
    [
        ("enabled 1\nops s\nend_state enabled\nend_ops s\n", 0.0, "scx_s was enabled until"),
        ("enabled 1\nops s\nend_state disabled\n", 1.0, "scx_s was disabled while"),
        ("exit_status 1\n", 1.0, "scx_s did not start and exited with status 1"),
        ("", 1.0, "the guest left no record"),
    ],
)
def test_a_scheduler_stays_enabled_until_the_loads_end(
    boots: Callable[..., BootResult], record: str, violated: float, text: str
) -> None:
    def boot(run_dir: RunDir) -> SimpleNamespace:
        run_dir.scheduler.write_text(record)
        run_dir.scheduler_log.write_text("")
        return ended(143 if violated else 0)

    result = boots(boot, (), under_a_scheduler())
    assert not result.error
    finding = result.of(SCHEDULER, None)
    assert finding is not None
    assert finding.value == violated
    assert finding.text.startswith(text)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[Machine, Job]]:
    """The guests that boots of cases ask for; the host loses each."""
    guests: list[tuple[Machine, Job]] = []

    def lost(machine: Machine, job: Job, *_: Any, **__: Any) -> SimpleNamespace:
        guests.append((machine, job))
        raise GuestLost("QEMU was killed", cause=LossCause.HOST)

    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path))
    monkeypatch.setattr(
        module, "guest", lambda topology, *_args, **_more: machine_of(topology, tmp_path)
    )
    monkeypatch.setattr(module, "run_guest", lost)
    return guests


def bench_with(**changes: object) -> HuntBench:
    return cast(HuntBench, SimpleNamespace(**{**vars(BENCH), **changes}))


def test_a_boot_that_confirms_has_a_command_line_of_its_seed(
    case: Case, asked: list[tuple[Machine, Job]]
) -> None:
    usual, varied = (bench_with(varies_boot=varies) for varies in (False, True))
    for bench, seed in ((usual, 1), (usual, 2), (varied, 1), (varied, 2), (varied, 1)):
        boot_case(case, bench, seed)
    lines = [machine.extra_cmdline for machine, _ in asked]
    assert lines[0] == lines[1] == ()
    assert lines[2] == lines[4] != lines[3]


def test_a_driver_is_warned_of_emulators_on_which_cpus_wait_long(
    case: Case, tmp_path: Path, asked: list[tuple[Machine, Job]]
) -> None:
    own = cast(BuiltEmulator, SimpleNamespace(program=tmp_path))
    for emulator in (None, own):
        boot_case(case, bench_with(choice=Choice("icount", "host", "", emulator)), 1)
    words = [job.argv for _, job in asked]
    assert words[0] == ("env", "LONG_TURNS=1", *words[1])
