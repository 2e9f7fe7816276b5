"""What guests say, hostile guests included."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import LossCause
from numalab.guest import console
from numalab.guest.console import (
    Beat,
    Follower,
    excerpt,
    is_panic,
    is_report,
    is_scheduler_error,
    is_trouble,
    parse_beat,
)
from numalab.guest.watch import Limits, Watchdog
from numalab.qemu.ending import Ending, Loss

PANIC = """\
[    1.000000] Run /usr/lib/numalab/init as init process
[    2.500000] sysrq: Trigger a crash
[    2.510000] Kernel panic - not syncing: sysrq triggered crash
[    2.520000] CPU: 1 UID: 0 PID: 79 Comm: sh Not tainted 6.12.0 #1
[    2.530000] ---[ end Kernel panic - not syncing: sysrq triggered crash ]---""".splitlines()


def test_a_beat() -> None:
    line = '{"phase": "collect", "uptime": 3.5, "status": 1, "message": "x"}'
    assert parse_beat(line) == Beat("collect", 3.5, 1, "x")
    assert parse_beat('{"phase": "boot", "uptime": 0}') == Beat("boot", 0.0)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "[]",
        "null",
        '"boot"',
        "[" * 60000,
        '{"phase": "boot"}',
        '{"phase": "boot", "uptime": "1"}',
        '{"phase": "boot", "uptime": true}',
        '{"phase": "boot", "uptime": NaN}',
        '{"phase": "boot", "uptime": -1}',
        '{"phase": "boot", "uptime": 1e400}',
        '{"phase": "boot", "uptime": ' + "9" * 5000 + "}",
        '{"phase": "nonsense", "uptime": 1}',
        '{"phase": ["boot"], "uptime": 1}',
        '{"phase": "boot", "uptime": 1, "status": 256}',
        '{"phase": "boot", "uptime": 1, "status": true}',
        '{"phase": "boot", "uptime": 1, "status": 1.5}',
        '{"phase": "boot", "uptime": 1, "message": 5}',
        '{"phase": "boot", "uptime": 1, "message": "' + "x" * 5000 + '"}',
        '{"phase": "boot", "uptime": 1, "path": "/etc/passwd"}',
        '{"phase": "boot", "uptime": 1, "message": "' + "x" * 70000 + '"}',
    ],
)
def test_what_is_not_a_beat(line: str) -> None:
    with pytest.raises(ValueError):
        parse_beat(line)


@given(st.text() | st.dictionaries(st.text(), st.integers() | st.text()).map(json.dumps))
def test_any_text_is_a_beat_or_a_value_error(line: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_beat(line).uptime >= 0


def test_lines_come_whole(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    follower = Follower(path)
    assert follower.lines() == []
    path.write_bytes(b"one\r\ntw")
    assert follower.lines() == ["one"]
    with path.open("ab") as file:
        file.write(b"o\nthr\xffee")
    assert follower.lines() == ["two"]
    assert follower.rest() == ["thr\ufffdee"]


def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_bytes(b"x" * (5 << 20) + b"\nnext\n")
    lines = Follower(path).rest()
    assert max(map(len, lines)) == console.LONGEST_LINE
    assert lines[-1] == "next"


def test_a_flooded_file_stays_bounded_and_keeps_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "LARGEST_FILE", 100_000)
    monkeypatch.setattr(console, "KEPT_OF_FLOOD", 1000)
    path = tmp_path / "console.log"
    follower = Follower(path)
    with path.open("ab") as file:
        for number in range(50):
            file.write(f"{number:02}{'x' * 9997}\n".encode())
            file.flush()
            follower.lines()
        file.write(b"the end\n")
    assert follower.rest() == ["the end"]
    assert path.stat().st_size < 120_000
    assert path.read_bytes().endswith(b"the end\n")
    assert follower.floods >= 1


def test_the_excerpt_begins_with_the_trouble() -> None:
    assert excerpt(PANIC).splitlines()[0] == PANIC[1]
    assert excerpt(["a", "b", "c"], 2) == "b\nc"


def test_an_excerpt_cannot_drive_the_terminal() -> None:
    assert excerpt(["\x1b[2J\x1b]0;owned\x07"]) == "?[2J?]0;owned?"


def test_only_the_kernel_panics() -> None:
    assert is_panic(PANIC[2])
    assert is_panic("Kernel panic - not syncing: early")
    assert not is_panic("[    1.0] echo Kernel panic - not syncing")


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: CPU: 1 PID: 41 at kernel/sched/fair.c:4711 enqueue_task_fair+0x12/0x300",
        "WARNING: kernel/sched/fair.c:4711 at enqueue_task_fair+0x12/0x300, CPU#1: hog/41",  # 7.3
        "WARNING: at enqueue_task_fair+0x12/0x300, CPU#1: kworker/1:1/41",
        "WARNING: possible circular locking dependency detected",
        "WARNING: suspicious RCU usage",
        "UBSAN: array-index-out-of-bounds in kernel/sched/topology.c:10:2",
        "kernel BUG at kernel/sched/core.c:12!",
        "Oops: general protection fault, probably for non-canonical address: 0000 [#1] SMP",
        "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [hog:31]",
        "watchdog: Watchdog detected hard LOCKUP on cpu 0",
        "watchdog: CPU0: Watchdog detected hard LOCKUP on cpu 0",  # 7.3
        "rcu: INFO: rcu_preempt self-detected stall on CPU",
        "INFO: task hog:41 blocked for more than 120 seconds.",
        "INFO: task hog:41 blocked in I/O wait for more than 120 seconds.",  # 7.3
    ],
)
def test_an_error_report_is_noticed(line: str) -> None:
    assert is_report(line)
    for stamp in ("", "[    3.141592] ", "[    3.141592][   T12] ", "<4>[    3.1] "):
        assert is_trouble(stamp + line)
    assert not is_trouble(f"[    3.1] sh[41] says {line}")


def test_what_ends_a_guest_is_trouble_and_no_report_of_a_defect() -> None:
    for line in (*PANIC[1:3], "[    2.1] Out of memory: Killed process 80 (tail)"):
        assert is_trouble(line) and not is_report(line)
    assert not is_trouble("[    2.1] rcu: Tasks-RCU CPU stall warnings timeout set to 600000")


@pytest.mark.parametrize(
    "line",
    [
        "psi: inconsistent task state! task=12:hog0.0 cpu=1 psi_flags=4 clear=0 set=4",
        "psi: task underflow! cpu=1 t=0 tasks=[0 0 0 0] clear=1 set=0",
        "bad: scheduling from the idle thread!",
        "sched: DL de-boosted task PID 7: REPLENISH flag missing",
    ],
)
def test_an_error_of_the_scheduler_is_no_report_of_all_kernels(line: str) -> None:
    for stamp in ("", "[    3.141592] ", "[    3.141592][   T12] ", "<3>[    3.1] "):
        assert is_scheduler_error(stamp + line) and not is_report(stamp + line)
    assert not is_scheduler_error(f"[    3.1] sh[41] says {line}")


def test_what_a_sound_scheduler_may_print_is_no_error() -> None:
    for text in ("DL replenish lagged too much", "RT throttling activated"):
        assert not is_scheduler_error(f"[    3.1] sched: {text}")
    assert not is_scheduler_error("[    3.1] psi: pressure stall information enabled")


def make_watchdog() -> Watchdog:
    return Watchdog(Limits(boot=10, silence=5, total=100), 1000.0)


def lost(reason: str) -> Loss:
    return Loss(LossCause.GUEST, reason)


def test_a_guest_that_never_speaks() -> None:
    dog = make_watchdog()
    assert dog.verdict(1009) is None
    assert dog.verdict(1011) == lost("the guest did not reach its init within 10 s")


def test_a_guest_that_falls_silent() -> None:
    dog = make_watchdog()
    dog.beat(Beat("workload", 3.2), 1004)
    assert dog.verdict(1008.9) is None
    reason = "the guest has been silent for 5 s (phase: workload, uptime 3 s)"
    assert dog.verdict(1009.1) == lost(reason)


def test_a_guest_that_takes_too_long() -> None:
    dog = make_watchdog()
    for now in range(1000, 1101):
        dog.beat(Beat("workload", 1.0), now)
    assert dog.verdict(1100) is None
    assert dog.verdict(1100.1) == lost(
        "the guest was not done after 100 s (phase: workload, uptime 1 s)"
    )


def test_a_guest_whose_own_time_runs_away() -> None:
    """One that waits for ever still beats, and in icount mode its hours pass in minutes."""
    dog = Watchdog(Limits(uptime=60).on_a_host(3.0), 1000.0)
    dog.beat(Beat("workload", 60.0), 1001)
    assert dog.verdict(1001) is None
    dog.beat(Beat("workload", 60.4), 1001)
    reason = "the guest was not done after 60 s of its own time (phase: workload, uptime 60 s)"
    assert dog.verdict(1001) == lost(reason)


def test_what_the_kernel_complains_about_is_kept() -> None:
    dog = make_watchdog()
    oom = "[    2.1] Out of memory: Killed process 80 (tail) total-vm:300000kB"
    for line in ["[    2.0] tail invoked oom-killer", oom, "[    2.2] all is well", "\x1b[2J"]:
        dog.console(line, 1002)
    assert dog.troubles == [oom]
    assert dog.verdict(1003) is None
    for _ in range(100):
        dog.console("[    3.0] WARNING: CPU: 1 PID: 1 at \x1b[2J", 1002)
    assert len(dog.troubles) == 5 and "\x1b" not in dog.troubles[1]


def test_a_machine_that_powers_off_may_warn_of_its_stopped_cpus() -> None:
    dog = make_watchdog()
    first, last = (f"[    7.{n}] WARNING: CPU: 4 PID: 35 at set_task_cpu" for n in (1, 9))
    for line in (first, "[    7.7] ACPI: reboot: Power down", "[    7.8] reboot: Power down", last):
        dog.console(line, 1002)
    assert dog.troubles == [first]


def test_complaints_that_a_quiet_console_lacks_are_in_the_log() -> None:
    dog = make_watchdog()
    on_both, quiet = (f"[    2.{tenth}] WARNING: CPU: 1 PID: 1 at here\x1b" for tenth in (1, 2))
    dog.console(on_both, 1002)
    dog.log(["[    2.0] all is well", on_both, quiet, quiet])
    assert dog.troubles == [line.replace("\x1b", "?") for line in (on_both, quiet)]
    dog.log(f"[    3.{tenth}] WARNING: at there" for tenth in range(9))
    assert len(dog.troubles) == 5


def test_a_gigabyte_without_a_line_break(tmp_path: Path) -> None:
    """The file is cut while it grows, and the end is what is left of it."""
    path = tmp_path / "console.log"
    follower = Follower(path)
    largest, mib = 0, b"x" * (1 << 20)
    with path.open("ab") as file:
        for _ in range(1024):
            file.write(mib)
            file.flush()
            assert follower.lines() == []
            largest = max(largest, path.stat().st_size)
        file.write(b"\nthe end\n")
    lines = follower.rest()
    assert [len(line) for line in lines] == [console.LONGEST_LINE, len("the end")]
    assert follower.floods > 50
    assert largest <= console.LARGEST_FILE + (2 << 20)
    assert path.read_bytes().endswith(b"x\nthe end\n")


def test_a_flood_that_came_while_nobody_looked_is_cut_at_once(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    follower = Follower(path)
    with path.open("wb") as file:
        file.truncate(10 << 30)
        file.seek(0, 2)
        file.write(b"\nthe end\n")
    lines = follower.lines()
    assert path.stat().st_size < 2 << 20
    assert [*lines, *follower.rest()][-1] == "the end"


def test_a_panic_is_read_to_its_end() -> None:
    dog = make_watchdog()
    dog.beat(Beat("workload", 1.0), 1001)
    for line in PANIC[:3]:
        dog.console(line, 1002)
    assert dog.verdict(1003) is None
    dog.console(PANIC[4], 1003)
    assert dog.verdict(1003) == lost("the guest's kernel panicked")
    assert dog.panic == PANIC[2]


def test_a_panic_without_an_end_is_waited_for_only_so_long() -> None:
    dog = make_watchdog()
    dog.console(PANIC[2], 1002)
    assert dog.verdict(1005.5) == lost("the guest's kernel panicked")


def test_a_flood_after_a_panic_does_not_push_it_out() -> None:
    dog = make_watchdog()
    for line in PANIC[:3] + ["noise"] * 10000:
        dog.console(line, 1002)
    assert PANIC[2] in dog.kept and len(dog.kept) <= 400


@pytest.mark.parametrize("before", [0, 399, 400, 5000])
def test_a_panic_is_kept_with_its_trace_after_any_number_of_lines(before: int) -> None:
    dog = make_watchdog()
    for line in ["[    1.0] all is well"] * before + PANIC[2:]:
        dog.console(line, 1002)
    assert excerpt(dog.kept).splitlines() == PANIC[2:]
    assert len(dog.kept) == min(before + 3, 400)


@pytest.mark.parametrize(
    ("ending", "cause"),
    [
        (Ending("off"), None),
        (Ending("rebooted"), LossCause.GUEST),
        (Ending("crashed"), LossCause.GUEST),
        (Ending("destroyed"), LossCause.HOST),
        (Ending("failed"), LossCause.HOST),
        (Ending("failed", signal=9), LossCause.HOST),
    ],
)
def test_whose_doing_a_loss_is(ending: Ending, cause: LossCause | None) -> None:
    loss = ending.loss()
    assert (loss and loss.cause) == cause


def test_a_signal_without_a_name_has_its_number() -> None:
    loss = Ending("failed", signal=40).loss()
    assert loss is not None and loss.reason == "QEMU was killed by signal 40"


def test_a_host_that_ran_out_of_memory_is_named() -> None:
    loss = Ending("failed", signal=9, oom_kill=True).loss()
    assert loss is not None and loss.cause is LossCause.HOST
    assert loss.reason.startswith("QEMU was killed by SIGKILL; the host, or the cgroup")
