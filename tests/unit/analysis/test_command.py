"""Measures of the workload's command: its times, perf's counts, and the numbers it printed."""

from typing import Any

import polars as pl
import pytest

from numalab.analysis.measures.command import GROUPS
from numalab.analysis.measures.family import explain
from numalab.capture.counters import Times, perf_measure_name
from numalab.errors import UserError
from numalab.measure import Direction, Measure, MeasureKind, SourceKind
from numalab.recording.recording import CommandData, Recording
from numalab.statistics.scale import default_scale
from numalab.workload.metric_parsers import Metric

TIMES, PERF, SCHEDULER, PRINTED = GROUPS[2:]


def measures(group: Any, command: CommandData | None) -> dict[str, Measure]:
    """What one group makes of a command; none of the three looks at the trace."""
    result = list(group.compute(Recording(pl.DataFrame(), command=command)))
    named = {item.name: item for item in result}
    assert len(named) == len(result)
    return named


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group.name)
def test_a_recording_without_a_command_has_none_of_these(group: Any) -> None:
    assert measures(group, None) == {}


def test_each_time_is_the_one_of_its_name() -> None:
    by_name = measures(TIMES, CommandData("hogs", times=Times(3.5, 2.25, 0.125)))
    assert {name: item.value for name, item in by_name.items()} == {
        "elapsed_time": 3.5,
        "user_time": 2.25,
        "system_time": 0.125,
    }
    infos = {item.info.name: item.info for item in by_name.values()}
    assert {info.unit for info in infos.values()} == {"s"}
    assert {info.direction for info in infos.values()} == {Direction.LOWER}
    assert {info.kind for info in infos.values()} == {MeasureKind.TIMING}
    assert infos["elapsed_time"].source == "guest: clock"
    assert infos["user_time"].source == infos["system_time"].source == "guest: getrusage"


def test_times_that_were_not_written_are_none() -> None:
    by_name = measures(TIMES, CommandData("hogs"))
    assert [item.value for item in by_name.values()] == [None] * 3


def test_perf_has_a_measure_only_where_it_was_asked() -> None:
    assert measures(PERF, CommandData("hogs")) == {}
    assert measures(PERF, CommandData("hogs", perf={})) == {}


@pytest.mark.parametrize(
    ("event", "name", "kind", "direction"),
    [
        ("cache-misses", "perf_cache_misses", MeasureKind.TIMING, Direction.LOWER),
        ("LLC-load-misses", "perf_LLC_load_misses", MeasureKind.TIMING, Direction.LOWER),
        ("node-loads", "perf_node_loads", MeasureKind.TIMING, Direction.LOWER),
        ("node-load-misses", "perf_node_load_misses", MeasureKind.TIMING, Direction.LOWER),
        ("branches", "perf_branches", MeasureKind.TIMING, Direction.NONE),
        ("ref-cycles", "perf_ref_cycles", MeasureKind.TIMING, Direction.NONE),
        ("dTLB-load-misses", "perf_dTLB_load_misses", MeasureKind.TIMING, Direction.NONE),
        ("branches:u", "perf_branches_u", MeasureKind.TIMING, Direction.NONE),
        ("cycles:u", "perf_cycles_u", MeasureKind.TIMING, Direction.LOWER),
        ("page-faults:uk", "perf_page_faults_uk", MeasureKind.PLACEMENT, Direction.NONE),
        ("cgroup-switches", "perf_cgroup_switches", MeasureKind.PLACEMENT, Direction.NONE),
        ("major-faults", "perf_major_faults", MeasureKind.PLACEMENT, Direction.NONE),
        ("cpu-migrations", "perf_cpu_migrations", MeasureKind.PLACEMENT, Direction.NONE),
        ("sched:sched_swap_numa", "perf_sched_swap_numa", MeasureKind.PLACEMENT, Direction.NONE),
    ],
)
def test_what_perf_counted_keeps_its_event(
    event: str, name: str, kind: MeasureKind, direction: Direction
) -> None:
    (by_name,) = measures(PERF, CommandData("hogs", perf={event: 7})).values()
    assert (by_name.name, by_name.value) == (name, 7)
    info = by_name.info
    assert (info.kind, info.direction, info.unit) == (kind, direction, "events")
    assert [(source.kind, source.what) for source in info.sources] == [(SourceKind.PERF, event)]
    plain, _, modifiers = (
        event.rpartition(":") if event.endswith((":u", ":uk")) else (event, "", "")
    )
    assert perf_measure_name(plain).removeprefix("perf_") in info.definition
    assert info.definition.endswith(f"Modifiers: {modifiers}.") is bool(modifiers)


@pytest.mark.parametrize(
    ("event", "unit"),
    [
        ("task-clock", "ms"),
        ("cpu-clock", "ms"),
        ("task-clock:u", "ms"),
        ("duration_time", "ns"),
        ("user_time", "ns"),
        ("system_time", "ns"),
    ],
)
def test_clocks_of_perf_are_times(event: str, unit: str) -> None:
    (by_name,) = measures(PERF, CommandData("hogs", perf={event: 7.5})).values()
    info = by_name.info
    assert (info.kind, info.unit, info.direction) == (MeasureKind.TIMING, unit, Direction.LOWER)
    assert "How often" not in info.definition and default_scale(unit) == "ratio"
    assert info.name == perf_measure_name(event)


def test_an_event_that_was_not_counted_is_none() -> None:
    by_name = measures(PERF, CommandData("hogs", perf={"cycles": None, "page-faults": 0}))
    assert (by_name["perf_cycles"].value, by_name["perf_page_faults"].value) == (None, 0)


def test_a_label_is_a_part_of_the_name_of_what_was_printed() -> None:
    printed = (
        Metric("rate", "", 2.0, "GB/s", "higher", "timing"),
        Metric("rate", "4", 9.0, "GB/s", "higher", "timing"),
    )
    by_name = measures(PRINTED, CommandData("stream", metrics=printed))
    assert {name: item.value for name, item in by_name.items()} == {"rate": 2.0, "rate_4": 9.0}
    info = by_name["rate_4"].info
    assert (info.unit, info.direction, info.kind) == ("GB/s", Direction.HIGHER, MeasureKind.TIMING)
    assert info.source == "workload: stream" and info.definition == "What stream printed as rate_4."


def test_statistics_of_a_scheduler_are_measures_by_their_dotted_names() -> None:
    """scheduler.{statistic}: a place of other families has no dot."""
    by_name = measures(SCHEDULER, CommandData("hogs", scheduler={"nodes.0.load-avg": 4}))
    assert by_name["scheduler.nodes.0.load-avg"].value == 4
    assert explain("scheduler.nodes.0.load-avg").kind is MeasureKind.TIMING
    for name in ("scheduler.", "scheduler.a b", "vmstat_a.b"):
        with pytest.raises(UserError, match="no measure"):
            explain(name)
