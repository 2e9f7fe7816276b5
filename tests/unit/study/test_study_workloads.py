from pathlib import Path

import pytest

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
