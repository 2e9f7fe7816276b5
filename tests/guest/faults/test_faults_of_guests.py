"""Guests that misbehave: the right error, everything kept, nothing left running."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.capture.counters import parse_trace_stats
from numalab.capture.decode import decode_trace
from numalab.guest.run import run_guest
from numalab.guest.watch import Limits
from numalab.machine.model import Job
from numalab.qemu.collect import read_job_disk
from numalab.run_dir import RunDir
from support.guest_faults import BUSY, EVENTS, MARK, lose, trace_text
from support.guest_types import LIMITS, Boot, MakeMachine

PROVOKE = "/sys/kernel/debug/provoke-crash/DIRECT"


def test_a_panic_keeps_the_trace_up_to_it(make_machine: MakeMachine, tmp_path: Path) -> None:
    """pvpanic tells of it; a second guest reads the trace memory."""
    machine = make_machine()
    run_dir = RunDir(tmp_path / "run")
    script = f"echo early; {MARK} 'numalab: before the panic'; echo c >/proc/sysrq-trigger"
    lost = lose(machine, script, run_dir)
    assert lost.reason.startswith("the guest's kernel panicked: ")
    assert lost.trace == run_dir.trace.relative_to(run_dir.path)
    assert "Kernel panic - not syncing: sysrq triggered crash" in lost.tail
    text = trace_text(run_dir)
    assert "numalab: before the panic" in text and "sched_switch" in text
    assert run_dir.trace_memory.stat().st_size == 32 << 20
    assert (run_dir.out / "stdout").read_text() == "early\n"
    assert not run_dir.rescue.path.exists()
    # As far as it goes, it is decoded like any other, and how much is lost is not known.
    assert decode_trace(run_dir.trace, machine.topology, run_dir.events).counts["sched_switch"]
    # A lost guest's disk can be read again.
    assert read_job_disk(run_dir.job_disk, tmp_path / "again").files["stdout"] == 6


def test_a_panic_that_only_the_console_tells_of(make_machine: MakeMachine, tmp_path: Path) -> None:
    """An oops is a panic, its first lines come first, and no pvpanic is needed to see it."""
    deaf = "initcall_blacklist=pvpanic_mmio_driver_init,pvpanic_pci_driver_init"
    machine = replace(make_machine(), trace_memory_mib=0, extra_cmdline=(deaf,))
    lost = lose(machine, f"echo EXCEPTION >{PROVOKE}; {BUSY}", RunDir(tmp_path / "run"))
    assert "Kernel panic - not syncing: Fatal exception" in lost.reason
    assert "BUG: kernel NULL pointer dereference" in lost.tail.splitlines()[0]
    assert "Oops" in lost.tail


def test_a_soft_lockup(make_machine: MakeMachine, tmp_path: Path) -> None:
    # A CPU that executes less in a second locks up for fewer instructions.
    machine = replace(make_machine(), trace_memory_mib=0, icount_shift=7)
    sysctl = "/proc/sys/kernel"
    job = Job(
        ("sh", "-c", f"echo SOFTLOCKUP >{PROVOKE}"),
        tunables={f"{sysctl}/watchdog_thresh": "1", f"{sysctl}/softlockup_panic": "1"},
    )
    lost = lose(machine, job, RunDir(tmp_path / "run"))
    assert "Kernel panic - not syncing: softlockup: hung tasks" in lost.reason
    assert "watchdog: BUG: soft lockup - CPU#" in lost.tail.splitlines()[0]


def test_a_hang_of_the_workload_is_noticed_by_its_silence(
    make_machine: MakeMachine, tmp_path: Path
) -> None:
    run_dir = RunDir(tmp_path / "run")
    script = f"{MARK} 'numalab: before the hang'; kill -STOP $(pidof numalab-beat); {BUSY}"
    lost = lose(make_machine(), script, run_dir, Limits(boot=120, silence=8, total=400))
    assert lost.reason.startswith("the guest has been silent for 8 s (phase: workload")
    assert "numalab: before the hang" in trace_text(run_dir)


def test_a_hang_of_the_boot(make_machine: MakeMachine, tmp_path: Path) -> None:
    # cat waits for ever for somebody to type on the console.
    machine = replace(make_machine(), extra_cmdline=("init=/usr/bin/cat",))
    limits = Limits(boot=12, silence=120, total=400)
    lost = lose(machine, "true", RunDir(tmp_path / "run"), limits)
    assert lost.reason.startswith("the guest did not reach its init within 12 s")
    assert lost.note == "the guest was lost before the recording began"


def test_a_guest_that_never_ends(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = replace(make_machine(), trace_memory_mib=0)
    lost = lose(machine, BUSY, RunDir(tmp_path / "run"), Limits(120, 120, total=12))
    assert lost.reason.startswith("the guest was not done after 12 s")


def test_a_kernel_that_never_reaches_its_init(make_machine: MakeMachine, tmp_path: Path) -> None:
    machine = replace(make_machine(), extra_cmdline=("init=/no/such/init",))
    lost = lose(machine, "true", RunDir(tmp_path / "run"))
    assert "Requested init /no/such/init failed" in lost.reason
    assert lost.note == "the guest was lost before the recording began"


@pytest.mark.parametrize(
    ("letter", "reason"),
    [("o", "the guest powered off before its command had ended"), ("b", "the guest rebooted")],
)
def test_a_guest_that_goes_off_or_reboots(
    make_machine: MakeMachine, tmp_path: Path, letter: str, reason: str
) -> None:
    """One that would reboot for ever is ended at the first time."""
    machine = replace(make_machine(), trace_memory_mib=0)
    script = f"echo {letter} >/proc/sysrq-trigger; {BUSY}"
    lost = lose(machine, script, RunDir(tmp_path / "run"))
    assert lost.reason.startswith(reason)


def test_out_of_memory(boot: Boot, make_machine: MakeMachine) -> None:
    """The kernel kills what took the memory: the run ends, with a reason beside its status."""
    machine = replace(make_machine(), trace_memory_mib=0, extra_cmdline=("mem=256M",))
    outcome, run_dir = boot("sh", "-c", "tail /dev/zero", machine=machine)
    assert outcome.status == 137
    assert "Killed" in (run_dir.out / "stderr").read_text()
    complaint = "the guest's kernel complained: [^:]*Out of memory: Killed process .*tail"
    assert any(re.search(complaint, note) for note in outcome.notes)


@pytest.mark.parametrize("words", [(), ("quiet",)])
def test_a_complaint_is_told_once(
    boot: Boot, make_machine: MakeMachine, words: tuple[str, ...]
) -> None:
    """A quiet kernel prints warnings to its log alone."""
    machine = replace(make_machine(), trace_memory_mib=0, extra_cmdline=words)
    outcome, run_dir = boot(
        "sh", "-c", "echo 'WARNING: CPU: 0 at here' >/dev/kmsg", machine=machine
    )
    assert ("at here" in run_dir.console.read_text()) == (not words)
    assert [note.rpartition("] ")[2] for note in outcome.notes if "complained" in note] == [
        "WARNING: CPU: 0 at here"
    ]


def test_a_trace_buffer_that_overflows(make_machine: MakeMachine, tmp_path: Path) -> None:
    """The oldest events are lost, they are counted, and the rest is whole."""
    machine = replace(make_machine(), trace_memory_mib=1)
    script = f"{MARK} first; perf bench sched pipe -l 4000 >/dev/null; {MARK} last"
    run_dir = RunDir(tmp_path / "run")
    on_one_cpu = ("taskset", "-c", "1", "sh", "-c", script)  # each CPU has a buffer
    run_guest(machine, Job(on_one_cpu, events=EVENTS), run_dir, limits=LIMITS)
    assert sum(stats.overrun for stats in parse_trace_stats(run_dir.trace_stats.read_text())) > 1000
    text = trace_text(run_dir)
    assert " last" in text and " first" not in text
    decoded = decode_trace(run_dir.trace, machine.topology, run_dir.events)
    assert decoded.counts["sched_switch"] > 1000


def test_a_full_job_disk(boot: Boot, make_machine: MakeMachine) -> None:
    machine = replace(make_machine(), job_disk_mib=8, trace_memory_mib=0)
    outcome, run_dir = boot("sh", "-c", "dd if=/dev/zero bs=64k; exit 7", machine=machine)
    assert outcome.status == 7
    assert (run_dir.out / "stdout").stat().st_size > 4 << 20
