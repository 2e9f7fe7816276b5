"""Scales on which two samples are compared, and changes on them."""

from collections.abc import Sequence
from math import exp, inf, log
from typing import Literal, get_args

Scale = Literal["count", "ratio", "linear"]
SCALES: tuple[Scale, ...] = get_args(Scale)

_TIMES = frozenset({"s", "ms", "us", "ns"})
_ZERO = 0.5  # added to counts, so that 0 has a logarithm (M. S. Bartlett, Biometrics 3, 1947, 39)


def on_scale(values: Sequence[float], scale: Scale) -> list[float]:
    """Return values on a scale, on which a change is a difference.

    `count`: the logarithm of the count + 0.5. `ratio`: the logarithm. `linear`: the value. Raises
    ValueError for a value that the scale does not have.
    """
    if scale == "linear":
        return list(values)
    added = _ZERO if scale == "count" else 0.0
    if values and min(values) + added <= 0:
        raise ValueError(f"{min(values):g} has no logarithm")
    return [log(value + added) for value in values]


def change_of(shift: float, scale: Scale) -> float:
    """Return a difference on the scale as a change in percent; `linear` keeps the unit."""
    if scale == "linear":
        return shift
    return 100 * (exp(shift) - 1) if shift < 700 else inf


def shift_of(change: float, scale: Scale) -> float:
    """Return a change in percent as a difference on the scale; `linear` keeps the unit.

    -100 % is -infinity.
    """
    if scale == "linear":
        return change
    if change <= -100:
        return -inf
    return log(1 + change / 100)


def margin_of(margin: float, scale: Scale) -> tuple[float, float]:
    """Return the differences on the scale that are no change: +-`margin` percent or units."""
    return shift_of(-margin, scale), shift_of(margin, scale)


def default_scale(unit: str, values: Sequence[float] = ()) -> Scale:
    """Return the scale of measured values in a unit: `linear` for percentages, `ratio` for times
    and rates, else `count`.

    Where some value is no whole number, the measure counts no events, and has `ratio` as well, but
    for a value of 0 or below, which has no logarithm.
    """
    if unit == "%":
        return "linear"
    counted = min(values, default=0) <= 0 or all(float(value).is_integer() for value in values)
    return "ratio" if unit in _TIMES or "/" in unit or not counted else "count"
