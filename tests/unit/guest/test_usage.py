"""What the host did to QEMU's threads: parsed, subtracted, and judged."""

import os
import subprocess
import sys
import time

import pytest

from numalab.guest.proof import Misplaced, MisplacedKind, Proof
from numalab.guest.usage import (
    ThreadUsage,
    Usage,
    between,
    parse_stolen,
    parse_thread,
    read_usage,
    shared_cpus,
    waited_for_a_cpu,
)
from numalab.guest.witness import Doubt, judge_timing
from numalab.host.facts import Disturbance, DisturbanceKind
from numalab.placement.planner import Placement

STATUS = "Name:\tCPU 0/KVM\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n"
STAT = "71 (CPU 0/KVM) (x)) S 1 71 71 0 -1 1077936192 900 4 7 2 10 20 0 0 20 0 5 0 100"


def test_a_thread_is_read() -> None:
    usage = parse_thread(71, (0, 1), STATUS, STAT, "2500000 1250000 17\n")
    assert usage == ThreadUsage("vcpu 0-1", 71, 12, 3, 900, 7, 2.5, 1.25, (0, 1))
    assert parse_thread(71, (), STATUS, STAT, "") == ThreadUsage(
        "CPU 0/KVM) (x)", 71, 12, 3, 900, 7, None, None
    )


def test_stolen_time_is_read_by_cpu() -> None:
    text = (
        "cpu  1 2 3 4 5 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 30 0 0\ncpu1 1 2 3 4 5 6 7 50 0 0\nctxt 9\n"
    )
    assert parse_stolen(text, {1, 7}) == {1: 500}
    assert parse_stolen("cpu0 1 2 3", {0}) == {}  # a kernel that does not count it


def thread(role: str, involuntary: int, waited: float | None, number: int = 1) -> ThreadUsage:
    vcpus = {"vcpu 0": (0,), "vcpu 1": (1,)}.get(role, ())
    return ThreadUsage(role, number, 5, involuntary, 7, 0, 900.0, waited, vcpus)


def test_only_what_happened_in_between_counts() -> None:
    before = Usage(100.0, (thread("vcpu 0", 4, 1.5), thread("gone", 1, 1.0, 9)), {0: 70})
    after = Usage(102.0, (thread("vcpu 0", 6, 2.0), thread("new", 3, None, 2)), {0: 90, 1: 5})
    used = between(before, after)
    assert used == Usage(
        2.0,
        (ThreadUsage("vcpu 0", 1, 0, 2, 0, 0, 0.0, 0.5, (0,)), thread("new", 3, None, 2)),
        {0: 20, 1: 0},
    )


PINNED = (4, 5)


@pytest.mark.parametrize(
    ("usage", "said"),
    [
        (Usage(10.0, (thread("vcpu 0", 100, 100.0), thread("qemu", 9999, 9999.0)), {4: 100}), []),
        (
            Usage(10.0, (thread("vcpu 0", 120, None),)),
            ["vcpu 0 was switched out 12 times a second"],
        ),
        (
            Usage(10.0, (thread("vcpu 1", 0, 250.0),)),
            ["vcpu 1 waited 2.5% of the time for its host CPU"],
        ),
        (
            Usage(10.0, (), {4: 0, 5: 400}),
            ["a hypervisor below took 4.0% of the time of host CPU 5"],
        ),
        (Usage(0.02, (thread("vcpu 0", 1, 0.0),), {4: 10}), []),  # one tick, one switch
        (Usage(0.0, (thread("vcpu 0", 99, 99.0),)), []),
    ],
)
def test_what_disturbs_a_pinned_vcpu_is_said(usage: Usage, said: list[str]) -> None:
    assert [str(disturbance) for disturbance in shared_cpus(usage, PINNED)] == said


def test_a_process_is_read_and_one_that_ended_has_no_threads() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        cpu = min(os.sched_getaffinity(0))
        (main,) = read_usage(process.pid, {process.pid: (0,)}, {cpu}).threads
        assert (main.role, main.vcpus) == ("vcpu 0", (0,)) and main.minor_faults > 100
        assert main.voluntary + main.involuntary > 0
    assert read_usage(process.pid, {}, ()).threads == ()


BOOST = Disturbance(DisturbanceKind.BOOST)
ASTRAY = Misplaced(MisplacedKind.THREAD, "vcpu 0", (0, 1), (0,))
ONE_TO_ONE = Placement(
    (4, 5), (0,), False, (), (0, 0), dedicated=True, timing=True, disturbs=(BOOST,)
)


def test_timing_means_something_only_as_planned() -> None:
    usage = Usage(10.0, (thread("vcpu 0", 120, None),))
    good = judge_timing(ONE_TO_ONE, Proof((), (), "", usage))
    assert good.means and good.against == ()
    assert good.disturbs == (
        BOOST,
        Disturbance(DisturbanceKind.SWITCHED_OUT, "vcpu 0", amount=12.0),
    )
    moved = judge_timing(ONE_TO_ONE, Proof((), (), "", usage, (ASTRAY,)))
    assert not moved.means and moved.against == (Doubt.MISPLACED,)
    crowded = Placement((0, 0), (0,), False, ("overcommitted: 2 vCPUs on 1 host CPU",))
    poor = judge_timing(crowded, Proof((), (), crowded.note, usage))
    assert (poor.means, poor.against, poor.disturbs) == (False, (Doubt.PLAN,), ())


def test_who_has_to_share_a_cpu_waits_for_it() -> None:
    cpu = min(os.sched_getaffinity(0))
    busy = ["taskset", "-c", str(cpu), sys.executable, "-c", "while True: pass"]
    with subprocess.Popen(busy) as first, subprocess.Popen(busy) as second:
        try:
            deadline = time.monotonic() + 120
            while min(map(waited_for_a_cpu, (first.pid, second.pid))) < 0.05:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            first.kill()
            second.kill()
    assert waited_for_a_cpu(first.pid) == 0, "it is gone"
