"""A scheduler's part of a guest: its files, and what its record means."""

import re
import shutil
from pathlib import Path

import pytest

from numalab.scheduler.in_guest import (
    START_SECONDS,
    SchedulerRecord,
    explain_end,
    parse_record,
    scheduler_in_guest,
)
from numalab.scheduler.scheduler_artifact import BuiltScheduler
from numalab.scheduler.scheduler_spec import find_scheduler

WHOLE = """\
enabled 2.10
ops simple
switch_all 1
seq 1
ended 5.20
end_state enabled
end_ops simple
end_seq 1
rejected 0
exit_status 0
left_state disabled
"""
# As scx_simple prints it (UEI_REPORT() in tools/sched_ext/include/scx/user_exit_info.h).
STALL_LOG = """\
local=10 global=3
local=12 global=4

DEBUG DUMP
================================================================================

kworker/u32:1[82] triggered exit kind 1026:
  runnable task stall (hog[120] failed to run for 30.208s)

CPU states
----------

CPU 0   : nr_run=3 flags=0x1 cpu_rel=0 ops_qseq=125 pnt_seq=299

================================================================================

EXIT: runnable task stall (hog[120] failed to run for 30.208s)
"""
DMESG = """\
[   35.1] sched_ext: BPF scheduler "stall" enabled
[   67.4] sched_ext: BPF scheduler "stall" disabled (runnable task stall)
[   67.4] sched_ext: stall: hog[120] failed to run for 30.208s
"""


def changed(**values: str) -> SchedulerRecord:
    return SchedulerRecord({**parse_record(WHOLE).values, **values})


def test_a_scheduler_that_scheduled_to_the_end_needs_no_explanation() -> None:
    record = parse_record(WHOLE)
    assert (record.ops, record.began, record.partial, record.restarts) == ("simple", True, False, 0)
    assert explain_end("scx_simple", record, "local=1 global=2\n", "") == ""
    assert parse_record(WHOLE.replace("switch_all 1", "switch_all 0")).partial


def test_a_stall_is_reported_with_the_messages_and_the_dump() -> None:
    why = explain_end("scx_stall", changed(end_state="disabled", end_ops=""), STALL_LOG, DMESG)
    first, *rest = why.splitlines()
    assert first == (
        "scx_stall was disabled while the command ran; tasks fell back to EEVDF:"
        " runnable task stall (hog[120] failed to run for 30.208s)"
    )
    assert '  | sched_ext: BPF scheduler "stall" disabled (runnable task stall)' in rest
    assert "  | CPU 0   : nr_run=3 flags=0x1 cpu_rel=0 ops_qseq=125 pnt_seq=299" in rest


def test_a_program_that_fails_to_load_is_reported_with_what_it_printed() -> None:
    record = parse_record("state disabled\nexit_status 1\nleft_state disabled\n")
    log = "libbpf: prog 'simple_enqueue': BPF program load failed: Permission denied\n"
    why = explain_end("scx_mine", record, log, "")
    assert why.splitlines() == [
        "scx_mine did not start and exited with status 1",
        "  | libbpf: prog 'simple_enqueue': BPF program load failed: Permission denied",
    ]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (SchedulerRecord(), "left no record"),
        (parse_record("absent 1\n"), "has no sched_ext"),
        (parse_record("state enabling\n"), f"within {START_SECONDS} s: the kernel's state is enab"),
        (
            parse_record("enabled 3.10\nops simple\nseq 1\n"),
            "^scx_mine was enabled, and .* no record",
        ),
        (changed(end_ops="other"), "other took the place of simple"),
        (changed(end_seq="3"), r"disabled and enabled again \(2 times\)"),
    ],
)
def test_every_other_end_has_its_reason(record: SchedulerRecord, reason: str) -> None:
    assert re.search(reason, explain_end("scx_mine", record, "", ""))


def test_what_a_guest_writes_is_bounded_and_shown_without_control_characters() -> None:
    hostile = "ops \x1b[31msimple\n" + "x" * 9000 + "\n" + WHOLE + "seq 2\n" * 1000
    record = parse_record(hostile)
    assert record.ops == "simple"
    log = "EXIT: \x1b]0;title\x07" + "y" * 5000 + "\n"
    why = explain_end("scx_mine", changed(end_state="disabled"), log, "sched_ext: \x1b[2J\n" * 500)
    assert all(line.isprintable() and len(line) < 210 for line in why.splitlines())
    assert len(why.splitlines()) < 30


def test_the_program_goes_along_with_its_libraries_and_arguments(tmp_path: Path) -> None:
    program = tmp_path / "scx_true"
    shutil.copy("/bin/true", program)
    spec = find_scheduler("./scx_true", ["-s", "it's 5"], tmp_path)
    part = scheduler_in_guest(BuiltScheduler(spec, program, "0" * 64))
    assert part.around(("hackbench", "-g", "1"))[-3:] == ("hackbench", "-g", "1")
    assert part.files["scheduler/start"].endswith(b"scx_true -s 'it'\"'\"'s 5'\n")
    assert {"host/lib/libc.so.6", "host/program/scx_true"} <= set(part.files)


def test_a_long_line_keeps_its_end() -> None:
    """A crate prints the path of its source before its message."""
    log = f"WARN {'/registry/src' * 40}/logger.rs:12: libbpf: extern 'x': not found\n"
    why = explain_end("scx_mine", parse_record("exit_status 1\n"), log, "")
    assert "WARN /registry" in why
    assert why.endswith("libbpf: extern 'x': not found")
    assert max(map(len, why.splitlines())) < 210
