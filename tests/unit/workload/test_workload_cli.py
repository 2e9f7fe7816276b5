"""`numalab workload`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from numalab.cli.inputs import workload
from numalab.errors import UserError
from numalab.workload.workload import list_workloads


def invoke(*words: str) -> str:
    result = CliRunner().invoke(workload.app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_every_workload_is_listed_with_what_it_stresses() -> None:
    listed = {row["name"]: row for row in json.loads(invoke("list", "--json"))}
    assert tuple(listed) == list_workloads()
    assert "wakeup path" in listed["schbench"]["stresses"]
    text = invoke("list")
    assert all(name in text for name in listed)


def test_a_workload_is_shown_as_it_fits_a_machine() -> None:
    text = invoke("show", "numa04", "--topology", "ring-4")
    assert "ring-4: /usr/lib/numalab/marked perf bench numa mem" in text
    assert "-p 4 -t 2" in text
    assert "machine.nodes" in text
    shown = json.loads(invoke("show", "numa04", "--topology", "mesh-8", "--json"))
    assert shown["parameters"]["processes"] == 8
    assert {"name": "speed", "unit": "GB/s", "direction": "higher", "kind": "timing"} in shown[
        "metrics"
    ]


def test_node_numbers_of_the_guest_in_the_command_are_told() -> None:
    boots = Path(__file__).parents[2] / "data" / "topology" / "boots"
    text = invoke("show", "bound-hogs", "--topology", str(boots / "swap.toml"))
    moved = "the kernel's node numbers differ from this file: 0 becomes 2, 1 becomes 0"
    assert f"  in this command, {moved}" in text
    assert "differ from this file" not in invoke("show", "bound-hogs")


@pytest.mark.parametrize("name", [name for name in list_workloads() if name != "bound-hogs"])
def test_each_can_be_shown(name: str) -> None:
    text = invoke("show", name, "--topology", "mesh-2")
    assert "metric" in text


def test_what_is_derived_is_shown_too() -> None:
    lines = invoke("show", "bound-hogs").splitlines()
    (hogs,) = [line.split() for line in lines if line.startswith("hogs ")]
    assert hogs[1:3] == ["hogs_per_cpu", "*"]
    assert hogs[-2:] == ["8", "derived"]


def test_a_wrong_name_is_explained() -> None:
    with pytest.raises(UserError, match="did you mean hackbench"):
        invoke("show", "hackbnech")
