"""The witness, with threads of a real process in QEMU's place."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from numalab.guest.proof import MisplacedKind
from numalab.guest.witness import Witness
from numalab.machine.memory import HeldMemory
from numalab.machine.model import Machine
from numalab.placement.planner import Placement
from numalab.topology.load import load_topology

CPUS = tuple(sorted(os.sched_getaffinity(0)))
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="hardware: needs two host CPUs")

# Like QEMU's `TC tc-ram-node0`, which allocates strict memory and may run on all of its node.
THREADS = """
import sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


def test_a_thread_that_nothing_has_pinned_yet_is_moved_before_the_first_look(
    process: int, tmp_path: Path
) -> None:
    os.sched_setaffinity(process, {CPUS[0]})  # the main thread is the vCPU
    (other,) = {int(path.name) for path in Path(f"/proc/{process}/task").iterdir()} - {process}
    assert os.sched_getaffinity(other) == set(CPUS)
    machine = Machine(
        load_topology("ring-2"), tmp_path, tmp_path, "kvm", 1, "test", measures_time=True
    )
    placement = Placement(CPUS[:1], CPUS[1:2], one_thread=False, dedicated=True)
    witness = Witness(process, [process], HeldMemory(()), machine, placement)
    witness.started()
    assert witness.proof.differs == ()
    assert os.sched_getaffinity(other) == {CPUS[1]}


def test_a_vcpu_elsewhere_is_told_and_left_where_it_is(process: int, tmp_path: Path) -> None:
    machine = Machine(load_topology("ring-2"), tmp_path, tmp_path, "kvm", 1, "test")
    placement = Placement(CPUS[:1], CPUS[1:2], one_thread=False, dedicated=True)
    witness = Witness(process, [process], HeldMemory(()), machine, placement)
    witness.started()
    (differs,) = witness.proof.differs
    assert (differs.kind, differs.subject) == (MisplacedKind.THREAD, "vcpu 0")
    assert os.sched_getaffinity(process) == set(CPUS)
