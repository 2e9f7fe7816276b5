"""The calls of a function, or runs of a block, in a load as findings, in both directions."""

from collections.abc import Iterator, Mapping

from numalab.hunt.calls.functions import CountedFunctions
from numalab.hunt.compare.quantity import Quantity
from numalab.hunt.finding import Finding
from numalab.hunt.property import describe_code, is_part

# Added to both counts, and the ratio that 98 % of the functions and loads of two boots of one
# kernel with different seeds stay below (docs/results/hunt-measurements.md).
FLOOR, _APART = 10.0, 1.9


def quantity_of(function: str) -> Quantity:
    """Return the quantity that compares the calls of a function, or the runs of a block."""
    what = "runs" if is_part(function) else "calls"
    label = f"{what} of {describe_code(function)}"
    return Quantity(f"{what}-of-{function}", "", FLOOR, apart=_APART, label=label)


def call_findings(
    calls: Mapping[int, Mapping[str, int]], functions: CountedFunctions
) -> Iterator[Finding]:
    """Yield the findings about each counted function in each load."""
    quantities = {name: quantity_of(name) for name in functions.all_names}
    for load, counts in calls.items():
        for name, quantity in quantities.items():
            for change in quantity.changes:
                yield quantity.finding(load, counts.get(name, 0), change)
