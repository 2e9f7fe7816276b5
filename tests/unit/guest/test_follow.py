"""A guest is followed to its end: who is told what, when, and what a lost one had said."""

import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numalab.errors import HostError
from numalab.guest import follow as module
from numalab.guest.console import LARGEST_FILE, Beat
from numalab.guest.follow import End, follow
from numalab.guest.watch import Limits
from numalab.qemu.ending import Ending
from numalab.run_dir import RunDir

OFF = Ending("off")
Step = Callable[[], Ending | None]


class FakeGuest:
    """Does one step each time it is waited for, and notes when it is resumed."""

    def __init__(self, steps: list[Step], pid: int) -> None:
        self.pid = pid
        self.resumed = 0
        self.commands: list[str] = []
        self._steps = steps
        self.on_resume: Callable[[], None] = lambda: None

    def wait(self, _: float) -> Ending | None:
        return self._steps.pop(0)()

    def monitor(self, command: str) -> None:
        self.commands.append(command)
        raise HostError("QEMU's monitor did not answer")

    def resume(self) -> None:
        self.resumed += 1
        self.on_resume()


@pytest.fixture
def qemu() -> Iterator[int]:
    """A process whose limits may be changed."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path)


def said(path: Path, *lines: str, then: Ending | None = None) -> Step:
    def step() -> Ending | None:
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))
        return then

    return step


def beat(phase: str) -> str:
    return f'{{"phase": "{phase}", "uptime": 1}}'


def followed(
    guest: FakeGuest, run_dir: RunDir, limits: Limits | None = None, *, awake: bool = False
) -> tuple[End, list[str]]:
    """Follow; also return in order the beats that were seen and what the witness was told."""
    notices: list[str] = []
    witness = SimpleNamespace(
        workload_began=lambda: notices.append("began"),
        workload_ended=lambda: notices.append("ended"),
    )

    def on_beat(beat: Beat) -> None:
        notices.append(beat.phase)

    limits = limits or Limits()
    end = follow(cast(Any, guest), cast(Any, witness), run_dir, limits, on_beat, awake=awake)
    return end, notices


@pytest.mark.parametrize("awake", [True, False])
def test_qemu_is_woken_while_a_user_waits(run_dir: RunDir, qemu: int, awake: bool) -> None:
    """QEMU that does not answer is not the end: the watchdog decides."""
    quiet: Step = lambda: time.sleep(1.1)  # noqa: E731
    guest = FakeGuest([quiet, quiet, said(run_dir.heartbeat, then=OFF)], qemu)
    end, _ = followed(guest, run_dir, awake=awake)
    assert end.loss is None
    assert guest.commands == (["query-status"] * 2 if awake else [])


def test_the_witness_looks_while_qemu_is_there(run_dir: RunDir, qemu: int) -> None:
    beats = run_dir.heartbeat
    steps = [
        said(beats, beat("boot")),
        said(beats, beat("workload")),
        said(beats),
        said(beats, beat("collect")),
        said(beats, beat("done"), then=OFF),
    ]
    end, notices = followed(FakeGuest(steps, qemu), run_dir)
    assert end.loss is None and end.watchdog.bad_beats == 0
    assert notices == ["boot", "workload", "began", "began", "collect", "began", "ended", "done"]


def test_phases_are_timed_by_the_hosts_clock(
    run_dir: RunDir, qemu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guest's stands while QEMU has no CPU of the host; the last phase would get the rest."""
    monkeypatch.setattr(module, "waited_for_a_cpu", lambda _: 1e6)
    began = time.monotonic()
    steps = [said(run_dir.heartbeat, beat(phase)) for phase in ("boot", "workload")]
    end, _ = followed(FakeGuest([*steps, said(run_dir.heartbeat, then=OFF)], qemu), run_dir)
    boot, workload = end.phase_began["boot"], end.phase_began["workload"]
    assert began <= boot <= workload <= time.monotonic()
    assert list(end.phase_began) == ["boot", "workload"]


def test_what_comes_with_the_end_is_read_but_nobody_looks_any_more(
    run_dir: RunDir, qemu: int
) -> None:
    steps = [
        said(run_dir.console, "half a "),
        lambda: cut_short(run_dir.heartbeat, beat("workload"), beat("collect"), beat("done")),
    ]

    def cut_short(path: Path, *lines: str) -> Ending:
        path.write_text("\n".join(lines))
        return OFF

    end, notices = followed(FakeGuest(steps, qemu), run_dir)
    assert notices == ["workload", "collect", "done"]
    assert list(end.watchdog.kept) == ["half a "]


def test_a_line_that_is_no_beat_is_counted(run_dir: RunDir, qemu: int) -> None:
    steps = [said(run_dir.heartbeat, "{", beat("boot")), said(run_dir.heartbeat, then=OFF)]
    end, notices = followed(FakeGuest(steps, qemu), run_dir)
    assert (end.watchdog.bad_beats, notices) == (1, ["boot"])


def test_a_limit_ends_it_while_qemu_runs(run_dir: RunDir, qemu: int) -> None:
    def late() -> None:
        time.sleep(0.05)

    guest = FakeGuest([late], qemu)
    end, _ = followed(guest, run_dir, Limits(total=0.01))
    assert end.loss is not None and "was not done after 0 s" in end.loss.reason
    assert guest.resumed == 0


def test_time_without_a_cpu_of_the_host_is_no_silence(
    run_dir: RunDir, qemu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = iter([0.0, 500.0, 1500.0, 1500.0])
    clock = FakeTime(lambda: None)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "waited_for_a_cpu", lambda pid: next(waited))
    steps: list[Step] = [
        lambda: clock.sleep(500),  # none of it is its own
        lambda: clock.sleep(1100),  # 100 s of it are
        lambda: clock.sleep(100),
    ]
    guest = FakeGuest(steps, qemu)
    end, _ = followed(guest, run_dir, Limits(boot=150))
    assert end.loss is not None and "did not reach its init within 150 s" in end.loss.reason
    assert not steps


@dataclass
class FakeTime:
    """A clock that only sleeping moves on; `on_sleep` is what happens meanwhile."""

    on_sleep: Callable[[], object]
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.on_sleep()


def test_a_kernel_that_panicked_may_print_what_happened(
    run_dir: RunDir, qemu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pvpanic stopped the guest before its kernel had flushed its console."""
    guest = FakeGuest([lambda: Ending("crashed")], qemu)
    panic = "[    1.000000] Kernel panic - not syncing: why"
    lines = [panic, f"[    1.100000] ---[ end {panic[15:]} ]---"]

    def prints() -> None:
        if lines:
            said(run_dir.console, lines.pop(0))()

    clock = FakeTime(prints)
    monkeypatch.setattr(module, "time", clock)
    end, _ = followed(guest, run_dir)
    assert guest.resumed == 1 and not lines
    assert end.loss is not None and end.watchdog.panic == panic
    assert clock.now < 101, "it had said all"


def test_a_kernel_that_says_nothing_more_is_not_waited_for(
    run_dir: RunDir, qemu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeTime(lambda: None)
    monkeypatch.setattr(module, "time", clock)
    end, _ = followed(FakeGuest([lambda: Ending("crashed")], qemu), run_dir)
    assert end.loss is not None and end.loss.reason == "the guest's kernel panicked"
    assert 103 <= clock.now < 104


def test_what_floods_is_cut_and_counted(run_dir: RunDir, qemu: int) -> None:
    def flood() -> None:
        with run_dir.console.open("wb") as file:
            file.truncate(LARGEST_FILE + 1)

    end, _ = followed(FakeGuest([flood, lambda: OFF], qemu), run_dir)
    assert end.floods == 1
    assert run_dir.console.stat().st_size < LARGEST_FILE
    # Even while nobody cuts it, no file of QEMU's grows without end.
    assert resource.prlimit(qemu, resource.RLIMIT_FSIZE)[0] == 4 * LARGEST_FILE


def blocks(free: int, count: int = 99) -> SimpleNamespace:
    """Make what statvfs(2) says of a disk whose last blocks are for root."""
    return SimpleNamespace(f_blocks=count, f_bfree=free, f_bavail=0, f_frsize=4096)


def test_a_file_system_without_a_size_is_never_full(
    run_dir: RunDir, qemu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: blocks(free=0, count=0))
    assert followed(FakeGuest([lambda: OFF], qemu), run_dir)


def test_a_full_disk_is_an_error_of_the_host(
    run_dir: RunDir, qemu: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: blocks(free=0))
    with pytest.raises(HostError, match="no space left for"):
        followed(FakeGuest([lambda: OFF], qemu), run_dir)


@pytest.mark.parametrize("user", [0, 1000])
def test_the_last_blocks_of_a_disk_are_roots(
    run_dir: RunDir, qemu: int, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: blocks(free=9))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    refused = pytest.raises(HostError) if user else nullcontext()
    with refused:
        followed(FakeGuest([lambda: OFF], qemu), run_dir)
