"""What the command took, what perf counted meanwhile, and what the command printed, as measures."""

from collections.abc import Iterable, Mapping
from typing import cast

from lab.analysis.measure import Direction, Kind, Measure, Number, explain, measure
from lab.capture.perf_stat import perf_measure_name
from lab.capture.times import Times
from lab.workload.parse import Metric


def time_measures(times: Times | None) -> tuple[Measure, ...]:
    """Return elapsed, user and system time in seconds; all None where the guest left none."""
    return (
        measure("elapsed_time", times.elapsed if times else None),
        measure("user_time", times.user if times else None),
        measure("system_time", times.system if times else None),
    )


def perf_measures(counts: Mapping[str, Number]) -> tuple[Measure, ...]:
    """Return a measure for each event of perf; None stays None, for what was not counted."""
    found = []
    for event, count in counts.items():
        about = explain(perf_measure_name(event))
        found.append(
            Measure(
                about.name,
                count,
                about.unit,
                about.direction,
                about.kind,
                about.definition,
                f"{about.source}: {event}",
            )
        )
    return tuple(found)


def metric_measures(workload: str, metrics: Iterable[Metric]) -> tuple[Measure, ...]:
    """Return a measure for each number that the command printed, the label behind its name.

    Of several with one name the last counts, as in a program that prints its state again.
    """
    found = {}
    for each in metrics:
        name = f"{each.name}_{each.label}" if each.label else each.name
        found[name] = Measure(
            name,
            each.value,
            each.unit,
            cast(Direction, each.direction),
            cast(Kind, each.kind),
            f"What {workload} printed as {name}.",
            f"workload: {workload}",
        )
    return tuple(found.values())
