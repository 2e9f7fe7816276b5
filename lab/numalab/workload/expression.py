"""The arithmetic of a workload file: `hogs_per_cpu * allowed_nodes.cpus`.

Numbers, names, `+ - * / //`, parentheses, `min()` and `max()`. A file cannot run code with them.
"""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

Number = int | float
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"min": min, "max": max}
_MAX_LENGTH = 200
_MAX_VALUE = 1e15


def parse_expression(text: str) -> ast.expr:
    """Parse an expression. Raises ValueError that quotes the part that is not allowed."""
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"an expression of more than {_MAX_LENGTH} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"not an expression: {text!r}") from None
    _check(tree, text)
    return tree


def names_in(expression: ast.expr) -> tuple[str, ...]:
    """Return the names in an expression, in order; `allowed_nodes.cpus` is one name."""
    match expression:
        case ast.Name(id=name):
            return (name,)
        case ast.Attribute(value=ast.Name(id=name), attr=attribute):
            return (f"{name}.{attribute}",)
        case ast.Call(args=arguments):
            return tuple(name for argument in arguments for name in names_in(argument))
        case ast.BinOp(left=left, right=right):
            return (*names_in(left), *names_in(right))
    return ()


def evaluate(expression: ast.expr, values: Mapping[str, Number]) -> Number:
    """Evaluate an expression of `parse_expression`.

    Raises ValueError for a name without a value, a division by zero and a result out of range.
    """
    try:
        result = _value(expression, values)
    except (ZeroDivisionError, OverflowError):
        raise ValueError(f"cannot be evaluated: {ast.unparse(expression)}") from None
    if not math.isfinite(result) or abs(result) > _MAX_VALUE:
        raise ValueError(f"out of range: {ast.unparse(expression)}")
    return result


def _check(node: ast.expr, text: str) -> None:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if abs(value) > _MAX_VALUE:
                raise ValueError(f"a number out of range in {text!r}")
        case ast.Name() | ast.Attribute(value=ast.Name()):
            pass
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            _check(left, text)
            _check(right, text)
        case ast.Call(func=ast.Name(id=name), args=[_, _, *_] as arguments, keywords=[]) if (
            name in _FUNCTIONS
        ):
            for argument in arguments:
                _check(argument, text)
        case _:
            raise ValueError(
                f"{ast.unparse(node)!r} is not allowed in {text!r} (valid: numbers, names, "
                "+ - * / //, min() and max())"
            )


def _value(node: ast.expr, values: Mapping[str, Number]) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.BinOp(left=left, op=op, right=right):
            result: Number = _OPERATORS[type(op)](_value(left, values), _value(right, values))
            return result
        case ast.Call(func=ast.Name(id=name), args=arguments):
            chosen: Number = _FUNCTIONS[name](*(_value(argument, values) for argument in arguments))
            return chosen
    (name,) = names_in(node)
    if name not in values:
        raise ValueError(f"unknown name {name!r}")
    return values[name]
