"""Parsers, which read the metrics in the output of a workload."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numalab.errors import WorkloadFailed
from numalab.plugins import Registry
from numalab.workload.exit_status import ended_by
from numalab.workload.workload_table import MetricTable

# Bounds for output, which comes from a guest; `left_by_guest` bounds the bytes of all lines.
MAX_LINE = 4096
MOST_METRICS = 20_000  # numbers of one run; the results of a run have room for 24,000
_LINE = re.compile(r"[^\r\n]+")
_END = 100_000  # characters, which hold the lines that an error quotes
_NOT_STARTED = {
    125: "was not started",
    126: "is no program that the guest can execute",
    127: "was not found in the guest; is its package in the image?",
}
# oom_kill_process() in the kernel's mm/oom_kill.c.
_OOM = re.compile(r"(Memory cgroup out of memory: )?Killed process \d+ \(([^)]{1,15})\)")


@dataclass(frozen=True)
class Metric:
    """A number that a workload printed; `label` tells several of one name apart, or is ""."""

    name: str
    label: str
    value: float
    unit: str
    direction: str
    kind: str

    @property
    def measure(self) -> str:
        """The name of its measure."""
        return f"{self.name}_{self.label}" if self.label else self.name


Parser = Callable[[Sequence[MetricTable], str], tuple[Metric, ...]]
PARSERS: Registry[Parser] = Registry("parser", "numalab.workload.parsers")


def register_parser(name: str) -> Callable[[Parser], Parser]:
    """Add a parser, which a workload selects with `parser = "NAME"`; a decorator.

    It decorates a function that gets the metrics of the workload and its standard output, which is
    not trusted, and returns the numbers. The docstring describes the parser.

        @register_parser("csv")
        def csv_columns(metrics: Sequence[MetricTable], output: str) -> tuple[Metric, ...]:
            '''The last line of a table; a metric is the column of its name.'''
            row = list(csv.DictReader(output.splitlines()))[-1]
            return tuple(metric_value(metric, row[metric.name]) for metric in metrics)

    Raises UserError for a name that is taken.
    """

    def add(parser: Parser) -> Parser:
        PARSERS.add(name, parser, parser)
        return parser

    return add


def read_metrics(
    parser: str, metrics: Sequence[MetricTable], output: str, errors: str = ""
) -> tuple[Metric, ...]:
    """Return the metrics in the output of a workload, which the parser of this name reads.

    Raises WorkloadFailed, with the end of the output and of the standard error `errors`, for output
    that the parser cannot read, for a parser that gives something else or not all that is required,
    for a number that is printed twice, and for more than `MOST_METRICS`.
    """
    try:
        values = tuple(map(_metric, PARSERS.find(parser)(metrics, output)))
        _check_required(parser, metrics, values, output)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        text = f"the parser {parser} cannot read the output: {reason}{_tail(output)}"
        raise WorkloadFailed(text) from error
    except WorkloadFailed as error:
        if not (end := _tail(errors)):
            raise
        raise WorkloadFailed(f"{error}\nmetrics are not read from standard error:{end}") from None
    _check_names(values)
    return values


def _metric(value: object) -> Metric:
    if not isinstance(value, Metric):
        raise TypeError(f"a {type(value).__name__} is not a Metric")
    if not isinstance(value.value, int | float) or not math.isfinite(value.value):
        raise ValueError(f"{value.name} is not a number: {value.value!r:.200}")
    return value


def _check_required(
    parser: str, metrics: Sequence[MetricTable], values: Sequence[Metric], output: str
) -> None:
    names = {value.name for value in values}
    for metric in metrics:  # a percentile of too few samples may be left out
        if metric.required and metric.percentile is None and metric.name not in names:
            reason = f"the parser {parser} gave no {metric.name}, which is required"
            raise WorkloadFailed(f"{reason}{_tail(output)}")


def _check_names(values: Sequence[Metric]) -> None:
    """Raise WorkloadFailed for two numbers of one measure, and for too many numbers."""
    first: dict[str, Metric] = {}
    for metric in values:
        if (other := first.setdefault(metric.measure, metric)) is not metric:
            both = f"{other.value:g} and {metric.value:g}"
            raise WorkloadFailed(
                f"the workload printed {_shown(metric.measure[:200])} twice: {both}; "
                "print it once, or tell the lines apart by the group `label` of its pattern"
            )
    if len(first) > MOST_METRICS:
        raise WorkloadFailed(f"the workload printed {len(first)} metrics, more than {MOST_METRICS}")


def metric_value(metric: MetricTable, text: str, label: str = "") -> Metric:
    """Return a metric with the number in `text`. Raises WorkloadFailed for no finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise WorkloadFailed(f"{metric.name} is not a number: {text[:200]!r}")
    return Metric(metric.name, label, value, metric.unit, metric.direction, metric.kind)


@register_parser("lines")
def parse_metrics(metrics: Sequence[MetricTable], output: str) -> tuple[Metric, ...]:
    """Lines that match the pattern of a metric, without surrounding blanks.

    A percentile of too few samples is left out: it would be the maximum. Raises WorkloadFailed,
    which quotes the end of the output, for a required metric that is missing or not a finite
    number.
    """
    patterns = [re.compile(metric.pattern) for metric in metrics]
    matches: list[list[re.Match[str]]] = [[] for _ in metrics]
    for line in _LINE.finditer(output):
        text = line[0][:MAX_LINE].strip()
        for pattern, of_metric in zip(patterns, matches, strict=True):
            if match := pattern.fullmatch(text):
                of_metric.append(match)
    values: list[Metric] = []
    for metric, of_metric in zip(metrics, matches, strict=True):
        if metric.required and not of_metric:
            tail = _tail(output) or ": no output"
            raise WorkloadFailed(f"the workload did not print {metric.name}{tail}")
        values += [
            metric_value(metric, match["value"], match.groupdict().get("label") or "")
            for match in of_metric
            if _has_enough(metric, match)
        ]
    return tuple(values)


def explain_failure(name: str, status: int, output: str, kernel_log: str = "") -> str:
    """Explain why a workload ended with a status other than 0, with the end of its output.

    `status` is the shell's: 125 to 127 for a command that could not be started, 128 plus the number
    of a signal, or what the program chose. `output` is its standard error.
    """
    if status in _NOT_STARTED:
        why = f"{name} {_NOT_STARTED[status]}"
    else:
        ended = ended_by(status)
        why = f"{name} exited with status {status}" + (f": {ended}" if ended else "")
    if killed := _OOM.search(kernel_log):
        full = "a memory cgroup was full" if killed[1] else "the guest had no memory left"
        why += f"; {full} and the kernel killed {_shown(killed[2])}"
    return why + _tail(output)


def _tail(output: str) -> str:
    """Return the last lines that are not blank, indented, without control characters."""
    lines = [line for line in output[-_END:].splitlines() if line.strip()]
    return "".join(f"\n  | {_shown(line[:200])}" for line in lines[-5:])


def _shown(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def fewest_samples(percentile: float) -> int:
    """Return how many samples a percentile (0 to 100) needs so that one lies beyond it.

    By nearest rank the percentile p of n samples has rank ceil(n * p / 100) (Hyndman and Fan, The
    American Statistician 50, 1996, 361-365, definition 1), which is below n from
    n = 100 / (100 - p) on.
    """
    # Rounded, as 100 - 99.9 is a little below 0.1.
    return math.ceil(round(100 / (100 - percentile), 6))


def _has_enough(spec: MetricTable, match: re.Match[str]) -> bool:
    if spec.percentile is None:
        return True
    samples = match["samples"]
    return samples.isdecimal() and int(samples) >= fewest_samples(spec.percentile)
