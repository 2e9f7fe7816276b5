"""Real guests: what was asked for is what runs, in every mode."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.capture.counters import parse_trace_stats
from numalab.capture.decode import decode_trace
from numalab.errors import WorkloadFailed
from numalab.guest.console import Beat
from numalab.guest.kvm import pick_mode
from numalab.guest.run import run_guest
from numalab.guest.start import prepare, started
from numalab.guest.verdicts import unusable_device
from numalab.machine.model import Job
from numalab.qemu.hypervisor import connect
from numalab.run_dir import RunDir
from support.guest_types import LIMITS, Boot, MakeMachine


def test_the_guest_sees_the_topologys_distances(boot: Boot, make_machine: MakeMachine) -> None:
    machine = make_machine("ring-4", mode="tcg")
    outcome, run_dir = boot("numactl", "-H", machine=machine)
    assert outcome.status == 0
    lines = (run_dir.out / "stdout").read_text().splitlines()
    table = lines[lines.index("node distances:") + 2 :]
    rows = [tuple(map(int, line.partition(":")[2].split())) for line in table]
    assert tuple(filter(None, rows)) == machine.topology.distances
    for node in machine.topology.nodes:
        assert f"node {node.id} cpus: {' '.join(map(str, node.cpus))}" in lines
    assert [proof.node for proof in outcome.proof.memory] == [0, 1, 2, 3]
    # The pages that QEMU has touched: a guest that continues touches fewer than one that boots.
    assert all(sum(proof.pages.values()) > 100 for proof in outcome.proof.memory)


def test_what_the_command_does_comes_back(boot: Boot, make_machine: MakeMachine) -> None:
    script = "echo out; echo err >&2; cat /job/files/deep/x; exit 3"
    outcome, run_dir = boot("sh", "-c", script, events=("sched:sched_switch",))
    assert outcome.status == 3
    assert (run_dir.out / "stdout").read_text() == "out\n"
    assert "err\n" in (run_dir.out / "stderr").read_text()
    assert run_dir.trace.stat().st_size > 100_000
    assert not run_dir.job_disk.exists() and not run_dir.trace_memory.exists()
    assert list(outcome.wall_seconds)[:3] == ["prepare", "start", "boot"]
    assert "Run /usr/lib/numalab/init as init process" in run_dir.console.read_text()


def test_threads_are_where_the_plan_put_them(boot: Boot, make_machine: MakeMachine) -> None:
    last = max(os.sched_getaffinity(0))
    outcome, _ = boot("true", machine=replace(make_machine(mode="tcg"), host_cpus=(last,)))
    threads = {thread.role: thread for thread in outcome.proof.threads}
    assert "vcpu 0-3" in threads  # one thread for all of them, as docs/decisions has it
    assert all(thread.allowed == (last,) for thread in threads.values())
    assert "all 4 vCPUs share one thread" in outcome.notes[0]


def test_a_job_reaches_the_guest_whole(make_machine: MakeMachine, tmp_path: Path) -> None:
    beats: list[Beat] = []
    job = Job(
        ("sh", "-c", 'echo "$WORD"; cat /job/files/data; cat /proc/sys/kernel/numa_balancing'),
        env={"WORD": 'it\'s $HOME "quoted"'},
        tunables={"/proc/sys/kernel/numa_balancing": "0"},
        files={"data": b"file\n"},
    )
    run_dir = RunDir(tmp_path / "run")
    outcome = run_guest(make_machine(), job, run_dir, limits=LIMITS, on_beat=beats.append)
    assert (run_dir.out / "stdout").read_text() == 'it\'s $HOME "quoted"\nfile\n0\n'
    phases = list(dict.fromkeys(beat.phase for beat in beats))
    assert phases == ["boot", "held", "setup", "workload", "collect", "done"]
    assert (outcome.status, outcome.guest_seconds) == (0, beats[-1].uptime)


def test_a_tunable_that_the_kernel_lacks(make_machine: MakeMachine, tmp_path: Path) -> None:
    job = Job(("true",), tunables={"/proc/sys/kernel/no_such_thing": "1"})
    with pytest.raises(WorkloadFailed, match="no tunable /proc/sys/kernel/no_such_thing"):
        run_guest(make_machine(), job, RunDir(tmp_path / "run"), limits=LIMITS)


def test_a_node_without_memory(boot: Boot, make_machine: MakeMachine) -> None:
    _, run_dir = boot("numactl", "-H", machine=make_machine("memoryless-4"))
    lines = (run_dir.out / "stdout").read_text().splitlines()
    assert "node 2 size: 0 MB" in lines
    assert "node 2 cpus: 4 5" in lines


def test_icount_repeats_itself_and_the_seed_matters(boot: Boot, make_machine: MakeMachine) -> None:
    command = ("cat", "/proc/self/maps", "/proc/uptime", "/proc/sys/kernel/random/uuid")
    runs = [
        boot(
            *command, machine=make_machine(mode="icount", seed=seed), events=("sched:sched_switch",)
        )
        for seed in (7, 7, 8)
    ]
    first, again, other = (read_out(run_dir) for _, run_dir in runs)
    assert first.keys() == again.keys() and "trace.dat" in first
    assert [name for name in first if first[name] != again[name]] == []
    assert first["stdout"] != other["stdout"]
    allowed = {thread.allowed for thread in runs[0][0].proof.threads}
    assert len(allowed) == 1 and len(allowed.pop()) == 1


def read_out(run_dir: RunDir) -> dict[str, bytes]:
    files = (path for path in run_dir.out.rglob("*") if path.is_file())
    return {str(path.relative_to(run_dir.out)): path.read_bytes() for path in files}


def test_auto_ends_in_a_mode_that_works_and_says_why(make_machine: MakeMachine) -> None:
    machine = make_machine()
    choice = pick_mode("auto", machine.bzimage, machine.rootfs)
    assert choice.mode in ("kvm", "icount")
    assert choice.reason
    said: list[str] = []
    again = pick_mode(
        "auto", machine.bzimage, machine.rootfs, on_progress=lambda text, _: said.append(text)
    )
    assert again == choice and said == []  # from the cache


@pytest.mark.skipif(bool(unusable_device()), reason="hardware: no usable /dev/kvm")
@pytest.mark.usefixtures("own_budget")
def test_kvm_vcpus_are_pinned_before_the_first_instruction(
    make_machine: MakeMachine, tmp_path: Path
) -> None:
    # Whether a kernel runs under KVM here is another question; the firmware does.
    machine = replace(make_machine(mode="kvm"), cpu_model="host-no-arch-capabilities")
    prepared = prepare(machine, Job(("true",)), RunDir(tmp_path / "run"))
    with started(connect(), machine, prepared) as (guest, memory, witness):
        proof = witness.proof
        vcpus = [thread for thread in proof.threads if thread.role.startswith("vcpu ")]
        assert len(vcpus) == machine.topology.cpu_count
        assert [vcpu.allowed for vcpu in vcpus] == [(cpu,) for cpu in prepared.placement.vcpus]
        assert guest.monitor("query-kvm")["enabled"]
        assert guest.wait(1.0) is None
        assert len(memory.fds) == len(machine.topology.nodes)
        pid = guest.pid
    assert not Path(f"/proc/{pid}").exists()


def test_qemus_command_line_can_be_had(make_machine: MakeMachine, tmp_path: Path) -> None:
    prepared = prepare(make_machine(), Job(("true",)), RunDir(tmp_path / "run"))
    line = connect().command_line(prepared.xml)
    assert "-sandbox on" in line and "memory-backend-memfd" in line


def test_overwritten_events_are_counted(
    boot: Boot, make_machine: MakeMachine, tmp_path: Path
) -> None:
    """A buffer that wraps says how many events it lost; the recording shows only where."""
    machine = replace(make_machine("ring-2", mode="icount"), trace_memory_mib=1)
    events = ("sched:sched_switch", "sched:sched_waking", "sched:sched_wakeup")
    _, run_dir = boot("hackbench", "-g", "1", "-l", "300", machine=machine, events=events)
    stats = parse_trace_stats(run_dir.trace_stats.read_text())
    assert [cpu.cpu for cpu in stats] == [0, 1, 2, 3]
    decoded = decode_trace(run_dir.trace, machine.topology, tmp_path / "events.parquet")
    assert decoded.gaps > 0
    assert sum(cpu.lost for cpu in stats) > 100
