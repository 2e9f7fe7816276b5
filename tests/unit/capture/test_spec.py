"""The `[capture]` table of a study."""

from pathlib import Path
from typing import Any

import pytest

from numalab.capture.spec import (
    SETS,
    CaptureSpec,
    TraceEvent,
    check_clock,
    load_capture,
    render_events,
)
from numalab.errors import UserError

STUDY = Path("studies/some.toml")


def test_an_empty_table_records_who_ran_and_what_numa_balancing_decided() -> None:
    spec = load_capture({}, STUDY)
    names = [event.name for event in spec.events]
    assert set(names) == {event.lstrip("?") for event in (*SETS["sched"], *SETS["numa"])}
    assert len(names) == len(set(names))
    assert (spec.buffer_mib, spec.clock, spec.lost_is_error) == (32, "mono", False)
    # What costs the guest something is only done where it is asked for.
    assert (spec.perf_stat, spec.sampled, spec.sample_ms, spec.numastat) == ((), "", 0, False)


def test_what_newer_kernels_brought_may_be_absent_unless_it_is_asked_for_by_name() -> None:
    optional = {event.name for event in load_capture({}, STUDY).events if event.optional}
    assert optional == {"sched:sched_skip_vma_numa", "sched:sched_skip_cpuset_numa"}
    asked = load_capture({"events": ["sched:sched_skip_vma_numa"]}, STUDY)
    assert {e.name for e in asked.events if e.optional} == {"sched:sched_skip_cpuset_numa"}


def test_perf_events_have_the_names_of_the_kernel_s_changelogs() -> None:
    spec = load_capture({"perf_stat": ["numa", "cs", "kvm:kvm_exit"]}, STUDY)
    assert spec.perf_stat[:4] == (
        "context-switches",
        "cpu-migrations",
        "page-faults",
        "cache-misses",
    )
    assert spec.perf_stat.count("context-switches") == 1
    assert spec.perf_stat[-1] == "kvm:kvm_exit"


def test_a_system_stands_for_all_its_events() -> None:
    spec = load_capture({"sets": [], "events": ["sched", "migrate:mm_migrate_pages"]}, STUDY)
    assert render_events(spec) == ("sched", "migrate:mm_migrate_pages")


def test_the_period_counts_only_where_something_is_sampled() -> None:
    assert load_capture({"sample_ms": 100}, STUDY).sample_ms == 0
    spec = load_capture({"sample": ["vmstat", "numa_maps"], "sample_ms": 100}, STUDY)
    assert (spec.sample_ms, spec.sampled) == (100, "vp")


def test_events_and_filters_become_the_lines_that_the_guest_reads() -> None:
    table = {
        "optional_events": ["sched:sched_skip_vma_numa", "sched:sched_skip_cpuset_numa"],
        "sets": [],
        "events": ["sched:sched_switch", "irq:irq_handler_entry"],
        "filters": {
            "sched:sched_switch": 'prev_pid > 0 && next_comm ~ "hog*"',
            "sched:sched_skip_vma_numa": "reason == 1",
        },
        "buffer_mib": 64,
        "clock": "boot",
        "lost_events": "error",
    }
    spec = load_capture(table, STUDY)
    assert render_events(spec) == (
        'sched:sched_switch\tprev_pid > 0 && next_comm ~ "hog*"',
        "irq:irq_handler_entry",
        "?sched:sched_skip_vma_numa\treason == 1",
        "?sched:sched_skip_cpuset_numa",
    )
    assert (spec.buffer_mib, spec.clock, spec.lost_is_error) == (64, "boot", True)


def test_an_event_without_a_filter_has_no_tab() -> None:
    assert render_events(CaptureSpec((TraceEvent("a:b"),))) == ("a:b",)


@pytest.mark.parametrize(
    ("table", "key", "message"),
    [
        ({"sets": ["numo"]}, "capture.sets[0]", "'numa-full' or 'balance', found 'numo'"),
        ({"evnts": []}, "capture.evnts", "unknown key; did you mean events?"),
        ({"events": ["sched:"]}, "capture.events[0]", "write system:event, or system"),
        ({"events": ["a:b\nc:d"]}, "capture.events[0]", "is not a trace event"),
        ({"filters": {"irq:x": "a > 1"}}, "capture", "irq:x is not recorded"),
        ({"buffer_mib": 0}, "capture.buffer_mib", "greater than or equal to 1, found 0"),
        ({"clock": "wall"}, "capture.clock", "found 'wall'"),
        ({"clock": "x86-tsc"}, "capture.clock", "found 'x86-tsc'"),
        ({"perf_stat": ["cs,faults"]}, "capture.perf_stat[0]", "is not an event of perf"),
        (
            {"sample": ["meminfo"]},
            "capture.sample[0]",
            "(valid: vmstat, schedstat, tasks, numa_maps",
        ),
        ({"sample": ["vmstat"], "sample_ms": 0}, "capture.sample_ms", "or equal to 10, found 0"),
        ({"lost_events": "ignore"}, "capture.lost_events", "'report' or 'error'"),
    ],
)
def test_what_is_wrong_is_named(table: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        load_capture(table, STUDY)
    assert (refused.value.file, refused.value.key) == (STUDY, key)
    assert message in str(refused.value)


def test_samples_have_a_clock_of_their_own() -> None:
    """With another one in the trace, nobody read the samples."""
    for clock in ("mono", "boot"):
        check_clock(load_capture({"sample": ["vmstat"], "clock": clock}, STUDY), STUDY)
    check_clock(load_capture({"clock": "local"}, STUDY), STUDY)
    spec = load_capture({"sample": ["vmstat"], "clock": "local"}, STUDY)
    with pytest.raises(UserError) as refused:
        check_clock(spec, STUDY)
    assert (refused.value.file, refused.value.key) == (STUDY, "capture.clock")
    assert refused.value.choices == ("mono", "boot")


def test_a_filter_cannot_add_a_line() -> None:
    table = {"filters": {"sched:sched_switch": "prev_pid > 0\nsched:sched_wakeup"}}
    with pytest.raises(UserError, match="filters"):
        load_capture(table, STUDY)
