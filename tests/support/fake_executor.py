"""Runs without guests: what executes them is a function of the run's name, in any process.

What a run is to do is the text of a parameter of its workload; `ledger` says what was executed.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from numalab.campaign.build import Builds, BuiltStudy, Setting
from numalab.campaign.run_task import WAITING
from numalab.campaign.task import Ended, Task, failed, make_tasks
from numalab.errors import GuestLost, HostError
from numalab.files import write_json
from numalab.guest.kvm import Choice
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_artifact import BuiltKernel
from numalab.results.layout import Results
from numalab.results.manifest import RunStatus, Versions
from numalab.source.series import SeriesInfo
from numalab.study.plan import plan_study

MATRIX = """
question = "?"
topologies = ["ring-4", "ring-2"]
seeds = [1, 2, 3]
[variants.before]
kernel = "debian-6.12-undo-group-construction"
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
label = "few"
parameters = { start_node = 0, allowed_nodes = "0,1" }
[[workloads]]
name = "bound-hogs"
label = "many"
parameters = { start_node = 0, allowed_nodes = "0,1", hogs_per_cpu = 8 }
"""
MEASURES = ("task_migrations", "task_busy_share_min")


def ready(folder: Path, text: str = MATRIX, results: str = "results") -> BuiltStudy:
    """Return a study that is ready to run without anything having been built."""
    path = folder / "tried.toml"
    path.write_text(text)
    plan = plan_study(path)
    (folder / "rootfs").write_bytes(b"root" * 9)
    (folder / "bzImage").write_bytes(b"kernel" * 9)
    kernels = {name: kernel(name, folder / "bzImage") for name in plan.kernels}
    image = BuiltImage("base", folder / "rootfs", "0" * 64, 1 << 21, ("libc6=2.36",))
    target = Results(folder / results)
    target.path.mkdir(exist_ok=True)
    choice = Choice("icount", "host", "asked for")
    files = {workload.name: {"program": b"a"} for workload in plan.workloads.values()}
    return BuiltStudy(plan, Builds(kernels, image, files), target, Setting(choice))


def kernel(name: str, bzimage: Path) -> BuiltKernel:
    nowhere = Path("/nowhere")
    series = (SeriesInfo("undo", "d1", ("one", "two")),) if "undo" in name else ()
    return BuiltKernel(
        name, bzimage, "6.12.1", nowhere, "c0ffee", name, series, "6.12.1", 1.0, "gcc", "feed"
    )


def tasks(study: BuiltStudy) -> tuple[Task, ...]:
    return make_tasks(study)


def _desk(results: Results) -> Path:
    """Where orders and the ledger are: with the results, or where all workers see them."""
    return Path(os.environ.get("FAKE_EXECUTOR", results.path))


def ledger(results: Results) -> list[str]:
    """Return what was executed to its end, in order."""
    path = _desk(results) / "ledger"
    return path.read_text().split() if path.exists() else []


def _note(results: Results, word: str) -> None:
    descriptor = os.open(_desk(results) / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{word}\n".encode())
    os.close(descriptor)


def fake(task: Task, on_phase: Callable[[str], None]) -> Ended:
    """Do what the orders for this run say; without one, all is well."""
    path, asked = task.directory.path, ""
    try:
        path.mkdir(parents=True, exist_ok=True)
        on_phase("workload, 1.0 s of guest time")
        asked = _order(task)
        if asked == "wait":
            on_phase(f"{WAITING}, host CPU 0 runs a guest")
        ended = _obey(task, asked)
        if ended.ok:
            _leave_results(task)
            path.rename(task.results.run(task.run.id).path)
            _note(task.results, task.run.id)
    except KeyboardInterrupt:
        if asked == "told-twice":
            signal.raise_signal(signal.SIGTERM)
        if path.exists():
            path.rename(path.with_name(f"{task.run.id}.interrupted"))
        raise
    return ended


def _leave_results(task: Task) -> None:
    directory = task.directory
    measures = [
        {"name": name, "value": _value(task, name), "unit": "moves", "direction": "none",
         "kind": "placement", "definition": "d", "source": "trace"}
        for name in MEASURES
    ]  # fmt: skip
    write_json(directory.measures, measures)
    _events(task, task.run.seed).write_parquet(directory.events)
    record = task.manifest.but(status=RunStatus.OK, seconds=0.1, versions=Versions(qemu="7.2.0"))
    write_json(directory.manifest, record.table())


def _events(task: Task, seed: int) -> pl.DataFrame:
    other = (task.results.path.parent / "other-events").exists()
    names = ["sched_switch", "sched_wakeup" if other else "sched_move_numa"]
    return pl.DataFrame({"time_ns": [seed, seed + 1], "event": names})


def _obey(task: Task, order: str) -> Ended:
    match order:
        case "host":
            return failed(task.run.id, 0.1, HostError("no memory"), by_host=True)
        case "guest":
            return failed(task.run.id, 0.1, GuestLost("it panicked"), by_host=False)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "sleep" | "told-twice":
            (_desk(task.results) / "asleep").write_text(str(os.getpid()))
            time.sleep(600)
    return Ended(task.run.id, 0.1)


def _order(task: Task) -> str:
    path = _desk(task.results) / "orders" / task.run.id
    if not path.exists():
        return ""
    first, *rest = path.read_text().split()
    path.write_text(" ".join(rest)) if rest else path.unlink()
    return first


def order(study: BuiltStudy, run: str, *orders: str) -> None:
    """Give orders for a run: one for each time that it is executed."""
    path = _desk(study.results) / "orders" / run
    path.parent.mkdir(exist_ok=True)
    path.write_text(" ".join(orders))


def _value(task: Task, name: str) -> float:
    planted = _desk(task.results) / "planted"  # kernels that behave as `after` does
    changed = planted.exists() and task.kernel.name in planted.read_text().split()
    after = changed or task.run.variant == "after"
    return task.run.seed + 10 * after + MEASURES.index(name)
