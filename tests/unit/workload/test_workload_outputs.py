"""What every workload really printed in a guest (ring-4), and what is read from it.

`distances`, `wrong-node`, `mapped-file`, `full-node`, `loaded-latency` (on full-2) and
`hot-and-cold` (on slow-memory-3) ran in mode timed, `dbench-disk` (on full-2, ext4, one client) in
slow motion, the others in icount.
schbench printed no number of samples then: ` of 501` and ` of 569`, its requests, were added to its
lines by hand.
"""

import re
from pathlib import Path

import pytest

from numalab.errors import WorkloadFailed
from numalab.workload.metric_parsers import parse_metrics, read_metrics
from numalab.workload.workload import list_workloads, load_workload

OUTPUTS = Path(__file__).parents[2] / "data" / "workload"

# Figures by metric and label, as a person reads them in the file.
READ: dict[str, dict[tuple[str, str], float]] = {
    "autonuma01": {("thread_runtime", ""): 5.371, ("speed", ""): 0.115},
    "autonuma01-threadlocal": {("slowest_thread", ""): 5.579},
    "autonuma02": {("runtime_spread", ""): 13.799},
    "autonuma02-smt": {("speed", ""): 0.12},
    "bound-hogs": {("hog_last_cpu", "7"): 3},
    "dbench": {("throughput", ""): 39.2824, ("max_latency", ""): 185.49},
    "dbench-disk": {("throughput", ""): 5.14356, ("max_latency", ""): 76.916},
    "distances": {
        ("cache_ns", "64"): 5.28,
        ("chase_ns", "0-2"): 270.31,
        ("copy_rate", "1-1"): 589.7,
        ("copy_rate_all", "1-1"): 757.0,
        ("handover_ns", "0-0"): 91.70,
    },
    "full-node": {("free_pages", ""): 11016, ("pages_read", ""): 94352640},
    "hackbench": {("elapsed", ""): 1.123},
    "hot-and-cold": {("hot_fast_part", "12"): 97.9, ("loads_part", "12"): 10444800},
    "hunt": {("loads_done", ""): 2},
    "linpack": {("speed", ""): 0.029119},
    "loaded-latency": {
        ("idle_ns", ""): 90.31,
        ("loaded_ns", "0"): 103.93,
        ("loaded_rate", "100"): 1573.8,
    },
    "mapped-file": {("grouped", ""): 100, ("passes", ""): 56986},
    "numa-mem": {("speed", ""): 0.109},
    "numa01": {("thread_runtime", ""): 7.039, ("speed", ""): 0.068},
    "numa02": {("slowest_thread", ""): 6.794},
    "numa03": {("runtime_spread", ""): 12.775},
    "numa04": {("speed", ""): 0.068},
    "numa05": {("thread_runtime", ""): 8.136},
    "pipe": {("round_trip", ""): 107.1905, ("round_trips", ""): 9329},
    "schbench": {
        ("latency_p50", "1"): 212.5,
        ("latency_p99_5", "2"): 23981.5,
        ("requests", "2"): 276.7,
    },
    "stream": {("copy_rate", ""): 550.7, ("triad_rate", ""): 595.5},
    "tcp-stream": {("tcp_stream", "64"): 8.16, ("tcp_stream", "16384"): 369},
    "warehouse": {("throughput", ""): 181069.0, ("instance_throughput", "0"): 181069.0},
    "wrong-node": {("throughput", ""): 9003008, ("loads_part", "2"): 4689920},
    "xfsrepair": {
        ("fill_system_time", ""): 6.093013,
        ("repair_elapsed_time", ""): 1.758343,
        ("repair_minor_faults", ""): 4282,
    },
}


def printed(name: str) -> str:
    path = OUTPUTS / f"{name}.txt"
    if not path.exists():
        file = f"tests/data/workload/{name}.txt"
        pytest.fail(f"create {file}: what the workload {name} prints in a guest (out/stdout)")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", list_workloads())
def test_what_a_workload_printed_is_read(name: str) -> None:
    table = load_workload(name).table
    specs = table.metrics
    metrics = read_metrics(table.parser, specs, printed(name))
    values = {(metric.name, metric.label): metric.value for metric in metrics}
    assert len(values) == len(metrics), "a metric appears twice"
    left_out = {spec.name for spec in specs} - {metric.name for metric in metrics}
    # Of 501 and of 569 wake-ups.
    assert left_out == ({"latency_p99_9"} if name == "schbench" else set())
    assert values.items() >= READ.get(name, {}).items()


def test_the_figures_are_of_workloads() -> None:
    assert READ.keys() <= set(list_workloads())


@pytest.mark.parametrize("name", list_workloads())
def test_a_workload_that_ended_early_is_noticed(name: str) -> None:
    """The output before the last required metric is not taken for all of it."""
    table = load_workload(name).table
    lines = printed(name).splitlines()
    patterns = [re.compile(metric.pattern) for metric in table.metrics if metric.required]
    firsts = [
        next((number for number, line in enumerate(lines) if pattern.fullmatch(line.strip())), 0)
        for pattern in patterns
        if table.parser == "lines"
    ]
    beginning = "\n".join(lines[: max(firsts, default=0)])
    with pytest.raises(WorkloadFailed, match=r"did not print \w+|cannot read the output|not a num"):
        read_metrics(table.parser, table.metrics, beginning)


def test_the_numbers_of_workers_are_told_apart() -> None:
    metrics = parse_metrics(load_workload("schbench").table.metrics, printed("schbench"))
    medians = {metric.label: metric.value for metric in metrics if metric.name == "latency_p50"}
    assert medians == {"1": 212.5, "2": 3931.7}
    # p99 is not taken for p99.5 or p99.9.
    assert len([metric for metric in metrics if metric.name == "latency_p99"]) == 2
