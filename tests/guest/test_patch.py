"""`numalab patch` on a kernel that does not survive: a verdict, not silence."""
# ruff: noqa: E101 - a patch has blanks before tabs

import json
import subprocess
import sys
from pathlib import Path

PANIC = """\
Subject: [PATCH] sched/core: Refuse NUMA machines

---
--- a/kernel/sched/core.c
+++ b/kernel/sched/core.c
@@ -8379,6 +8379,7 @@ int sched_cpu_dying(unsigned int cpu)
 void __init sched_init_smp(void)
 {
 	sched_init_numa(NUMA_NO_NODE);
+	BUG_ON(nr_node_ids > 1);
~
 	prandom_init_once(&sched_rnd_state);
~
"""


def test_a_patch_that_panics_is_a_regression_with_one_load_and_no_time(tmp_path: Path) -> None:
    """Two lost runs are needed, and the first one takes all of the time."""
    patch = tmp_path / "panic.patch"
    patch.write_text(PANIC.replace("~\n", " \n"))  # an empty line of context
    words = ["--base", "debian-6.12", "--topologies", "ring-2", "--workloads", "hogs"]
    done = subprocess.run(
        [sys.executable, "-c", "from numalab.cli.entry import main; main()", "patch", patch, *words,
         "--budget", "1s", "--output", tmp_path / "out", "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["word"] == "regressed"
    assert len(verdict["lost"]["runs"]) == 2
    assert "panicked" in verdict["lost"]["reason"]
    assert "reached, 1 of 1 changed lines" in (tmp_path / "out" / "verdict.txt").read_text()
