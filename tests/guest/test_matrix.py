"""A real matrix: several cells at once, killed, resumed, and done again from its manifests."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from numalab.campaign.cost_model import Cost
from numalab.cli import main
from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel
from numalab.results.layout import Results
from numalab.results.reader import load_plan

NUMALAB = [sys.executable, "-c", "from numalab.cli.entry import main; main()"]
STUDY = """
question = "Does a matrix survive being killed?"
topologies = ["ring-2", "mesh-2"]
mode = "icount"
seeds = [1]
exclude = [{ topologies = ["mesh-2"], workloads = ["many"] }]
[variants.before]
kernel = "debian-6.12"
tunables = { "/proc/sys/kernel/numa_balancing" = 0 }
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
label = "few"
parameters = { start_node = 0, allowed_nodes = "0-1", seconds = 0.5 }
[[workloads]]
name = "bound-hogs"
label = "many"
parameters = { start_node = 0, allowed_nodes = "0-1", hogs_per_cpu = 4, seconds = 0.5 }
[[claims]]
text = "hogs spread alike"
measure = "task_busy_share_min"
from = "before"
to = "after"
direction = "same"
mechanism = "task_migrations"
"""


def numalab(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*NUMALAB, *words], capture_output=True, text=True, check=False, timeout=500
    )


def test_a_killed_matrix_goes_on_and_can_be_verified(
    tmp_path: Path, kernel: BuiltKernel, image: BuiltImage
) -> None:
    study, out = tmp_path / "matrix.toml", tmp_path / "out"
    study.write_text(STUDY)
    words = ("run", str(study), "--jobs", "2", "--output", str(out))
    process = subprocess.Popen([*NUMALAB, *words], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not list(out.glob("runs/*/measures.json")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = {path.parent.name for path in out.glob("runs/*/manifest.json")}
    states = json.loads(numalab("status", str(out), "--json").stdout)
    assert len(states["runs"]) == 6
    resumed = numalab(*words)
    assert resumed.returncode == 0, resumed.stderr
    assert "hogs spread alike" in resumed.stdout
    finished = {path.parent.name for path in out.glob("runs/*/manifest.json")}
    assert len({name for name in finished if "." not in name}) == 6
    assert all(f" {name}: " not in resumed.stderr for name in done if "." not in name)
    assert {path.name for path in (out / "cells").iterdir()} == {
        "ring-2_few",
        "ring-2_many",
        "mesh-2_few",
    }
    names = ("ring-2_many_after_1", "mesh-2_few_before_1")
    verified = numalab("verify", str(out), *(word for name in names for word in ("--run", name)))
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert verified.stdout.count("identical") == 2


def test_a_budget_chooses_a_cell_and_repetitions_are_added_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel: BuiltKernel, image: BuiltImage
) -> None:
    """Runs are said to take 1000 s each, so that the time chosen does not depend on this host."""
    monkeypatch.setattr("numalab.campaign.cost_model.Costs.of", lambda *_: Cost(1000.0))
    study, out = tmp_path / "matrix.toml", tmp_path / "out"
    study.write_text(STUDY.replace("seeds = [1]", "seeds = [1, 2]").partition("[[claims]]")[0])
    words = ["run", str(study), "--output", str(out), "--jobs", "2", "--budget", "30m"]
    words += ["--until-significant", "task_busy_share_min", "--max-runs", "3"]
    done = CliRunner().invoke(main.application("run"), words)
    assert done.exit_code == 0, done.output
    finished = {path.name for path in (out / "runs").iterdir()}
    assert finished == {f"ring-2_few_{name}_{n}" for name in ("before", "after") for n in (1, 2, 3)}
    remarks = " ".join(map(str, load_plan(Results(out)).remarks))
    assert "2 of 12 runs were estimated to fit into a budget of " in remarks
    reasons = ("there are 3 runs of each variant", "its interval is about 0")
    assert sum(reason in remarks for reason in reasons) == 1  # which one is up to the seeds
    assert "Repetitions are added until" in (out / "changelog.txt").read_text()
