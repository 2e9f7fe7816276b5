"""What several guests at once save, and how fast ten thousand runs are listed and queried."""

import resource
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from bench.boot import Cost
from numalab.campaign.build import build_study
from numalab.campaign.execute import Schedule, TaskEvent, execute
from numalab.files import write_json
from numalab.results.layout import Results
from numalab.results.query import MEASURES, RUNS, Catalogue, catalogue, query, store
from numalab.study.plan import plan_study

# As studies/group-construction.toml, with other seeds.
STUDY = """
question = "How long does it take?"
topologies = ["ring-4"]
seeds = {seeds}
[variants.before]
kernel = "debian-6.12-undo-group-construction"
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
parameters = {{ start_node = 1, allowed_nodes = "1,3", seconds = 3 }}
[capture]
sets = ["sched", "numa"]
"""
RUNS_LISTED = 10_000
MEASURES_OF_RUN = 40


def run_all(folder: Path, seeds: int, jobs: int) -> Cost:
    """Run two guests for each seed, `jobs` at once, the start of workers included.

    The CPU seconds are those of the workers and of what they started, QEMU above all.
    """
    path = folder / "bench.toml"
    path.write_text(STUDY.format(seeds=list(range(1, seeds + 1))))
    results = Results(folder / f"jobs-{jobs}")
    results.path.mkdir()
    study = build_study(plan_study(path), results, "icount")
    began, used = time.monotonic(), _used()
    failures = execute([study], jobs, _unwatched)
    if failures:
        raise RuntimeError(failures[0].ended.error)
    return Cost(time.monotonic() - began, _used() - used)


def _used() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _unwatched(_: Schedule) -> Callable[[TaskEvent], None]:
    return lambda event: None


def list_and_query(folder: Path) -> tuple[float, float]:
    """List ten thousand runs, then take means over their measures; return both in seconds."""
    results = Results(folder / "many")
    runs, measures = [], []
    for seed in range(RUNS_LISTED):
        name = f"ring-4_hogs_after_{seed}"
        directory = results.run(name)
        directory.path.mkdir(parents=True)
        directory.manifest.write_text("{}")
        constant = {"run": name, "seed": seed, "variant": "after", "mode": "icount"}
        modified = directory.manifest.stat().st_mtime_ns
        runs.append({**dict.fromkeys(RUNS), **constant, "modified_ns": modified})
        measures += [
            {**dict.fromkeys(MEASURES), "run": name, "measure": f"m{number}", "value": float(seed)}
            for number in range(MEASURES_OF_RUN)
        ]
    write_json(results.plan, {})
    store(Catalogue(results, pl.DataFrame(runs, RUNS), pl.DataFrame(measures, MEASURES)))
    listed = _seconds(lambda: query([catalogue(results)], "SELECT run, mode FROM runs"))
    sql = "SELECT measure, avg(value), stddev(value) FROM measures GROUP BY measure"
    asked = _seconds(lambda: query([catalogue(results)], sql))
    return listed, asked


def _seconds(measured: Callable[[], object]) -> float:
    began = time.monotonic()
    measured()
    return time.monotonic() - began
