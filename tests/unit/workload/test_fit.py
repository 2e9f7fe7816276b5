"""The values of parameters on one machine: what follows from them, and what they cannot be."""

import re
from typing import Any

import pytest

from numalab.topology.load import load_topology
from numalab.workload.parameter_values import MAX_INTEGERS, ParameterValues
from numalab.workload.workload_table import ParameterTable


def table(kind: str, **more: Any) -> ParameterTable:
    default: Any = {"text": "a", "integers": "1", "nodes": "0"}.get(kind, 0)
    return ParameterTable.model_validate({"type": kind, "help": "s", "default": default, **more})


@pytest.fixture
def values() -> ParameterValues:
    return ParameterValues(load_topology("ring-4"))  # four nodes of two CPUs


def test_nodes_give_their_cpus_to_expressions_and_commands(values: ParameterValues) -> None:
    values.add("allowed", table("nodes"), "1,3")
    assert values.nodes == {"allowed": (1, 3)}
    assert values.texts == {"machine.cpulist": "0-7", "allowed.cpulist": "2-3,6-7"}
    assert (values.numbers["allowed.cpus"], values.numbers["allowed.nodes"]) == (4, 2)
    assert values.cpus_of("allowed") == (2, 3, 6, 7)
    assert values.cpus_of(None) == tuple(range(8))


def test_an_expression_uses_the_machine_and_what_came_before(values: ParameterValues) -> None:
    values.add("each", table("integer"), 3)
    values.add("all", table("integer"), "each * machine.cpus")
    assert values.values == {"each": 3, "all": 24}


def test_integers_have_a_count_a_sum_and_a_greatest(values: ParameterValues) -> None:
    values.add("threads", table("integers"), "1,8,4")
    numbers = values.numbers
    assert [numbers[f"threads.{of}"] for of in ("count", "sum", "most")] == [3, 13, 8]
    assert values.values == {"threads": "1,8,4"}


@pytest.mark.parametrize(
    ("kind", "more", "value", "why"),
    [
        ("node", {}, 4, "node 4 is not there"),
        ("node", {}, "1", "needs the number of a node"),
        ("nodes", {}, "", "needs at least one node"),
        ("integer", {}, 1.5, "needs an integer"),
        ("integer", {}, True, "needs an integer"),
        ("number", {}, float("inf"), "needs a number"),
        ("number", {}, -float("nan"), "needs a number"),
        ("integer", {}, 10**400, "needs an integer of at most 308 digits, found 1000"),
        ("number", {}, -(10**400), "needs a number of at most 308 digits, found -1000"),
        ("integers", {}, "1" + "0" * 400, "needs an integer of at most 308 digits"),
        ("integer", {"least": 2}, 1, "needs at least 2"),
        ("integer", {"most": 2}, "machine.cpus", "needs at most 2, found 8"),
        ("integers", {}, "1,1", "names a number twice"),
        ("integers", {}, "1, 2", "needs integers such as"),
        ("integers", {}, ",".join(map(str, range(MAX_INTEGERS + 1))), "needs at most 64 integers"),
        ("text", {"pattern": "[a-z]+"}, "A", "needs a text that matches"),
    ],
)
def test_what_a_value_cannot_be(
    values: ParameterValues, kind: str, more: dict[str, Any], value: Any, why: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        values.add("x", table(kind, **more), value)
    assert "x" not in values.values
