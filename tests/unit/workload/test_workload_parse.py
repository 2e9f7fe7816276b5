import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from numalab.errors import UserError, WorkloadFailed
from numalab.plugins import unload_plugins
from numalab.workload.metric_parsers import (
    MAX_LINE,
    PARSERS,
    Metric,
    explain_failure,
    fewest_samples,
    metric_value,
    parse_metrics,
    read_metrics,
    register_parser,
)
from numalab.workload.workload import load_workload
from numalab.workload.workload_table import MetricTable

# What the two programs printed in a guest.
HOGS = """\
hog 0 pid 109 cpu_seconds 1.267423 last_cpu 2 loops 79213941
hog 1 pid 110 cpu_seconds 2.110142 last_cpu 3 loops 131883907
total loops 211097848 per_second 70365949.3
"""
NUMA_MEM = """\
# Running 'numa/mem' benchmark:

 # Running main, "perf bench numa numa-mem -p 2 -t 4 -P 64 -s 4 -zZ0q"
          4.067 secs slowest (max) thread-runtime
          4.000 secs fastest (min) thread-runtime
          4.020 secs average thread-runtime
          0.819 % difference between max/avg runtime
          2.155 GB data processed, per thread
         17.244 GB data processed, total
          1.887 nsecs/byte/thread runtime
          0.530 GB/sec/thread speed
          4.240 GB/sec total speed
"""


def spec(pattern: str, *, required: bool = True) -> MetricTable:
    return MetricTable(
        name="speed", pattern=pattern, unit="GB/s", direction="higher", kind="timing",
        required=required,
    )  # fmt: skip


def test_bound_hogs_print_a_line_for_each_hog() -> None:
    metrics = parse_metrics(load_workload("bound-hogs").table.metrics, HOGS)
    assert [(m.name, m.label, m.value) for m in metrics] == [
        ("hog_cpu_time", "0", 1.267423),
        ("hog_cpu_time", "1", 2.110142),
        ("hog_last_cpu", "0", 2.0),
        ("hog_last_cpu", "1", 3.0),
        ("throughput", "", 70365949.3),
    ]
    assert {m.kind for m in metrics if m.name == "hog_last_cpu"} == {"identifier"}


def test_perf_bench_numa_mem() -> None:
    metrics = parse_metrics(load_workload("numa-mem").table.metrics, NUMA_MEM)
    assert [(m.name, m.value, m.unit) for m in metrics] == [
        ("thread_runtime", 4.02, "s"),
        ("speed", 4.24, "GB/s"),
    ]


def test_a_line_counts_only_as_a_whole() -> None:
    with pytest.raises(WorkloadFailed, match="did not print speed"):
        parse_metrics([spec(r"(?P<value>\d+)")], "about 3 or so\n")


def test_a_parser_of_a_plug_in_may_label_any_number() -> None:
    of = spec("")
    assert of.is_named("speed") and of.is_named("speed_a") and not of.is_named("speeds")
    labelled = spec(r"(?P<label>\w) (?P<value>\d+)")
    assert labelled.is_named("speed_a") and not labelled.is_named("speed")


def test_what_is_missing_quotes_the_end_of_the_output() -> None:
    with pytest.raises(WorkloadFailed, match=r"did not print speed\n  \| Segmentation fault"):
        parse_metrics([spec(r"(?P<value>\d+) GB")], "Segmentation fault\n")
    with pytest.raises(WorkloadFailed, match="no output"):
        parse_metrics([spec(r"(?P<value>\d+) GB")], "")


def test_what_is_not_required_may_be_missing() -> None:
    assert parse_metrics([spec(r"(?P<value>\d+) GB", required=False)], "nothing\n") == ()


def test_a_result_after_many_lines_counts() -> None:
    progress = "working\n" * 200_000
    (metric,) = parse_metrics([spec(r"speed (?P<value>\d+)")], f"{progress}speed 106\n")
    assert metric.value == 106


def test_lines_end_as_a_terminal_shows_them() -> None:
    pattern = r"speed (?P<label>\w) (?P<value>\d+)"
    metrics = parse_metrics([spec(pattern)], "speed a 1\r\n\nspeed b 2\rspeed c 3")
    assert [(metric.label, metric.value) for metric in metrics] == [("a", 1), ("b", 2), ("c", 3)]


def test_a_number_that_is_printed_twice_is_an_error() -> None:
    once = [spec(r"speed (?P<value>\d+)")]
    why = r"printed speed twice: 50 and 106; print it once, or tell the lines apart by the group"
    with pytest.raises(WorkloadFailed, match=why):
        read_metrics("lines", once, "speed 50\nspeed 106\n")
    labelled = [spec(r"speed (?P<label>\w+) (?P<value>\d+)")]
    with pytest.raises(WorkloadFailed, match="printed speed_a twice: 50 and 106"):
        read_metrics("lines", labelled, "speed a 50\nspeed b 7\nspeed a 106\n")
    with pytest.raises(WorkloadFailed, match="printed 20001 metrics, more than 20000"):
        read_metrics("lines", labelled, "".join(f"speed {i} 1\n" for i in range(20_001)))


def _generated(metrics: Sequence[MetricTable], output: str) -> Iterator[Metric]:
    """One number for each line."""
    for metric, line in zip(metrics, output.splitlines(), strict=False):
        yield metric_value(metric, line)


CANNOT = "the parser mine cannot read the output"


def _nothing(metrics: Sequence[MetricTable], output: str) -> Any:
    """No `return`."""


def _text(metrics: Sequence[MetricTable], output: str) -> Any:
    """No metric."""
    return [output]


def _not_finite(metrics: Sequence[MetricTable], output: str) -> Any:
    """What float() does not take, or takes for no number."""
    value: Any = math.nan if output else "5"
    return [Metric("speed", "", value, "MB/s", "higher", "timing")]


@pytest.mark.usefixtures("without_plugins")
@pytest.mark.parametrize(
    ("parser", "output", "why"),
    [
        (_generated, "5\n", ""),
        (_generated, "", "the parser mine gave no speed, which is required"),
        (_generated, "fast\n", "speed is not a number: 'fast'"),
        (_nothing, "5\n", f"{CANNOT}: TypeError: 'NoneType' object"),
        (_text, "5\n", f"{CANNOT}: TypeError: a str is not a Metric"),
        (_not_finite, "", f"{CANNOT}: ValueError: speed is not a number: '5'"),
        (_not_finite, "5\n", f"{CANNOT}: ValueError: speed is not a number: nan"),
    ],
)
def test_what_the_parser_of_a_plug_in_gives_is_checked(
    parser: Callable[[Sequence[MetricTable], str], Any], output: str, why: str
) -> None:
    register_parser("mine")(parser)
    slow = spec("").model_copy(update={"name": "slow", "required": False})
    late = spec("").model_copy(update={"name": "late", "percentile": 99.0})
    metrics = [spec(""), slow, late]
    if not why:
        assert [metric.value for metric in read_metrics("mine", metrics, output)] == [5]
        return
    with pytest.raises(WorkloadFailed) as caught:
        read_metrics("mine", metrics, output, "speed 106\n")
    assert str(caught.value).startswith(why)
    ends = "metrics are not read from standard error:\n  | speed 106"
    assert str(caught.value).endswith(ends) is (CANNOT not in why)


def test_what_is_missing_may_be_on_standard_error() -> None:
    """It is not read: a kernel or a library may write to it, too."""
    once = [spec(r"speed (?P<value>\d+)")]
    for output, end in (("", ": no output"), ("begin\n", "\n  | begin")):
        with pytest.raises(WorkloadFailed) as caught:
            read_metrics("lines", once, output, "speed 106\n")
        assert str(caught.value) == (
            f"the workload did not print speed{end}\n"
            "metrics are not read from standard error:\n  | speed 106"
        )


@pytest.mark.parametrize("value", ["nan", "inf", "1e999", "three"])
def test_a_value_must_be_a_finite_number(value: str) -> None:
    with pytest.raises(WorkloadFailed, match="speed is not a number"):
        parse_metrics([spec(r"speed (?P<value>\S+)")], f"speed {value}\n")


def test_a_guest_cannot_make_a_line_endless() -> None:
    with pytest.raises(WorkloadFailed):
        parse_metrics([spec(r"x+ (?P<value>\d+)")], "x" * MAX_LINE + " 1\n")


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (1, "mine exited with status 1"),
        (125, "mine was not started"),
        (126, "mine is no program that the guest can execute"),
        (127, "mine was not found in the guest; is its package in the image?"),
        (129, "mine exited with status 129: ended by SIGHUP, or it chose that status"),
        (168, "mine exited with status 168: ended by signal 40, or it chose that status"),
        (255, "mine exited with status 255"),
    ],
)
def test_why_a_workload_failed(status: int, why: str) -> None:
    assert explain_failure("mine", status, "") == why
    said = explain_failure("mine", status, "one\n\nthis kernel has no XFS\n")
    assert said == f"{why}\n  | one\n  | this kernel has no XFS"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("Out of memory", "the guest had no memory left"),
        ("Memory cgroup out of memory", "a memory cgroup was full"),
    ],
)
def test_a_workload_that_ran_out_of_memory(message: str, why: str) -> None:
    log = f"[ 4.2] {message}: Killed process 77 (stream) total-vm:9kB, anon-rss:8kB\n"
    assert explain_failure("mine", 137, "", log) == (
        "mine exited with status 137: ended by SIGKILL, or it chose that status; "
        f"{why} and the kernel killed stream"
    )


def test_what_a_guest_printed_does_nothing_to_a_terminal() -> None:
    said = explain_failure("mine", 1, "\x1b[2Jgone\x07\n" * 10, "Killed process 1 (\x1b[31m)")
    assert "\x1b" not in said and "\x07" not in said
    assert said.count("gone") == 5
    with pytest.raises(WorkloadFailed) as caught:
        parse_metrics(load_workload("pipe").table.metrics, "\x1b[2Jgone\n")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("percentile", "fewest"), [(50, 2), (75, 4), (90, 10), (99, 100), (99.5, 200), (99.9, 1000)]
)
def test_a_percentile_needs_a_sample_beyond_it(percentile: float, fewest: int) -> None:
    assert fewest_samples(percentile) == fewest
    of = MetricTable(
        name="p", pattern=r"p (?P<value>\d+) us of (?P<samples>\d+)", unit="us",
        direction="lower", kind="timing", percentile=percentile,
    )  # fmt: skip
    (metric,) = parse_metrics([of], f"p 7 us of {fewest}\n")
    assert metric.value == 7
    assert parse_metrics([of], f"p 7 us of {fewest - 1}\n") == ()
    with pytest.raises(WorkloadFailed, match="did not print p"):
        parse_metrics([of], "p 7 us\n")


def test_the_slowest_of_330_is_no_percentile() -> None:
    """What schbench printed of 330 wake-ups has no 99.9th percentile; the 99.5th is there."""
    lines = "".join(f"workers 1 p{p} 9.0 us of 330\n" for p in (50, 75, 90, 95, 99, 99.5, 99.9))
    printed = f"{lines}workers 1 requests 330 per_second 165.0\n"
    metrics = parse_metrics(load_workload("schbench").table.metrics, printed)
    names = [metric.name for metric in metrics]
    assert "latency_p99_5" in names
    assert "latency_p99_9" not in names


PLUGIN = '''
import csv
from collections.abc import Sequence
from numalab.api import Metric, MetricTable, metric_value, register_parser

@register_parser("csv")
def csv_columns(metrics: Sequence[MetricTable], output: str) -> tuple[Metric, ...]:
    """The last line of a table; a metric is the column of its name."""
    row = list(csv.DictReader(output.splitlines()))[-1]
    return tuple(metric_value(metric, row[metric.name]) for metric in metrics)
'''
WORKLOAD = """\
summary = "a table"
stresses = "nothing"
command = ["table"]
seconds = "1"
parser = "csv"
[[metrics]]
name = "speed"
unit = "GB/s"
direction = "higher"
kind = "timing"
"""


def test_a_plug_in_adds_a_parser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    folder = tmp_path / "workloads/table"
    folder.mkdir(parents=True)
    (folder / "workload.toml").write_text(WORKLOAD)
    with pytest.raises(UserError, match=r"workload.toml: parser: no parser is called 'csv' \(val"):
        load_workload("table")
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/csv_parser.py").write_text(PLUGIN)
    try:
        table = load_workload("table").table
        (metric,) = PARSERS.find("csv")(table.metrics, "time,speed\n1,3.5\n2,4.5\n")
        assert (metric.name, metric.value, metric.unit) == ("speed", 4.5, "GB/s")
        assert PARSERS.describe("csv").startswith("The last line of a table")
        with pytest.raises(WorkloadFailed, match="speed is not a number: 'fast'"):
            PARSERS.find("csv")(table.metrics, "speed\nfast\n")
    finally:
        unload_plugins()
    (folder / "workload.toml").write_text(WORKLOAD.replace('parser = "csv"\n', ""))
    with pytest.raises(UserError, match="speed has no pattern, which the parser lines needs"):
        load_workload("table")
