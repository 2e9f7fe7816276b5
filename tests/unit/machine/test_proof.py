"""The proof of placement, from recorded /proc files and from this process."""

import os
import threading
import time
from pathlib import Path

import pytest

from lab.errors import PlacementMismatch
from lab.machine.placement import Placement
from lab.machine.proof import (
    Proof,
    ThreadProof,
    check_threads,
    parse_allowed,
    parse_maps,
    parse_numa_maps,
    prove_threads,
)

DATA = Path(__file__).parents[2] / "data" / "machine"


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


def test_a_thread_elsewhere_is_a_mismatch() -> None:
    threads = (ThreadProof("vcpu 0", 7, (0,), (0,)), ThreadProof("vcpu 1", 8, (1,), (0, 1)))
    with pytest.raises(PlacementMismatch) as caught:
        check_threads(Proof(threads, (), ""), {7, 8})
    assert str(caught.value) == (
        "not placed as planned: vcpu 1 may run on host CPUs 0-1, planned 1"
    )


def test_a_missing_vcpu_thread_is_a_mismatch() -> None:
    with pytest.raises(PlacementMismatch, match="vCPU thread 9 is gone"):
        check_threads(Proof((), (), ""), {9})


def test_this_process_proves_its_own_threads() -> None:
    stop = threading.Event()
    ids: list[int] = []

    def work() -> None:
        ids.append(threading.get_native_id())
        stop.wait()

    thread = threading.Thread(target=work)
    thread.start()
    while not ids:
        time.sleep(0.001)
    try:
        allowed = tuple(sorted(os.sched_getaffinity(0)))
        first = allowed[0]
        os.sched_setaffinity(ids[0], {first})
        plan = Placement((first,), allowed, False, "")
        roles = {t.role for t in prove_threads(os.getpid(), ids, plan).threads}
        assert "vcpu 0" in roles
        if len(allowed) > 1:
            os.sched_setaffinity(ids[0], set(allowed))
            with pytest.raises(PlacementMismatch, match="vcpu 0 may run on"):
                prove_threads(os.getpid(), ids, plan)
    finally:
        stop.set()
        thread.join()
