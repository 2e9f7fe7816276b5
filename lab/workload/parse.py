"""What a workload printed -> numbers with a unit."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lab.errors import WorkloadFailed
from lab.workload.model import MetricSpec

# The output comes from a guest; more than this is not a table of results.
MAX_LINES = 100_000
MAX_LINE = 4096


@dataclass(frozen=True)
class Metric:
    """A number a workload printed. `label` tells apart what it printed several times, or is ""."""

    name: str
    label: str
    value: float
    unit: str
    direction: str
    kind: str


def parse_metrics(specs: Iterable[MetricSpec], output: str) -> tuple[Metric, ...]:
    """Read the metrics from a workload's standard output, in the order of `specs`, then of lines.

    A line counts when the whole of it, without surrounding blanks, matches. Raises WorkloadFailed,
    quoting the output's end, when a required metric is not there or is not a finite number.
    """
    lines = [line[:MAX_LINE].strip() for line in output.splitlines()[:MAX_LINES]]
    found: list[Metric] = []
    for spec in specs:
        of_spec = [metric for line in lines if (metric := _read(spec, line)) is not None]
        if spec.required and not of_spec:
            tail = "".join(f"\n  | {line[:200]}" for line in lines[-5:])
            raise WorkloadFailed(f"the workload did not print {spec.name}{tail or ': no output'}")
        found += of_spec
    return tuple(found)


def _read(spec: MetricSpec, line: str) -> Metric | None:
    match = spec.pattern.fullmatch(line)
    if match is None:
        return None
    try:
        value = float(match["value"])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise WorkloadFailed(f"{spec.name} is not a number: {line[:200]!r}")
    label = match.groupdict().get("label") or ""
    return Metric(spec.name, label, value, spec.unit, spec.direction, spec.kind)
