from pathlib import Path

import pytest

from numalab.analysis.measures.family import register_measure
from numalab.errors import UserError
from numalab.study.plan import plan_study

STUDY = """
question = "q"
topologies = ["ring-4"]
image = "base"
seeds = [1]
[variants.one]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
[[workloads]]
name = "numa01"
parameters = { mib = 32 }
"""


def planned(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        plan_study(path)
    assert caught.value.file == path
    return str(caught.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (
            "{ mbi = 32 }",
            "workloads[1].parameters.mbi: numa01 has no such parameter; did you mean mib? "
            "(valid: threads, mib, huge_pages, loops, seconds)",
        ),
        ("{ mib = 0 }", "workloads[1].parameters.mib: needs at least 1, found 0"),
        (
            '{ mib = "machine.memory" }',
            "workloads[1].parameters.mib: unknown name 'machine.memory'",
        ),
        (
            "{ mib = 2000 }",
            "workloads[1].parameters: numa01 needs 4004 MiB (mib = 2000), "
            "but of the 3072 MiB of ring-4 it may use 2458",
        ),
    ],
)
def test_a_wrong_parameter_names_the_study(tmp_path: Path, new: str, message: str) -> None:
    assert planned(tmp_path, STUDY.replace("{ mib = 32 }", new)) == message


def test_an_image_has_to_have_what_a_workload_needs(tmp_path: Path) -> None:
    text = STUDY.replace('"numa01"\nparameters = { mib = 32 }', '"tcp-stream"')
    assert planned(tmp_path, text) == (
        "image: base lacks the package iperf3 of tcp-stream (valid: bench)"
    )
    path = tmp_path / "mine.toml"
    path.write_text(text.replace('image = "base"', 'image = "bench"'), encoding="utf-8")
    assert plan_study(path).recipe.name == "bench"


METRICS = """
summary = "s"
stresses = "t"
command = ["run"]
seconds = "1"
[[metrics]]
name = "ops"
pattern = 'ops(?:_(?P<label>.+))?: (?P<value>.+)'
unit = "1/s"
direction = "higher"
kind = "timing"
[[metrics]]
name = "on_cpu"
pattern = 'cpu: (?P<value>.+)'
unit = "CPU"
direction = "none"
kind = "placement"
"""
OF_METRICS = STUDY.partition("[[workloads]]")[0] + '[[workloads]]\nname = "mine"\n'


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_plugins: None) -> Path:
    """Return the file of a workload of the user."""
    monkeypatch.delenv("NUMALAB_HOME", raising=False)
    monkeypatch.setenv("NUMALAB_PATH", str(tmp_path))
    path = tmp_path / "workloads/mine/workload.toml"
    path.parent.mkdir(parents=True)
    path.write_text(METRICS, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("elapsed_time", "elapsed_time"),
        ("task_time_share_node0", "task_time_share_node{node}"),
        ("of_a_plugin", "of_a_plugin"),
    ],
)
def test_a_metric_has_no_name_of_a_measure(
    tmp_path: Path, table: Path, name: str, family: str
) -> None:
    """All guests ran, and then nothing could read their results."""
    register_measure("of_a_plugin", unit="s")(lambda _: 1)
    study = tmp_path / "mine.toml"
    study.write_text(OF_METRICS, encoding="utf-8")
    plan_study(study)
    table.write_text(METRICS.replace('"on_cpu"', f'"{name}"'), encoding="utf-8")
    with pytest.raises(UserError) as caught:
        plan_study(study)
    reason = f"{name!r} is a name of the measure {family}; choose another"
    assert str(caught.value) == f"{table}: metrics[1].name: {reason}"


def test_a_claim_may_be_about_each_measure_of_an_optional_label(
    tmp_path: Path, table: Path
) -> None:
    study = tmp_path / "mine.toml"
    claims = [
        f"[[claims]]\ntext = 't'\nmeasure = '{name}'\nvariant = 'one'\nabove = 0\n"
        for name in ("ops", "ops_b")
    ]
    study.write_text(f"key_measures = ['ops']\n{OF_METRICS}{''.join(claims)}", encoding="utf-8")
    assert len(plan_study(study).study.claims) == 2
