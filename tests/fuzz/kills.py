"""Kills at random moments: while workers start, while runs go on, between two of them.

Each case starts a study of runs without guests in processes of its own, kills the first of them
(SIGKILL) after a random while, and goes on with the results. No run is lost, none is done twice, no
process is left, none is still called running, and the results are free again.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from numalab.campaign.local import run_here
from numalab.locks import is_locked
from numalab.results.status import State, read_progress
from support.fake_executor import fake, ledger, order, ready, tasks

CASES, FEW = 100, 2
STUDY = """
question = "?"
topologies = ["ring-2"]
seeds = [1, 2]
[variants.before]
kernel = "debian-6.12"
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
parameters = { start_node = 0, allowed_nodes = "0,1" }
"""
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from fuzz.kills import STUDY
from numalab.campaign.local import run_here
from support.fake_executor import fake, ready
if __name__ == "__main__":
    study = ready(Path({folder!r}), STUDY)
    print("go", flush=True)
    run_here([study], 2, lambda outlook: lambda happening: None, execute=fake)
"""
_PATIENCE = 120.0  # seconds; a worker ends as soon as it has started


def case(seed: int, scratch: Path) -> str:
    """Kill a study after a while, and go on with it."""
    rng = random.Random(seed)
    os.environ["NUMALAB_CACHE"] = str(scratch / "cache")
    study = ready(scratch, STUDY)
    for task in rng.sample(tasks(study), rng.choice([0, 1, 2])):
        order(study, task.run.id, "sleep")
    script = scratch / "child.py"
    script.write_text(CHILD.format(tests=str(Path(__file__).parents[1]), folder=str(scratch)))
    child = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"go\n"
    time.sleep(rng.uniform(0, 4))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    _until(lambda: not _session(child.pid), "a process is left")
    assert not is_locked(study.results.path)
    assert not list(study.results.path.glob("runs/*.running"))
    before = ledger(study.results)
    for path in study.results.path.glob("orders/*"):
        path.unlink()
    assert run_here([study], 2, lambda _: lambda _: None, execute=fake) == ()
    found = read_progress(study.results)
    assert all(run.state is State.DONE for run in found.runs)
    done = ledger(study.results)
    assert len(done) == len(set(done))
    assert done[: len(before)] == before
    return f"killed after {len(before)} runs"


def _until(condition: Callable[[], bool], wrong: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, wrong
        time.sleep(0.05)


def _session(leader: int) -> list[int]:
    """Return the processes of a session (proc(5): stat, field 6) that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(session) == leader and state != "Z":
            found.append(int(path.parent.name))
    return found
