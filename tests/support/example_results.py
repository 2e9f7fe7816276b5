"""A small copy of committed results, to be spoiled: two runs, with their events."""

import shutil
from pathlib import Path

from numalab.places import shipped_dir

EXAMPLE = shipped_dir() / "reports" / "examples" / "group-construction"
RUNS = ("ring-4_bound-hogs_before_1", "ring-4_bound-hogs_after_1")


def copy_example(target: Path) -> Path:
    """Copy what a report reads of the two runs; returns the target."""
    target.mkdir(parents=True)
    shutil.copy2(EXAMPLE / "plan.json", target)
    for run in RUNS:
        shutil.copytree(EXAMPLE / "runs" / run, target / "runs" / run)
    return target
