"""CONTRIBUTING.md: its examples are plug-ins that work as they stand."""

import re
import shutil
import sys
from pathlib import Path

import pytest

from numalab.api import (
    EXECUTORS,
    PARSERS,
    REGISTRIES,
    ExecutorRequest,
    MetricTable,
    Recording,
    Registry,
)
from numalab.errors import WorkloadFailed
from numalab.places import project_dir, skipped_inputs
from numalab.process import run
from numalab.topology.load import load_topology_file
from numalab.topology.shapes.shape import fitting_keys
from numalab.workload.metric_parsers import read_metrics

PAGE = project_dir() / "CONTRIBUTING.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
# `| shape | `lab/numalab/topology/shapes/` | ...`
FOLDERS = re.findall(r"^\|[^|]+\| `(lab/numalab/\S+/)` \|", PAGE.read_text("utf-8"), re.MULTILINE)
NAMES = {
    "shapes": "wheel",
    "measures": "forks",
    "formats": "verdicts",
    "parsers": "json-object",
    "properties": "few-wake-ups",
    "axes": "swappiness",
    "sources": "loadavg",
    "executors": "inline",
}
WHEEL = """
summary = "A wheel"
nodes = 6
cpus = 1
memory_mib = 256

[shape]
kind = "wheel"
distances = [10, 16, 22]
spokes = 5
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_plugins: None) -> Path:
    """A lab folder with two plug-ins, which share the examples of the page."""
    (tmp_path / "plugins").mkdir()
    for name, parts in {"first": EXAMPLES[:4], "second": EXAMPLES[4:]}.items():
        (tmp_path / f"plugins/{name}.py").write_text("\n\n".join(parts))
    monkeypatch.setenv("NUMALAB_PATH", str(tmp_path))
    return tmp_path


def test_there_is_an_example_and_a_folder_of_every_registry() -> None:
    assert NAMES.keys() == REGISTRIES.keys()
    assert len(EXAMPLES) == len(FOLDERS) == len(NAMES)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the examples as modules in the folders of the page."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(project_dir() / "lab", folder / "lab")
    shutil.copy(project_dir() / "pyproject.toml", folder)
    for example, package in zip(EXAMPLES, FOLDERS, strict=True):
        (folder / package / "added.py").write_text(f'"""An example."""\n\n{example}')
    return folder


def test_the_rooms_allow_the_examples_as_built_in_modules(copy: Path) -> None:
    lint = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    words = [sys.executable, "-c", lint, "--no-cache"]
    done = run(words, cwd=copy, env={"PYTHONPATH": str(copy / "lab")}, check=False)
    assert "0 broken" in done.stdout, done.stdout


@pytest.mark.parametrize("words", [["format", "--diff"], ["check"]])
def test_the_examples_pass_the_lints(copy: Path, words: list[str]) -> None:
    files = [copy / folder / "added.py" for folder in FOLDERS]
    done = run([sys.executable, "-m", "ruff", *words, "--no-cache", *files], cwd=copy, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_example_is_built_in_whichever_module_is_imported_first(copy: Path, folder: str) -> None:
    module = folder.removeprefix("lab/").replace("/", ".") + "added"
    program = (
        f"import {module}\n"
        "from numalab.api import REGISTRIES\n"
        "print(*(name for registry in REGISTRIES.values() for name in registry.built_in()))"
    )
    done = run([sys.executable, "-c", program], env={"PYTHONPATH": str(copy / "lab")})
    assert set(NAMES.values()) <= set(done.stdout.split())


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize("kind", NAMES)
def test_an_example_is_registered_and_described(kind: str) -> None:
    registry: Registry[object] = REGISTRIES[kind]
    assert NAMES[kind] in registry.all()
    assert NAMES[kind] not in registry.built_in()
    assert registry.describe(NAMES[kind]).endswith(".")
    assert not skipped_inputs()


def test_the_shape_makes_a_machine_and_is_drawn(lab: Path) -> None:
    (lab / "wheel-6.toml").write_text(WHEEL)
    assert len(load_topology_file(lab / "wheel-6.toml").links) == 10
    assert fitting_keys("wheel", 6) == [{"spokes": 5}]


@pytest.mark.usefixtures("lab")
def test_the_parser_reads_values() -> None:
    table = MetricTable(name="rate", unit="ops", direction="higher", kind="timing")
    extra = table.model_copy(update={"name": "extra", "required": False})
    (metric,) = PARSERS.find("json-object")([table, extra], 'begin\n{"rate": 2.5}')
    assert (metric.name, metric.value, metric.unit) == ("rate", 2.5, "ops")


@pytest.mark.usefixtures("lab")
@pytest.mark.parametrize("output", ["", "{}", "[1]", '{"rate": "fast"}'])
def test_the_parser_refuses_an_output_without_a_required_metric(output: str) -> None:
    table = MetricTable(name="rate", unit="ops", direction="higher", kind="timing")
    with pytest.raises(WorkloadFailed, match=r"rate is not a number|cannot read the output"):
        read_metrics("json-object", [table], output)


@pytest.mark.usefixtures("lab")
def test_the_executor_is_made() -> None:
    executor = EXECUTORS.find("inline")(ExecutorRequest("", print, lambda *_: None))  # type: ignore
    assert executor is not None
    assert executor.news(0) == []


def test_the_recording_is_the_type_of_measures() -> None:
    assert {"events", "spans", "stays", "queue"} <= set(dir(Recording))
