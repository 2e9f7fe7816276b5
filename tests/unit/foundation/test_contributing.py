"""CONTRIBUTING.md: its examples are plug-ins that work as they stand."""

import re
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
from numalab.places import skipped_inputs
from numalab.topology.load import load_topology_file
from numalab.topology.shapes.shape import fitting_keys

PAGE = Path(__file__).parents[3] / "CONTRIBUTING.md"
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
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "plugins").mkdir()
    for name, parts in {"first": examples[:4], "second": examples[4:]}.items():
        (tmp_path / f"plugins/{name}.py").write_text("\n\n".join(parts))
    monkeypatch.setenv("NUMALAB_PATH", str(tmp_path))
    return tmp_path


def test_there_is_an_example_of_every_registry() -> None:
    assert NAMES.keys() == REGISTRIES.keys()


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
    (metric,) = PARSERS.find("json-object")([table], 'begin\n{"rate": 2.5}')
    assert (metric.name, metric.value, metric.unit) == ("rate", 2.5, "ops")


@pytest.mark.usefixtures("lab")
def test_the_executor_is_made() -> None:
    executor = EXECUTORS.find("inline")(ExecutorRequest("", print, lambda *_: None))  # type: ignore
    assert executor is not None
    assert executor.news(0) == []


def test_the_recording_is_the_type_of_measures() -> None:
    assert {"events", "spans", "stays", "queue"} <= set(dir(Recording))
