"""Statistics in the output of a scheduler: lines of JSON, whose numbers become measures. Pure.

The output comes from a guest: lines, names, and the number of statistics are bounded, and what
does not fit is left out.
"""

import json
import re
from collections.abc import Iterator
from typing import TypeGuard

from numalab.measure import LARGEST_NUMBER

MOST = 200  # statistics of a scheduler
_LONGEST_LINE = 1 << 16
_MOST_LINES = 10_000  # the last ones count
_DEEPEST = 6
_LONGEST_NAME = 120
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")

Leaf = tuple[str, int | float]


def printed_statistics(log: str) -> dict[str, int | float]:
    """Return the last value of each number in the lines of JSON objects, by its dotted name.

    A number in an object in an object is `outer.inner`; numbers in lists, and names with other
    characters than letters, digits, `_` and `-`, are left out. So are names beyond `MOST`.
    An answer of the crate scx_stats counts as what it holds.
    """
    values: dict[str, int | float] = {}
    for line in log.splitlines()[-_MOST_LINES:]:
        text = line.strip()
        if not text.startswith("{") or len(text) > _LONGEST_LINE:
            continue
        try:
            printed = json.loads(text)
        except (ValueError, RecursionError):
            continue
        for name, value in _leaves(_answer(printed), "", 0):
            if name in values or len(values) < MOST:
                values[name] = value
    return values


def _answer(printed: object) -> object:
    """Return what an answer of scx_stats 1.1.4 holds: {"errno": 0, "args": {"resp": ...}}."""
    if isinstance(printed, dict) and printed.keys() == {"errno", "args"}:
        args = printed["args"]
        if isinstance(args, dict) and args.keys() == {"resp"}:
            return args["resp"]
    return printed


def _leaves(value: object, name: str, depth: int) -> Iterator[Leaf]:
    """Yield the numbers in a value of JSON with their dotted names."""
    if isinstance(value, dict) and depth < _DEEPEST:
        for key, inner in value.items():
            inside = f"{name}.{key}" if name else key
            if _KEY.fullmatch(key) and len(inside) <= _LONGEST_NAME:
                yield from _leaves(inner, inside, depth + 1)
    # Bounds that NaN and infinity do not keep either, which json reads as well.
    elif _is_number(value) and name and abs(value) < LARGEST_NUMBER:
        yield name, value


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
