"""A sampled source and an axis from plug-ins of a lab folder, in real guests."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
STUDY = """
question = "Does it reach the guest?"
topologies = ["ring-4"]
mode = "icount"
seeds = [1]
exclude = [{ workloads = ["bound-thp-never"] }]
[variants.now]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
label = "hogs"
parameters = { seconds = 1 }
guest = { env = { WHO = "me too" }, cmdline = ["noresume"] }
[[workloads]]
name = "warehouse"
label = "bound"
parameters = { threads = 4, seconds = 1, own_kib = 64, shared_kib = 64 }
guest = { nodes = "1,3" }
[axes]
thp = ["always", "never"]
[capture]
sample = ["node_memory"]
sample_ms = 200
"""


def test_what_plug_ins_add_reaches_the_guest(tmp_path: Path) -> None:
    """The examples of docs/how-to/write-a-plug-in.md, as they stand there."""
    page = (ROOT / "docs/how-to/write-a-plug-in.md").read_text(encoding="utf-8")
    (tmp_path / "plugins").mkdir()
    for name, code in re.findall(r"```python\n# plugins/(\w+)\.py\n(.*?)```", page, re.DOTALL):
        (tmp_path / f"plugins/{name}.py").write_text(code)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/mine.toml").write_text(STUDY)
    numalab = [sys.executable, "-c", "from numalab.cli.entry import main; main()"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMALAB_H")}
    done = subprocess.run(
        [*numalab, "run", "studies/mine.toml"],
        cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for value in ("always", "never"):
        (run,) = tmp_path.glob(f"reports/mine/*/runs/ring-4_hogs-thp-{value}_now_1")
        made = json.loads((run / "manifest.json").read_text())
        assert made["tunables"] == {"/sys/kernel/mm/transparent_hugepage/enabled": value}
        assert made["cmdline"].endswith(" noresume")
        series = json.loads((run / "analysis.json").read_text())["series"]
        free = [line for line in series if line["name"] == "node_memory-MemFree"]
        assert [line["node"] for line in free] == [0, 1, 2, 3]
        assert all(len(line["values"]) >= 4 and min(line["values"]) > 0 for line in free)
    (bound,) = tmp_path.glob("reports/mine/*/runs/ring-4_bound-thp-always_now_1")
    measured = json.loads((bound / "measures.json").read_text())
    values = {measure["name"]: measure["value"] for measure in measured}
    shares = [values[f"task_time_share_node{node}"] for node in range(4)]
    assert shares[0] == shares[2] == 0
    assert shares[1] + shares[3] > 99
