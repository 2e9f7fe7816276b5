"""Studies of 100,000 runs are planned and looked at within seconds of CPU time."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from numalab.files import read_json, write_json
from support.example_results import copy_example

NUMALAB = (sys.executable, "-c", "from numalab.cli.entry import main; main()")
STUDY = Path(__file__).parents[3] / "studies" / "group-construction.toml"
SEEDS = 50_000  # of two variants
MOST = 25.0  # CPU seconds; about 3 on a host of ordinary speed, and 50 where every run is drawn


def timed(tmp_path: Path, *words: str) -> str:
    """Run a command; return its output, and check the CPU time it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    env = os.environ | {"NUMALAB_CACHE": str(tmp_path / "cache")}
    done = subprocess.run([*NUMALAB, *words], env=env, capture_output=True, text=True, check=True)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < MOST
    return done.stdout


def test_the_plan_of_very_many_runs(tmp_path: Path) -> None:
    study = tmp_path / "large.toml"
    seeds = f"seeds = {list(range(SEEDS))}"
    study.write_text(STUDY.read_text().replace("seeds = [1, 2, 3]", seeds, 1))
    text = timed(tmp_path, "plan", str(study), "--mode", "icount")
    assert "and 99000 more (--json lists all)" in text
    assert "100000 runs: about " in text
    document = json.loads(timed(tmp_path, "plan", str(study), "--mode", "icount", "--json"))
    runs = document["studies"][0]["runs"]
    assert len(runs) == 2 * SEEDS
    assert {run["cpus"] for run in runs} == {1}
    assert runs[-1]["run"]["id"] == f"ring-4_bound-hogs_after_{SEEDS - 1}"


def test_the_status_of_very_many_runs(tmp_path: Path) -> None:
    results = copy_example(tmp_path / "results")
    plan = read_json(results / "plan.json")
    first = plan["runs"][0]
    more = ({**first, "id": f"more_{seed}", "seed": seed} for seed in range(2 * SEEDS))
    write_json(results / "plan.json", {**plan, "runs": [*plan["runs"], *more]})
    failed = results / "runs" / "more_7.failed"
    failed.mkdir()
    text = timed(tmp_path, "status", str(results))
    assert f"2 of {2 * SEEDS + 6} runs finished (1 failed, " in text
    assert "more_7 " in text and "more_8 " not in text and " more (--json" in text
    runs = json.loads(timed(tmp_path, "status", str(results), "--json"))["runs"]
    assert len(runs) == len(plan["runs"]) + 2 * SEEDS
