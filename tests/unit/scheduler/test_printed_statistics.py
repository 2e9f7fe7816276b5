"""Statistics that a scheduler prints as JSON: the numbers that count, and hostile lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.analysis.measures.family import explain
from numalab.measure import LARGEST_NUMBER, MeasureKind
from numalab.scheduler.printed_statistics import MOST, printed_statistics


def test_the_last_value_of_each_number_counts_by_its_dotted_name() -> None:
    log = (
        "local=12 global=3\n"
        '{"at": 1, "busy": 12.5, "nodes": {"0": {"load": 3}}}\n'
        "not json {\n"
        '  {"at": 2, "nodes": {"0": {"load": 4}, "1": {"load": -5}}, "name": "x", "on": true}\n'
    )
    expected = {"at": 2, "busy": 12.5, "nodes.0.load": 4, "nodes.1.load": -5}
    assert printed_statistics(log) == expected


@pytest.mark.parametrize(
    "line",
    [
        "{" * 100_000,
        '{"a":' * 50_000 + "1" + "}" * 50_000,
        '{"a": ' + "[" * 30_000 + "]" * 30_000 + "}",
        '{"a": NaN, "b": Infinity, "c": -Infinity}',
        '{"a": 1e999, "b": 9223372036854775808, "c": -1e19}',
        '{"a": ' + "9" * 5000 + "}",
        '{"\\u001b[2J": 1, "a b": 2, "": 3, "../x": 4, "a.b": 5, "' + "k" * 300 + '": 6}',
        '{"a": null, "b": "1", "c": [1, 2], "d": false}',
        '{"a": {"a": {"a": {"a": {"a": {"a": {"a": 1}}}}}}}',
        '{"a": "' + "x" * (1 << 17) + '", "b": 1}',
        '[{"a": 1}]',
        "\x00{}\x00",
    ],
)
def test_hostile_lines_leave_nothing(line: str) -> None:
    assert printed_statistics(f"{line}\n") == {}
    assert printed_statistics(f'{line}\n{{"good": 1}}\n') == {"good": 1}


def test_an_answer_of_scx_stats_counts_as_what_it_holds() -> None:
    answer = '{"errno":0,"args":{"resp":{"load":4.5,"nodes":{"0":{"load":2}}}}}\n'
    assert printed_statistics(answer) == {"load": 4.5, "nodes.0.load": 2}
    assert printed_statistics('{"errno":0,"args":[1]}') == {"errno": 0}
    assert printed_statistics('{"errno":22,"args":{"resp":"no"}}') == {}


def test_the_number_of_statistics_is_bounded() -> None:
    many = {f"k{number}": number for number in range(2 * MOST)}
    lines = "\n".join([json.dumps(many), '{"k0": 7, "new": 1}'])
    values = printed_statistics(lines)
    assert len(values) == MOST
    assert values["k0"] == 7


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab.", max_size=3), inner),
)


@given(st.lists(JSON, max_size=5), st.text())
def test_any_output_gives_numbers_that_tables_hold(values: list[object], text: str) -> None:
    log = "\n".join([*map(json.dumps, values), text])
    for name, value in printed_statistics(log).items():
        assert abs(value) < LARGEST_NUMBER
        assert explain(f"scheduler.{name}").kind is MeasureKind.TIMING
