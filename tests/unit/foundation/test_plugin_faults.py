"""A plug-in that fails when it is used is named, and costs nothing else."""

import os
import random
import subprocess
from pathlib import Path

import pytest

from numalab.analysis.analyse import analyse
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.property import PROPERTIES, judge_load, property_names
from numalab.places import project_dir, skipped_inputs
from numalab.recording.recording import Recording
from support import forked
from support.small_traces import Trace
from unit.hunt.recordings import recording

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
    env = {**os.environ, "NUMALAB_HOME": str(folder)}
    return forked.numalab(*words, cwd=folder, env=env)


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
    plugin = lab(tmp_path, '@register_format("odd")\ndef f(study):\n    return 5\n')
    done = numalab(tmp_path, "report", str(RESULTS), "--format", "odd")
    assert (done.returncode, done.stdout) == (2, "")
    reason = "the format 'odd' returned a value of type int, not a text"
    assert f"{plugin}: {reason}" in done.stderr


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


@pytest.mark.usefixtures("without_plugins")
@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("def links(self, nodes):\n        return {}[nodes]", "failed in line 5: KeyError: "),
        (
            "def check(self, nodes):\n        {}[nodes]\n\n    def links(self, nodes): return ()",
            "failed in line 5: KeyError: ",
        ),
        ("def links(self, nodes):\n        return (0,)", "TypeError: "),
    ],
)
def test_no_machine_is_drawn_from_a_shape_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, message: str
) -> None:
    before = [draw_machine(random.Random(seed)) for seed in range(5)]
    plugin = lab(tmp_path, f'@register_shape("odd")\nclass Odd(Shape):\n    {method}\n')
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    assert [draw_machine(random.Random(seed)) for seed in range(5)] == before
    (warning,) = map(str, skipped_inputs())
    assert warning.startswith(f"the shape 'odd': {plugin}: ")
    assert message in warning


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
    plugin = lab(tmp_path, code)
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    marks = trace.mark(90, "numalab: begin"), trace.mark(110, "numalab: end")
    table = trace.table(marks[0], trace.switch(100, 0, "hog:7", "idle"), marks[1])
    analysis = analyse(Recording(table))
    measures = {measure.name: measure.value for measure in analysis.measures}
    assert measures["odd"] is None
    assert measures["task_migrations"] is None or measures["task_migrations"] == 0
    (note,) = analysis.notes
    assert "the measure 'odd' " in note and note.count(str(plugin)) == 1


PROPERTY = """
@register_property("odd", most=1.0)
def f(run):
    '''Odd.'''
    {code}
"""


@pytest.mark.usefixtures("without_plugins")
@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("return {}['x']", "this plug-in failed in line 6: KeyError: 'x'"),
        ("return [5]", "AttributeError: 'int' object has no attribute"),
        ("raise UserError('no node')", "UserError: no node"),
    ],
)
def test_a_property_that_fails_is_named_and_loses_no_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, message: str
) -> None:
    plugin = lab(tmp_path, PROPERTY.replace("{code}", code))
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    run = recording(
        "time ms=1000;hog n=2 cpus=0-3", [(1, "hog0.0", 0, 0, 1000), (2, "hog0.1", 0, 0, 1000)]
    )
    findings, failures = judge_load(run, property_names())
    assert findings == judge_load(run, PROPERTIES.built_in())[0] != ()
    assert failures.keys() == {"odd"}
    assert failures["odd"].startswith(f"the property 'odd' is not judged: {plugin}: {message}")


@pytest.mark.usefixtures("without_plugins")
def test_a_property_that_is_not_selected_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab(tmp_path, PROPERTY.replace("{code}", "return {}['x']"))
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    run = recording(
        "time ms=1000;hog n=2 cpus=0-3", [(1, "hog0.0", 0, 0, 1000), (2, "hog0.1", 0, 0, 1000)]
    )
    findings, failures = judge_load(run, {"affinity"})
    assert ({finding.prop for finding in findings} <= {"affinity"}, failures) == (True, {})


def test_a_name_of_a_measure_has_no_place(tmp_path: Path) -> None:
    lab(tmp_path, '@register_measure("x{node}", unit="x")\ndef f(run):\n    return 1\n')
    done = numalab(tmp_path, "measures")
    assert done.returncode == 0
    assert "'x{node}' is no name of a measure" in done.stderr
