"""A plug-in that fails when it is used is named, and costs nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from numalab.analysis.analyse import analyse
from numalab.places import project_dir
from numalab.recording.recording import Recording
from support.small_traces import Trace

RESULTS = project_dir() / "reports/examples/group-construction"
TOPOLOGY = 'summary = "x"\nnodes = 3\ncpus = 1\nmemory_mib = 256\n[shape]\nkind = "odd"\n'
STUDY = """
question = "?"
topologies = ["ring-2"]
seeds = [1]
variants = { before = { kernel = "debian-6.12" } }
workloads = [{ name = "bound-hogs" }]
axes = { odd = [1] }
"""


def lab(folder: Path, code: str) -> Path:
    (folder / "plugins").mkdir()
    plugin = folder / "plugins" / "odd.py"
    plugin.write_text(f"from numalab.api import *\n{code}")
    return plugin


def numalab(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = "from numalab.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=folder,
        env={**os.environ, "NUMALAB_HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def f(study):\n    return study.nothing\n", 4),
        ("def f(study):\n    return {}['x']\n", 4),
    ],
)
def test_a_format_that_fails_is_named(tmp_path: Path, code: str, line: int) -> None:
    plugin = lab(tmp_path, f'@register_format("odd")\n{code}')
    done = numalab(tmp_path, "report", str(RESULTS), "--format", "odd")
    assert done.returncode == 2
    assert f"{plugin}: this plug-in failed in line {line}: " in done.stderr


def test_a_format_returns_a_text(tmp_path: Path) -> None:
    lab(tmp_path, '@register_format("odd")\ndef f(study):\n    return 5\n')
    done = numalab(tmp_path, "report", str(RESULTS), "--format", "odd")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the format returned a int, not a text" in done.stderr


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("def links(self, nodes):\n        return {}[nodes]", "this plug-in failed in line 5"),
        ("def links(self, nodes):\n        return ((0, 9),)", "links nodes 0 and 9; there are 3"),
    ],
)
def test_a_shape_that_fails_is_named(tmp_path: Path, method: str, message: str) -> None:
    lab(tmp_path, f'@register_shape("odd")\nclass Odd(Shape):\n    {method}\n')
    file = tmp_path / "odd.toml"
    file.write_text(TOPOLOGY + "distances = [10, 20, 30]\n")
    done = numalab(tmp_path, "topology", "show", str(file))
    assert done.returncode == 2
    assert message in done.stderr


def test_an_axis_that_fails_is_named(tmp_path: Path) -> None:
    plugin = lab(tmp_path, '@register_axis("odd", int)\ndef f(value):\n    return {}[value]\n')
    file = tmp_path / "odd.toml"
    file.write_text(STUDY)
    done = numalab(tmp_path, "plan", str(file))
    assert done.returncode == 2
    assert f"{plugin}: this plug-in failed in line 4: KeyError: 1" in done.stderr


@pytest.mark.usefixtures("without_plugins")
@pytest.mark.parametrize("value", ["{}['x']", "'text'", "True", "float('nan')", "[1]"])
def test_a_measure_that_fails_has_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trace: Trace, value: str
) -> None:
    code = f'@register_measure("odd", unit="x")\ndef f(run):\n    """Odd."""\n    return {value}\n'
    lab(tmp_path, code)
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    analysis = analyse(Recording(trace.table(trace.switch(100, 0, "hog:7", "idle"))))
    measures = {measure.name: measure.value for measure in analysis.measures}
    assert measures["odd"] is None
    assert measures["task_migrations"] is None or measures["task_migrations"] == 0
    (note,) = analysis.notes
    assert note.startswith("the measure 'odd' ")


def test_a_name_of_a_measure_has_no_place(tmp_path: Path) -> None:
    lab(tmp_path, '@register_measure("x{node}", unit="x")\ndef f(run):\n    return 1\n')
    done = numalab(tmp_path, "measures")
    assert done.returncode == 0
    assert "'x{node}' is no name of a measure" in done.stderr
