"""Kills at every stage: while workers start, after some runs have ended, while others run.

Each case starts a study of runs without guests in processes of its own, waits until as many runs
have ended as the seed says, kills the first process (SIGKILL), and goes on with the results. No run
is lost, none is done twice, no process is left, none is still called running, and the results are
free again.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from fuzz.commands import end_processes, processes_of
from numalab.campaign.build import BuiltStudy
from numalab.campaign.execute import execute
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
from numalab.campaign.execute import execute
from support.fake_executor import fake, ready
if __name__ == "__main__":
    study = ready(Path({folder!r}), STUDY)
    execute([study], 2, lambda outlook: lambda event: None, run=fake)
"""
_PATIENCE = 120.0  # seconds; a worker ends as soon as it has started


def case(seed: int, scratch: Path) -> str:
    """Kill a study at one stage of it, and go on with it."""
    rng = random.Random(seed)
    os.environ["NUMALAB_CACHE"] = str(scratch / "cache")
    study = ready(scratch, STUDY)
    every = tasks(study)
    endless = rng.choice([0, 1, 1, 1])  # one of two workers; the other does the remaining runs
    for task in rng.sample(every, endless):
        order(study, task.run.id, "sleep")
    wanted = seed % (len(every) - endless + 1)
    script = scratch / "child.py"
    script.write_text(CHILD.format(tests=str(Path(__file__).parents[1]), folder=str(scratch)))
    with (scratch / "output").open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, str(script)], stdout=output, stderr=output, start_new_session=True
        )
    try:
        _until(lambda: _is_stage(study, wanted, endless), f"never {wanted} runs had ended")
        time.sleep(rng.choice([0.0, 0.0, rng.uniform(0, 0.5), rng.uniform(0, 3)]))
        child.send_signal(signal.SIGKILL)
        child.wait()
        _until(lambda: not processes_of(scratch), "a process is left")
    finally:
        end_processes(scratch, 0.0)
        child.wait()
    assert not is_locked(study.results.path)
    assert not list(study.results.path.glob("runs/*.running"))
    before = ledger(study.results)
    for path in study.results.path.glob("orders/*"):
        path.unlink()
    assert execute([study], 2, lambda _: lambda _: None, run=fake) == ()
    progress = read_progress(study.results)
    assert all(run.state is State.DONE for run in progress.runs)
    done = ledger(study.results)
    assert len(done) == len(set(done))
    assert done[: len(before)] == before
    running = ", one ran" if (study.results.path / "asleep").exists() else ""
    return f"{len(before)} runs had ended{running}"


def _is_stage(study: BuiltStudy, wanted: int, endless: int) -> bool:
    """Tell whether so many runs have ended, and where one never ends, whether it has begun."""
    asleep = (study.results.path / "asleep").exists()
    ended = len(list(study.results.path.glob("runs/*/manifest.json")))
    return ended >= wanted and (asleep or not endless or wanted == 0)


def _until(condition: Callable[[], bool], wrong: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < deadline, wrong
        time.sleep(0.05)
