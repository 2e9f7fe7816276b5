"""Results in which planned runs failed, were interrupted or never started."""

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from numalab.places import shipped_dir
from support.example_results import RUNS, copy_example

_WHOLE = shipped_dir() / "reports/examples/group-construction/runs" / RUNS[0]


def copy_with_cells(target: Path, labels: Iterable[str]) -> Path:
    """Copy two finished runs, and plan the same two runs in more cells of the same machine."""
    path = copy_example(target)
    plan = json.loads((path / "plan.json").read_text())
    plan["runs"] = [run for run in plan["runs"] if run["id"] in RUNS]
    plan["runs"] += [
        {**run, "id": run["id"].replace("bound-hogs", label), "workload": label}
        for label in labels
        for run in plan["runs"]
    ]
    (path / "plan.json").write_text(json.dumps(plan))
    return path


def planned_runs(path: Path) -> list[str]:
    """Return the names of the planned runs, in order."""
    return [run["id"] for run in json.loads((path / "plan.json").read_text())["runs"]]


def leave(path: Path, run: str, folder: str, **about: Any) -> Path:
    """Leave of a planned run what a run that did not end well leaves: a folder with a manifest."""
    runs, plan = path / "runs", json.loads((path / "plan.json").read_text())
    (planned,) = (entry for entry in plan["runs"] if entry["id"] == run)
    shutil.rmtree(runs / run, ignore_errors=True)
    manifest = json.loads((_WHOLE / "manifest.json").read_text())
    manifest["workload"]["label"] = planned["workload"]
    changes = {"run": run, "variant": planned["variant"], "seed": planned["seed"]}
    left = runs / f"{run}{folder}"
    left.mkdir()
    (left / "manifest.json").write_text(json.dumps(manifest | changes | about))
    return left
