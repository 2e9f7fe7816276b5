"""Figures of the runs of one variant."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, log, sqrt

from numalab.measure import Direction

Values = Sequence[float | int | None]


@dataclass(frozen=True)
class Summary:
    """Figures of the runs of one variant.

    `stddev` is the sample's (n - 1), None for a single run. The harmonic and geometric means are
    None unless every value is above 0.
    """

    n: int
    mean: float
    minimum: float
    maximum: float
    stddev: float | None
    harmonic_mean: float | None = None
    geometric_mean: float | None = None

    @property
    def variation(self) -> float | None:
        """The coefficient of variation: the standard deviation in percent of the mean."""
        return None if self.stddev is None or not self.mean else 100 * self.stddev / abs(self.mean)

    @property
    def population_stddev(self) -> float | None:
        """The standard deviation that divides by n, as the tables of 2018 print it."""
        return None if self.stddev is None else self.stddev * sqrt((self.n - 1) / self.n)


def summarise(values: Values) -> Summary | None:
    """Summarise the values of a variant's runs; None without any value."""
    ordered = sorted(numbers(values))
    if not ordered:
        return None
    n, mean = len(ordered), fsum(ordered) / len(ordered)
    squares = fsum((value - mean) ** 2 for value in ordered)
    stddev = sqrt(squares / (n - 1)) if n > 1 else None
    harmonic = geometric = None
    if ordered[0] > 0:
        harmonic = n / sum(1 / value for value in ordered)  # fsum fails where this is infinite
        geometric = exp(fsum(map(log, ordered)) / n)
    return Summary(n, mean, ordered[0], ordered[-1], stddev, harmonic, geometric)


def change_percent(before: float, after: float) -> float | None:
    """Return by how many percent of `before` `after` is larger; None when `before` is 0.

    Of a negative `before`, the percent of its size: the sign is that of the difference.
    """
    return 100 * (after - before) / abs(before) if before else None


def improvement_percent(before: float, after: float, direction: Direction) -> float | None:
    """Return the %Change of a kernel changelog: positive is better, the mean before is 100 %.

    758.98 s to 498.12 s is 34.37 % (lower is better), 22801 to 27059 operations 18.67 % (higher is
    better). None when `before` is 0, or neither direction is better.
    """
    change = change_percent(before, after)
    if change is None or direction == "none":
        return None
    return -change if direction == "lower" else change


def numbers(values: Values) -> list[float]:
    """Return the values of the runs that have one."""
    return [float(value) for value in values if value is not None]
