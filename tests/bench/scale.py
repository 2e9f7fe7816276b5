"""A matrix of 100,000 runs on 500 workers, simulated: what planning and bookkeeping cost.

`python tests/bench/scale.py` prints the figures of docs/results/speed.md. Runs sleep in
virtual time; what the bookkeeping takes in real time passes in virtual time as well, so it shows
in the workers' use.
"""

import heapq
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from numalab.campaign.build import Builds, BuiltStudy, Setting
from numalab.campaign.cost_model import Costs
from numalab.campaign.execute import TaskEvent, run_tasks
from numalab.campaign.executors.assign import Assignment, Worker, WorkerHost
from numalab.campaign.executors.processes import Finished, News
from numalab.campaign.resume import held_results, missing_tasks, write_plan
from numalab.campaign.schedule import cost_of, longest_first, makespan
from numalab.campaign.task import Ended, Task
from numalab.guest.kvm import Choice
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.results.layout import Results
from numalab.study.plan import plan_study

RUN_COUNT, WORKERS, SECONDS = 100_000, 500, 20.0
STUDY = """
question = "?"
topologies = ["ring-4", "ring-8", "mesh-4", "mesh-8", "line-4"]
seeds = {seeds}
[variants.before]
kernel = "debian-6.12-undo-group-construction"
[variants.after]
kernel = "debian-6.12"
{workloads}
"""
USE = """
[[workloads]]
name = "bound-hogs"
label = "hogs{n}"
parameters = {{ start_node = 0, allowed_nodes = "0,1", hogs_per_cpu = {n} }}
"""


class Sleepers:
    """Workers whose runs sleep in virtual time."""

    def __init__(self, count: int) -> None:
        self.assignment = Assignment()
        for number in range(count):
            host = WorkerHost(f"h{number // 8}", "xeon", 8, 1 << 20, True, "QEMU", "1")
            self.assignment.add(Worker(f"w{number}", host, 1))
        self.now = self.busy = self.overhead = 0.0
        self._ends: list[tuple[float, int, Task]] = []
        self._count = 0
        self._looked = time.monotonic()

    def fits(self, task: Task) -> bool:
        return self.assignment.choose(task) is not None

    def start(self, task: Task) -> None:
        worker = self.assignment.choose(task)
        assert worker is not None
        self.assignment.take(task, worker)
        self._count += 1
        length = SECONDS * (0.5 + (self._count * 7919 % 1000) / 1000)
        self.busy += length
        heapq.heappush(self._ends, (self.now + length, self._count, task))

    def news(self, seconds: float) -> Sequence[News]:
        spent = time.monotonic() - self._looked
        self.overhead += spent
        end, _, task = heapq.heappop(self._ends)
        self.now = max(self.now + spent, end)
        self.assignment.release(task.key)
        self._looked = time.monotonic()
        return [Finished(task.key, Ended(task.run.id, SECONDS))]

    def close(self) -> None:
        """Nothing is open."""


def planned(folder: Path) -> tuple[list[Task], float]:
    """Plan the matrix down to the order of its runs; return the tasks and the CPU seconds."""
    seeds = RUN_COUNT // (5 * 10 * 2)
    uses = "".join(USE.format(n=n) for n in range(1, 11))
    path = folder / "scale.toml"
    path.write_text(STUDY.format(seeds=list(range(1, seeds + 1)), workloads=uses))
    began = time.process_time()
    plan = plan_study(path)
    nowhere = Path("/nowhere")
    kernels = {
        name: BuiltKernel(name, nowhere, "6", nowhere, "c", name, (), "6", 1.0, "gcc", "f")
        for name in plan.kernels
    }
    image = BuiltImage("base", nowhere, "0" * 64, 1 << 21, ("libc6=2.36",))
    results = Results(folder / "results")
    files = {workload.name: {"program": b""} for workload in plan.workloads.values()}
    results.path.mkdir()
    setting = Setting(Choice("icount", "host", "asked for"))
    with held_results([(plan, results)]):
        study = BuiltStudy(plan, Builds(kernels, image, files), results, setting)
        costs = Costs()
        write_plan(plan, results)
        ordered = longest_first(missing_tasks(study), lambda task: cost_of(task, costs).seconds)
        makespan((cost_of(task, costs).seconds for task in ordered), WORKERS)
    return ordered, time.process_time() - began


def main() -> int:
    """Print the figures; 1 when one of them misses its goal."""
    with tempfile.TemporaryDirectory() as folder:
        tasks, seconds = planned(Path(folder))
    room = Sleepers(WORKERS)
    ended = 0

    def tell(event: TaskEvent) -> None:
        nonlocal ended
        ended += event.kind == "done"

    run_tasks(tasks, room, tell)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    busy = room.busy / (WORKERS * room.now)
    print(f"plan {len(tasks)} runs: {seconds:.1f} s of CPU time (goal: <= 10 s)")
    print(f"memory at the peak: {peak} MiB (goal: <= 500 MiB)")
    print(f"bookkeeping: {1e3 * room.overhead / len(tasks):.2f} ms for each run")
    print(f"workers busy: {busy:.1%} of {room.now:.0f} s (goal: > 95 %)")
    return int(ended != len(tasks) or seconds > 10 or peak > 500 or busy <= 0.95)


if __name__ == "__main__":
    sys.exit(main())
