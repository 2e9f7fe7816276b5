"""A real matrix: several cells at once, killed, resumed, and done again from its manifests."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from lab.image.build import BuiltImage
from lab.kernel.build import BuiltKernel

NUMALAB = [sys.executable, "-c", "from lab.cli.entry import main; main()"]
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
    assert "reproduced" in resumed.stdout
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
