import pytest

from numalab.workload.expression import evaluate, names_in, parse_expression


@pytest.mark.parametrize(
    ("text", "values", "result"),
    [
        ("2", {}, 2),
        ("hogs * cpus", {"hogs": 2, "cpus": 4}, 8),
        ("2 + 3 * 4", {}, 14),
        ("(2 + 3) * 4", {}, 20),
        ("machine.cpus // 3", {"machine.cpus": 8}, 2),
        ("machine.cpus / 4 - 1", {"machine.cpus": 8}, 1.0),
        ("min(a, 5) + max(1, 2, a)", {"a": 7}, 12),
    ],
)
def test_arithmetic(text: str, values: dict[str, int], result: float) -> None:
    assert evaluate(parse_expression(text), values) == result


def test_names_are_those_used() -> None:
    assert names_in(parse_expression("a * machine.cpus + min(b, 3)")) == ("a", "machine.cpus", "b")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "open('/etc/passwd')",
        "__import__('os')",
        "a ** 9999999",
        "a.b.c",
        "'text'",
        "True",
        "[1]",
        "a if b else c",
        "min(1)",
        "min(1, 2, key=a)",
        "min(*a, 2)",
        "9" * 300,
        "1e300",
        "(" * 150,
        "-1",
    ],
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expression|not allowed|out of range"):
        parse_expression(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("1 / a", "cannot be evaluated"), ("b", "unknown name 'b'"), ("c * c", "out of range")],
)
def test_what_cannot_be_worked_out_is_an_error(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(parse_expression(text), {"a": 0, "c": 1e14})
