"""A broken file of a lab folder is named, and every listing shows the rest."""

import os
import subprocess
from pathlib import Path

import pytest

from support import forked

BROKEN = {
    "topologies/bad.toml": "nodes = 'four'\n",
    "workloads/bad/workload.toml": "summary = 1\n",
    "images/bad.toml": "no = 'recipe'\n",
    "plugins/bad.py": "1 / 0\n",
    "kernel-configs/kernels.toml": (
        '[kernel.bad]\nsummary = "x"\nsource = "linux-source-6.12"\nseries = ["nowhere"]\n'
        '[kernel.good]\nsummary = "x"\nsource = "linux-source-6.12"\n'
    ),
}


def numalab(lab: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {name: value for name, value in os.environ.items() if name != "NUMALAB_HOME"}
    return forked.numalab(*words, cwd=lab, env=env)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    for name, text in BROKEN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "shown", "file"),
    [
        (("topology", "list"), "ring-4", "topologies/bad.toml: summary"),
        (("workload", "list"), "numa01", "workloads/bad/workload.toml: summary"),
        (("image", "list"), "base", "images/bad.toml"),
        (("kernel", "list"), "good", "kernel-configs/kernels.toml: kernel.bad.series"),
        (("measures",), "storms", "plugins/bad.py: this plug-in cannot be imported"),
        (("hunt", "--list"), "affinity", "plugins/bad.py: this plug-in cannot be imported"),
    ],
)
def test_a_listing_shows_the_rest(lab: Path, words: tuple[str, ...], shown: str, file: str) -> None:
    done = numalab(lab, *words)
    assert done.returncode == 0, done.stderr
    assert shown in done.stdout
    assert f"warning: left out: {file}" in done.stderr.replace(f"{lab}/", "")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("topology", "show", "bad"), "topologies/bad.toml: summary"),
        (("workload", "show", "bad"), "workloads/bad/workload.toml: summary"),
        (("image", "show", "bad"), "images/bad.toml"),
        (("kernel", "show", "bad"), "kernel.bad.series: no series is called 'nowhere'"),
    ],
)
def test_the_entry_itself_fails_with_the_reason(
    lab: Path, words: tuple[str, ...], reason: str
) -> None:
    done = numalab(lab, *words)
    assert done.returncode == 2
    assert reason in done.stderr
