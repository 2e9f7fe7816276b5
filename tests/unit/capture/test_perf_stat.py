"""What perf stat wrote, and the times of the command."""

import subprocess
from pathlib import Path

from numalab.capture.counters import (
    Times,
    is_tracepoint,
    parse_perf_stat,
    parse_times,
    perf_counts,
)
from numalab.places import project_dir
from numalab.recording.recording import CommandData
from numalab.workload.metric_parsers import Metric
from support.run_sample import measures_of

# perf 6.1 in a guest without a PMU: `perf stat -a -x , -e ... -o FILE -- true`
CSV = """\
# started on Mon Jan  1 00:00:00 2024

3,,context-switches,42351792,100.00,70.834,/sec
0,,cpu-migrations,42340832,100.00,0.000,/sec
<not supported>,,cache-misses,0,100.00,,
<not counted>,,cycles,0,0.00,,
12.50,msec,task-clock,12500000,100.00,1.000,CPUs utilized
2,,sched:sched_move_numa,42304976,100.00,,
garbage
-4,,page-faults,1,100.00,,
"""


def test_what_cannot_be_counted_is_none_and_not_0() -> None:
    assert parse_perf_stat(CSV) == {
        "context-switches": 3,
        "cpu-migrations": 0,
        "cache-misses": None,
        "cycles": None,
        "task-clock": 12.5,
        "sched:sched_move_numa": 2,
    }


def test_a_guest_may_write_anything() -> None:
    for junk in ("x" * 140_000, '"\n' + "x\n" * 70_000, "\0", "5,,\r"):
        assert parse_perf_stat(f"{junk}\n{CSV}") == parse_perf_stat(CSV)


def test_an_event_that_the_kernel_lacks_is_none() -> None:
    counts = perf_counts(["cpu-migrations", "migrate:mm_numa_migrate_ratelimit"], CSV)
    assert counts == {"cpu-migrations": 0, "migrate:mm_numa_migrate_ratelimit": None}
    assert perf_counts(["cpu-migrations"], None) == {"cpu-migrations": None}


def test_the_guest_asks_perf_for_all_but_tracepoints_that_its_kernel_lacks(tmp_path: Path) -> None:
    events = (
        "cs",
        "cycles:u",
        "page-faults:uk",
        "sched:here",
        "sched:gone",
        "sched:uk",
        "gone:Du2",
    )
    tracing = tmp_path / "tracing"
    (tracing / "events/sched/here").mkdir(parents=True)
    (tracing / "events/sched/here/id").touch()
    (tmp_path / "job").mkdir()
    (tmp_path / "job/perf_stat").write_text("".join(f"{event}\n" for event in events))
    script = (project_dir() / "images/guest/capture.sh").read_text()
    script = script.replace("/job", f"{tmp_path}/job").replace("/sys/kernel/tracing", f"{tracing}")
    ask = f'{script}\ncapture_around\necho "$CAPTURE_AROUND"'
    printed = subprocess.run(["sh", "-ec", ask], capture_output=True, text=True, check=True).stdout
    asked = printed.partition(" -e ")[2].split()[0].split(",")
    lacking = [event for event in events if event not in asked]
    assert lacking == ["sched:gone", "gone:Du2"]
    assert all(map(is_tracepoint, lacking))


def test_a_count_is_a_measure_and_those_of_the_hardware_are_timing() -> None:
    by_name = measures_of(
        CommandData("hogs", perf={"sched:sched_move_numa": 2, "cache-misses": None})
    )
    assert by_name["perf_sched_move_numa"].value == 2
    assert by_name["perf_sched_move_numa"].info.kind == "placement"
    assert by_name["perf_sched_move_numa"].info.source == "perf stat: sched:sched_move_numa"
    assert by_name["perf_cache_misses"].value is None
    assert (
        by_name["perf_cache_misses"].info.kind,
        by_name["perf_cache_misses"].info.direction,
    ) == (
        "timing",
        "lower",
    )


def test_the_times_are_seconds() -> None:
    assert parse_times("elapsed 3.123456789\nuser 2.5\nsystem 0.25\n") == Times(
        3.123456789, 2.5, 0.25
    )
    for text in ("", "elapsed 3.1\n", "elapsed nan\nuser 1.0\nsystem 1.0\n"):
        assert parse_times(text) is None
    names = ("elapsed_time", "user_time", "system_time")
    nothing = measures_of(CommandData("hogs"))
    assert [nothing[name].value for name in names] == [None, None, None]
    taken = measures_of(CommandData("hogs", times=Times(1, 2, 3)))
    assert [(taken[name].value, taken[name].info.unit) for name in names] == [
        (1, "s"),
        (2, "s"),
        (3, "s"),
    ]


def test_what_the_command_printed_is_a_measure_with_the_kind_its_file_says() -> None:
    printed = (
        Metric("speed", "", 2.0, "GB/s", "higher", "timing"),
        Metric("hog_cpu", "3", 5.0, "cpu", "none", "placement"),
    )
    by_name = measures_of(CommandData("bound-hogs", metrics=printed))
    printed_names = ["speed", "hog_cpu_3"]
    assert [name for name in by_name if name in printed_names] == printed_names
    assert (by_name["speed"].value, by_name["speed"].info.direction) == (2.0, "higher")
    assert (by_name["hog_cpu_3"].info.kind, by_name["hog_cpu_3"].info.source) == (
        "placement",
        "workload: bound-hogs",
    )
