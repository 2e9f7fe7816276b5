"""Schedulers (sched_ext) in real guests: `make test-schedulers`, which builds their kernel."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from numalab.kernel.kernel_build import ensure_kernel
from numalab.kernel.patched_kernel import find_kernel
from numalab.scheduler.toolkit_artifact import Toolkit, ensure_toolkit

NUMALAB = [sys.executable, "-c", "from numalab.cli.entry import main; main()"]
EXAMPLE = Path(__file__).parents[2] / "docs/examples/scheduler"
KERNEL = "debian-6.12-sched-ext"
STUDY = """
question = "Does a scheduler of the user's own schedule?"
topologies = ["ring-2"]
mode = "icount"
seeds = [1]
[variants.eevdf]
kernel = "debian-6.12-sched-ext"
[variants.own]
kernel = "debian-6.12-sched-ext"
scheduler = "./{0}"
{1}
[[workloads]]
name = "hogs"
parameters = {{ ms = 300 }}
"""
# Tasks called hog are never dispatched once the first of them have run.
STALL = """
	if (p->comm[0] == 'h' && p->comm[1] == 'o' && p->comm[2] == 'g' && vtime_now > 50000000)
		return;
"""


@pytest.fixture(scope="module")
def toolkit() -> Toolkit:
    """The toolkit of the kernel, built unless the cache has it."""
    spec = find_kernel(KERNEL)
    return ensure_toolkit(spec, ensure_kernel(spec))


def numalab(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    argv = [*NUMALAB, *map(str, words)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=600)


def ran(folder: Path, scheduler: str, more: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the study of a scheduler that lies in a folder, with more keys of its variant."""
    (folder / "study.toml").write_text(STUDY.format(scheduler, more))
    return numalab("run", folder / "study.toml", "--output", folder / "out")


def manifest(folder: Path, run: str) -> dict[str, object]:
    value = json.loads((folder / "out/runs" / run / "manifest.json").read_text())
    assert isinstance(value, dict)
    return value


def test_the_example_runs_beside_eevdf_and_repeats_to_the_byte(
    toolkit: Toolkit, tmp_path: Path
) -> None:
    for path in EXAMPLE.glob("scx_nodes.*"):
        shutil.copy(path, tmp_path)
    done = ran(tmp_path, "scx_nodes.bpf.c")
    assert done.returncode == 0, done.stderr
    own = manifest(tmp_path, "ring-2_hogs_own_1")
    assert own["scheduler_ops"] == "nodes"
    assert "scheduler" not in manifest(tmp_path, "ring-2_hogs_eevdf_1")
    verified = numalab("verify", tmp_path / "out", "--study", tmp_path / "study.toml")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_a_stall_in_a_copy_of_scx_simple_is_reported(toolkit: Toolkit, tmp_path: Path) -> None:
    for path in toolkit.sources("scx_simple"):
        shutil.copy(path, tmp_path / path.name.replace("simple", "stall"))
    source = tmp_path / "scx_stall.bpf.c"
    mark = "/* count global queueing */\n"
    text = source.read_text()
    assert mark in text
    source.write_text(text.replace(mark, mark + STALL))
    done = ran(tmp_path, "scx_stall.bpf.c", "scheduler_watchdog = 3")
    assert done.returncode != 0
    failed = manifest(tmp_path, "ring-2_hogs_own_1.failed")
    reason = str(failed["reason"])
    assert reason.startswith("scx_stall was disabled while the command ran; tasks fell back to")
    stall = re.search(r"runnable task stall \(hog.* failed to run for (\d+\.\d+)s\)", reason)
    assert stall is not None
    assert 3 <= float(stall[1]) < 10  # the kernel's own watchdog waits for 30
    assert manifest(tmp_path, "ring-2_hogs_eevdf_1")["status"] == "ok"


def test_a_program_that_loads_no_scheduler_is_reported(tmp_path: Path) -> None:
    shutil.copy("/bin/false", tmp_path / "scx_false")
    done = numalab("scheduler", "check", tmp_path / "scx_false", "--topology", "ring-2")
    assert done.returncode == 9
    assert "scx_false did not start and exited with status 1" in done.stdout


def test_cpus_are_offline_before_a_scheduler_starts(toolkit: Toolkit) -> None:
    words = ("--topology", "ring-2", "--offline", "1,3", "--json")
    (row,) = json.loads(numalab("scheduler", "check", "scx_simple", *words).stdout)
    assert row["ok"], row["reason"]


def test_check_prints_a_row_for_each_machine(toolkit: Toolkit) -> None:
    words = ("--topology", "mesh-2", "--topology", "memoryless-4", "--json")
    done = numalab("scheduler", "check", "scx_simple", *words)
    rows = json.loads(done.stdout)
    assert [(row["machine"], row["ok"]) for row in rows] == [
        ("mesh-2", True),
        ("memoryless-4", True),
    ]
    assert {row["ops"] for row in rows} == {"simple"}
