"""Guests beside each other: each icount guest has a core of its own, in one process and in two."""

import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.guest.console import Beat
from numalab.guest.run import Outcome, run_guest
from numalab.host.budget import CpusInUse, cpus_in_use
from numalab.machine.model import Job
from numalab.run_dir import RunDir
from support.guest_types import LIMITS, MakeMachine

CPUS = tuple(sorted(os.sched_getaffinity(0)))
pytestmark = [
    pytest.mark.usefixtures("own_budget"),
    pytest.mark.skipif(len(CPUS) < 2, reason="hardware: needs two host CPUs"),
]
SECONDS = 300  # to give up after


def test_two_guests_in_threads_of_one_process(make_machine: MakeMachine, tmp_path: Path) -> None:
    both = threading.Barrier(2)

    def run(number: int) -> Outcome:
        waited: list[str] = []

        def meet(beat: Beat) -> None:
            if not waited:  # neither goes on before the other one runs as well
                waited.append(beat.phase)
                both.wait(SECONDS)

        machine = replace(make_machine("ring-2"), name=f"beside-{number}")
        directory = RunDir(tmp_path / str(number))
        job = Job(("sh", "-c", f"echo guest {number}; cat /proc/uptime"))
        return run_guest(machine, job, directory, limits=LIMITS, on_beat=meet)

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(run, range(2)))
    assert [outcome.status for outcome in outcomes] == [0, 0]
    vcpus = [
        {cpu for thread in outcome.proof.threads for cpu in thread.allowed} for outcome in outcomes
    ]
    assert all(len(cpus) == 1 for cpus in vcpus) and vcpus[0] != vcpus[1]
    texts = [RunDir(tmp_path / str(n)).stdout.read_text().split("\n", 1) for n in range(2)]
    assert [text[0] for text in texts] == ["guest 0", "guest 1"]
    assert texts[0][1] == texts[1][1]  # the same guest time: neither saw the other
    assert cpus_in_use() == CpusInUse(frozenset(), {})


HOLDER = """
    import sys
    from pathlib import Path
    import numalab.host.budget
    from numalab.placement.admission import admit_machine
    from numalab.machine.model import Machine
    from numalab.topology.load import load_topology

    numalab.host.budget.cache_dir = lambda *_: Path(sys.argv[1])
    machine = Machine(load_topology("ring-2"), Path("k"), Path("r"), "icount", 1, "other")
    print(*admit_machine(machine)[0].host_cpus, flush=True)
    sys.stdin.read()
"""


def test_a_guest_of_another_process_has_its_own_cpu(
    make_machine: MakeMachine, tmp_path: Path, own_budget: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(own_budget)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        theirs = int(process.stdout.readline())
        run_dir = RunDir(tmp_path / "run")
        outcome = run_guest(make_machine("ring-2"), Job(("true",)), run_dir, limits=LIMITS)
        ours = {cpu for thread in outcome.proof.threads for cpu in thread.allowed}
        assert len(ours) == 1 and theirs not in ours
