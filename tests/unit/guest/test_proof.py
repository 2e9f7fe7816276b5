"""The proof of placement, from recorded /proc files and from a process."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from numalab.guest.proof import (
    MemoryProof,
    Misplaced,
    MisplacedKind,
    ThreadProof,
    misplaced_memory,
    misplaced_threads,
    parse_allowed,
    parse_maps,
    parse_numa_maps,
    prove_memory,
    prove_threads,
)
from numalab.machine.memory import HeldMemory
from numalab.placement.planner import Placement

DATA = Path(__file__).parents[2] / "data" / "machine"


def words(misplaced: tuple[Misplaced, ...]) -> tuple[str, ...]:
    return tuple(map(str, misplaced))


def test_affinity_is_read_from_status() -> None:
    text = "Name:\tqemu\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,7\n"
    assert parse_allowed(text) == (0, 1, 2, 3, 7)
    with pytest.raises(ValueError):
        parse_allowed("Name:\tqemu\n")


def test_where_the_memory_of_each_node_lies() -> None:
    places = parse_maps((DATA / "maps.txt").read_text())
    pages = parse_numa_maps((DATA / "numa_maps.txt").read_text())
    assert sorted(places) == [1028, 1029]
    assert pages[places[1028][0]] == ({0: 19641}, 4)
    assert pages[places[1029][0]] == ({0: 100, 1: 412}, 2048)


@pytest.mark.skipif(not Path("/proc/self/numa_maps").exists(), reason="no CONFIG_NUMA")
def test_the_memory_of_a_node_is_the_sum_of_its_mappings() -> None:
    descriptor = os.memfd_create("node0")
    with os.fdopen(descriptor, "r+b") as file:
        file.truncate(3 * mmap.PAGESIZE)
        first = mmap.mmap(descriptor, mmap.PAGESIZE)
        rest = mmap.mmap(descriptor, 2 * mmap.PAGESIZE, offset=mmap.PAGESIZE)
        for mapping in (first, rest):
            mapping.write(b"x" * len(mapping))
        plan = Placement((0,), (0,), False, host_nodes=(0, 7))
        with os.fdopen(os.memfd_create("node1"), "r+b") as untouched:
            both = HeldMemory((descriptor, untouched.fileno()))
            # QEMU's node 0 is the guest's node 1.
            empty, proof = prove_memory(os.getpid(), both, plan, (1, 0))
        assert (empty.node, empty.pages, empty.planned) == (0, {}, 7)
        assert (proof.node, sum(proof.pages.values()), proof.planned) == (1, 3, 0)
        first.close()
        rest.close()


def test_a_thread_elsewhere_is_a_mismatch() -> None:
    threads = (
        ThreadProof("vcpu 0", 7, (0,), (0,), (0,)),
        ThreadProof("vcpu 1", 8, (1,), (0, 1), (1,)),
    )
    assert words(misplaced_threads(threads, {7, 8})) == (
        "vcpu 1 may run on host CPUs 0-1, planned 1",
    )


def test_a_missing_vcpu_thread_is_a_mismatch() -> None:
    assert words(misplaced_threads((), {9})) == ("vCPU thread 9 is gone",)


@pytest.mark.parametrize(
    ("pages", "page_kib", "message"),
    [
        ({8: 100}, 2048, ""),
        ({8: 100}, 1 << 20, ""),
        ({0: 1, 8: 100}, 2048, "guest node 1 lies on host nodes 0,8, planned 8"),
        ({}, 2048, "guest node 1 lies on host nodes none, planned 8"),
        ({8: 100}, 4, "guest node 1 has pages of 4 KiB, planned 2048"),
    ],
)
def test_memory_elsewhere_is_a_mismatch(pages: dict[int, int], page_kib: int, message: str) -> None:
    proofs = (MemoryProof(0, {0: 5}, 2048, 0), MemoryProof(1, pages, page_kib, 8))
    wrong = misplaced_memory(proofs, 2048, allocated=True)
    assert words(wrong) == ((message,) if message else ())


def test_memory_that_was_never_touched_lies_nowhere_wrong() -> None:
    untouched = (MemoryProof(0, {}, 4, 0), MemoryProof(1, {0: 3, 8: 9}, 4, 8))
    assert words(misplaced_memory(untouched, 4, allocated=False)) == (
        "guest node 1 lies on host nodes 0,8, planned 8",
    )


def test_a_host_that_does_not_tell_where_memory_lies_is_no_mismatch() -> None:
    assert misplaced_memory((), 2048, allocated=True) == ()


# A process of its own: this one has libvirt's threads once a guest test has run in it.
TWO_THREADS = """
import sys, threading
def work():
    print(threading.get_native_id(), flush=True)
    sys.stdin.read()
threading.Thread(target=work).start()
"""


def test_the_threads_of_a_process_are_proved() -> None:
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    plan = Placement(allowed[:1], allowed, False)
    with subprocess.Popen(
        [sys.executable, "-c", TWO_THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        thread = int(process.stdout.readline())
        os.sched_setaffinity(thread, set(plan.vcpus))
        threads = prove_threads(process.pid, [thread], plan)
        assert [(t.thread, t.role) for t in threads if t.vcpus == (0,)] == [(thread, "vcpu 0")]
        assert misplaced_threads(threads, [thread]) == ()
        if len(allowed) > 1:
            os.sched_setaffinity(thread, set(allowed))
            (wrong,) = misplaced_threads(prove_threads(process.pid, [thread], plan), [thread])
            assert (wrong.kind, wrong.subject) == (MisplacedKind.THREAD, "vcpu 0")
            assert wrong.found == tuple(allowed)
    assert prove_threads(process.pid, [thread], plan) == ()  # it has ended
