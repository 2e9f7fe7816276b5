"""Real guests on a cluster: two workers with caches of their own, one killed while it records."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel
from numalab.qemu.embed import take_root
from support.dask_processes import Processes, until

NUMALAB = [sys.executable, "-c", "from numalab.cli.entry import main; main()"]
STUDY = """
question = "Does a cluster lose a run?"
topologies = ["ring-2"]
mode = "icount"
seeds = [1, 2]
[variants.before]
kernel = "debian-6.12"
tunables = { "/proc/sys/kernel/numa_balancing" = 0 }
[variants.after]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
parameters = { start_node = 0, allowed_nodes = "0-1", seconds = 0.5 }
"""


@pytest.fixture
def processes(tmp_path: Path, kernel: BuiltKernel, image: BuiltImage) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.end()


def test_a_worker_is_killed_while_its_guest_runs(
    processes: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, out, caches = (
        tmp_path / "spread.toml",
        tmp_path / "out",
        (tmp_path / "1", tmp_path / "2"),
    )
    study.write_text(STUDY)
    killed, _ = (processes.worker(NUMALAB_CACHE=str(cache)) for cache in caches)

    def recording() -> bool:
        beats = caches[0].glob("remote/run-*/runs/*.running/heartbeat.jsonl")
        return any("workload" in path.read_text() for path in beats)

    def kill() -> None:
        until(recording, 400)
        os.kill(killed.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    words = (
        "run",
        str(study),
        "--cluster",
        processes.address,
        "--output",
        str(out),
        "--budget",
        "9h",
    )
    done = subprocess.run(
        [*NUMALAB, *words], capture_output=True, text=True, check=False, timeout=500
    )
    killer.join()
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    (again,) = (line for line in lines if "tried again: its worker is gone" in line)
    runs = {
        path.name: json.loads((path / "manifest.json").read_text()) for path in out.glob("runs/*")
    }
    assert sorted(runs) == [
        f"ring-2_bound-hogs_{name}_{seed}" for name in ("after", "before") for seed in (1, 2)
    ]
    assert again.split()[1].rstrip(":") in runs
    assert {run["status"] for run in runs.values()} == {"ok"}
    assert "4 of 4 runs finished" in done.stdout
    assert "4 of 4 runs are done or fit into the budget" in done.stderr
    # The next numalab on the host of the killed worker ends the guest that it left.
    assert _guests(caches[0])
    monkeypatch.setenv("NUMALAB_CACHE", str(caches[0]))
    take_root().release()
    assert not _guests(caches[0])


def _guests(folder: Path) -> list[str]:
    listed = subprocess.run(
        ["pgrep", "-a", "qemu-system"], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if str(folder) in line]
