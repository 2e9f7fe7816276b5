"""How much two guests at once save, and how fast ten thousand runs are listed and asked about."""

import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from numalab.campaign.build import Builds, BuiltStudy, Setting, build
from numalab.campaign.execute import Schedule, TaskEvent, execute
from numalab.files import write_json
from numalab.guest.kvm import Choice
from numalab.results.layout import Results
from numalab.results.query import MEASURES, RUNS, Catalogue, catalogue, query, store
from numalab.study.plan import plan_study

STUDY = """
question = "How long does it take?"
topologies = ["ring-4"]
seeds = [1, 2, 3, 4]
[variants.one]
kernel = "debian-6.12"
[variants.two]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
"""
RUNS_LISTED = 10_000
MEASURES_OF_RUN = 40


def run_all(prepared: Builds, folder: Path, jobs: int) -> tuple[float, float]:
    """Run eight guests, `jobs` at once; return wall and CPU seconds, the start of workers included.

    CPU seconds are those of the workers and of what they started, QEMU above all.
    """
    path = folder / "bench.toml"
    path.write_text(STUDY)
    results = Results(folder / f"jobs-{jobs}")
    results.path.mkdir()
    setting = Setting(Choice("icount", "host", "asked for"))
    plan = plan_study(path)
    programs = build(plan.kernels.values(), plan.recipe, plan.workloads.values()).files
    study = BuiltStudy(plan, replace(prepared, files=programs), results, setting)
    began, used = time.monotonic(), _used()
    failures = execute([study], jobs, _unwatched)
    if failures:
        raise RuntimeError(failures[0].ended.error)
    return time.monotonic() - began, _used() - used


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
