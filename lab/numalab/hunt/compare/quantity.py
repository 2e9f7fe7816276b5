"""Quantities of a load that have no limit, and are compared with the reference kernel only."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Literal

from numalab.hunt.finding import Finding
from numalab.hunt.property import PROPERTIES, Judge, Limit, Property
from numalab.hunt.recording import LoadRecording

Change = Literal["more", "less"]
_NO_LIMIT = Limit(1e12, 0.0)
_PERCENT = "%"


@dataclass(frozen=True)
class Quantity:
    """A quantity of a load to compare with the reference kernel: its name, unit and changes.

    Both `changes` count by default. `floor` is added to both values before they are compared, so
    that small numbers are alike; the larger must be `apart` times the smaller, which should be more
    than what 98 % of the loads of two equal kernels show. A share has the unit `%` and is 0 to 100;
    its `less` compares the rest. `label` is its name in sentences, if that is not `name`.
    """

    name: str
    unit: str
    floor: float
    changes: tuple[Change, ...] = ("more", "less")
    apart: float = 2.0
    label: str = ""

    def compared(self, value: float, change: Change) -> float:
        """Return the number to compare, which is larger for a larger change in that direction."""
        if change == "more":
            return value + self.floor
        if self.unit == _PERCENT:
            return 100.0 - value + self.floor
        return 1000.0 * self.floor / (value + self.floor)

    def finding(self, load: int, value: float, change: Change) -> Finding:
        """Return the finding of a load that compares the quantity in one direction."""
        return Finding(
            f"{change}-{self.name}",
            load,
            round(self.compared(value, change), 4),
            _NO_LIMIT.most,
            f"{self.label or self.name}: {value:.4g} {self.unit}".rstrip(),
            weak=True,
            suspect=_NO_LIMIT.suspect,
            apart=self.apart,
            differential=True,
            measured=round(value, 4),
            unit=self.unit,
        )


Measured = Callable[[LoadRecording], float | None]


def register_difference(quantity: Quantity) -> Callable[[Measured], Measured]:
    """Add properties that compare a quantity with the reference kernel, one for each change.

    A decorator of a function that returns the quantity of a load, or None where it has none. The
    properties are called `more-NAME` and `less-NAME`. The first paragraph of the docstring says
    what the quantity is.

        @register_difference(Quantity("switches", "a second", floor=50.0))
        def switches(run: LoadRecording) -> float | None:
            '''Context switches of all CPUs.'''
            return run.events("sched_switch").height / (run.window.length_ns / 1e9)

    Raises UserError for a name that is taken.
    """

    def add(measure: Measured) -> Measured:
        for change in quantity.changes:
            judge = _judge_of(measure, quantity, change)
            entry = Property(
                f"{change}-{quantity.name}", _NO_LIMIT, judge, any_load=True, differential=True
            )
            PROPERTIES.add(entry.name, entry, judge)
        return measure

    return add


def _judge_of(measure: Measured, quantity: Quantity, change: Change) -> Judge:
    @wraps(measure)
    def judge(run: LoadRecording) -> list[Finding]:
        value = measure(run)
        if value is None:
            return []
        return [quantity.finding(run.number, value, change)]

    judge.__doc__ = (
        f"{quantity.name} is not {change} than with the reference kernel: {measure.__doc__}"
    )
    return judge
