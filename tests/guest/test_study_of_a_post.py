"""A cell of the study of the fixes of 2018, with one seed: its tables and its claims."""

import json
import subprocess
import sys
from pathlib import Path

from numalab.image.image_artifact import BuiltImage
from numalab.kernel.kernel_build import BuiltKernel
from numalab.places import project_dir

NUMALAB = [sys.executable, "-c", "from numalab.cli.entry import main; main()"]
STUDY = project_dir() / "studies" / "numa-fixes-2018.toml"
# The study's own file, with one more preset.
ONE_CELL = """
[presets.one-cell]
workloads = ["numa04"]
seeds = [1]
parameters = { numa04 = { loops = 1 } }
"""


def numalab(*words: str) -> str:
    done = subprocess.run(
        [*NUMALAB, *words], capture_output=True, text=True, check=False, timeout=500
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_cell_of_a_post_prints_its_tables_and_claims(
    tmp_path: Path, kernel: BuiltKernel, image: BuiltImage
) -> None:
    study, out = tmp_path / STUDY.name, tmp_path / "out"
    study.write_text(STUDY.read_text() + ONE_CELL)
    words = ("--preset", "one-cell", "--mode", "icount", "--output", str(out))
    printed = " ".join(numalab("run", str(study), *words).split())
    runs = sorted(path.name for path in (out / "runs").iterdir())
    assert runs == ["pairs-4_numa04_after_1", "pairs-4_numa04_before_1"]  # none has failed
    for claim in ("done sooner", "fewer moves by NUMA balancing"):
        assert f"numa04: {claim}" in printed
    (cell,) = json.loads((out / "report.json").read_text())["cells"]
    verdicts = {claim["text"]: (claim["published"], claim["verdict"]) for claim in cell["claims"]}
    assert len(verdicts) == 11
    # A single run of each shows nothing, whatever it is with the packages of the image. Emulation
    # cannot show what takes time.
    published, verdict = verdicts["numa04: fewer moves by NUMA balancing"]
    assert published == "923 to 8"
    assert verdict in (
        "inconclusive (one run has no spread)",
        "not reached (the mechanism does not act in the baseline)",
    )
    assert "cannot be seen in this mode" in verdicts["numa04: done sooner"][1]
    # The tables of the post: times, events and perf stat, vmstat.
    changelog = (out / "changelog.txt").read_text()
    for line in ("numa04   Real: ", "sched_move_numa ", "cpu-migrations ", "numa_hint_faults "):
        assert line in changelog, changelog
    assert (out / "index.html").stat().st_size > 100_000
