"""A shell completes the names of machines, kernels, studies, images and workloads."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from numalab.cli import completion


def complete(*words: str) -> list[str]:
    """Return what bash offers for the last of the words."""
    program = "from numalab.cli.entry import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'numalab'; {program}"],
        env={
            **os.environ,
            "_NUMALAB_COMPLETE": "complete_bash",
            "COMP_WORDS": " ".join(["numalab", *words]),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("boot", "ring-"), ["ring-2", "ring-4", "ring-8"]),
        (("topology", "show", "torus"), ["torus-3x3"]),
        (("boot", "--kernel", "debian-6.12-xf"), ["debian-6.12-xfs"]),
        (("hunt", "--kernel", "debian-6.12-xf"), ["debian-6.12-xfs"]),
        (("run", "what-"), ["what-balancing-gains", "what-distance-costs"]),
        (("workload", "show", "numa0"), [f"numa0{number}" for number in range(1, 6)]),
        (("boot", "--image", "be"), ["bench"]),
        (("boot", "nothing-like-this"), []),
    ],
)
def test_bash_completes_names(words: tuple[str, ...], names: list[str]) -> None:
    assert complete(*words) == names


def test_a_file_that_cannot_be_read_leaves_nothing_to_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kernel-configs").mkdir()
    (tmp_path / "kernel-configs" / "kernels.toml").write_text("[kernel")
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    assert completion.kernels("debian") == []
