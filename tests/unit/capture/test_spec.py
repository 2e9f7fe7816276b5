"""The `[capture]` table of a study."""

from pathlib import Path
from typing import Any

import pytest

from lab.capture.spec import SETS, CaptureSpec, TraceEvent, load_capture, render_events
from lab.errors import UserError

STUDY = Path("studies/some.toml")


def test_an_empty_table_records_who_ran_and_what_numa_balancing_decided() -> None:
    spec = load_capture({}, STUDY)
    names = [event.name for event in spec.events]
    assert set(names) == set(SETS["sched"]) | set(SETS["numa"])
    assert len(names) == len(set(names))
    assert (spec.buffer_mib, spec.clock, spec.lost_is_error) == (32, "mono", False)


def test_events_and_filters_become_the_lines_that_the_guest_reads() -> None:
    table = {
        "sets": ["numa-skips"],
        "events": ["sched:sched_switch", "irq:irq_handler_entry"],
        "filters": {"sched:sched_switch": 'prev_pid > 0 && next_comm ~ "hog*"'},
        "buffer_mib": 64,
        "clock": "boot",
        "lost_events": "error",
    }
    spec = load_capture(table, STUDY)
    assert render_events(spec) == (
        "sched:sched_skip_vma_numa",
        "sched:sched_skip_cpuset_numa",
        'sched:sched_switch\tprev_pid > 0 && next_comm ~ "hog*"',
        "irq:irq_handler_entry",
    )
    assert (spec.buffer_mib, spec.clock, spec.lost_is_error) == (64, "boot", True)


def test_an_event_without_a_filter_has_no_tab() -> None:
    assert render_events(CaptureSpec((TraceEvent("a:b"),))) == ("a:b",)


@pytest.mark.parametrize(
    ("table", "key", "message"),
    [
        ({"sets": ["numo"]}, "capture.sets[0]", "'sched', 'numa' or 'numa-skips', found 'numo'"),
        ({"evnts": []}, "capture.evnts", "unknown key; did you mean events?"),
        ({"events": ["sched_switch"]}, "capture.events[0]", "write system:event"),
        ({"events": ["a:b\nc:d"]}, "capture.events[0]", "is not a trace event"),
        ({"filters": {"irq:x": "a > 1"}}, "capture", "irq:x is not recorded"),
        ({"buffer_mib": 0}, "capture.buffer_mib", "greater than or equal to 1, found 0"),
        ({"clock": "wall"}, "capture.clock", "found 'wall'"),
        ({"lost_events": "ignore"}, "capture.lost_events", "'report' or 'error'"),
    ],
)
def test_what_is_wrong_is_named(table: dict[str, Any], key: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        load_capture(table, STUDY)
    assert (refused.value.file, refused.value.key) == (STUDY, key)
    assert message in str(refused.value)


def test_a_filter_cannot_add_a_line() -> None:
    table = {"filters": {"sched:sched_switch": "prev_pid > 0\nsched:sched_wakeup"}}
    with pytest.raises(UserError, match="filters"):
        load_capture(table, STUDY)
