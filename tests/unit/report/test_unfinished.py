"""Runs without a result, grouped by cause: bounded whatever the reasons are."""

import pytest

from numalab.report.document import StudyResults, UnfinishedRun
from numalab.report.unfinished import (
    LONGEST_CAUSE,
    cause_lines,
    causes,
    finished_text,
    plain_block,
    shortened,
    unfinished_lines,
)
from support.report_sample import HOSTILE, sample_report, thread_cells


def failed(number: int, reason: str, status: str = "failed") -> UnfinishedRun:
    return UnfinishedRun(f"ring-4, hogs-{number}", f"ring-4_hogs-{number}_a_1", status, reason)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("panicked: [    9.123] BUG ffffffff81234567", "panicked: [  109.5] BUG ffff88810abcdef0"),
        ("no output of ring-4_hogs-1_a_1.failed", "no output of ring-4_hogs-2_a_1.failed"),
        ("no result after 9 s\n | console of one", "no result after 120 s\n | console of two"),
    ],
)  # fmt: skip
def test_runs_that_failed_alike_are_one_cause(first: str, second: str) -> None:
    (cause,) = causes([failed(1, first), failed(2, second)])
    assert cause.title == "2 runs of 2 cells failed"
    assert cause.text == first.partition("\n")[0]


def test_programs_that_ended_with_another_status_are_several_causes() -> None:
    runs = [failed(n, f"stream exited with status {n % 3 + 122}") for n in range(6)]
    assert len(causes(runs)) == 3


def test_the_most_frequent_cause_is_first_and_what_never_started_last() -> None:
    waiting = [failed(n, "", "not run") for n in range(9)]
    groups = causes([*waiting, failed(10, "x"), failed(11, "y"), failed(12, "y")])
    assert [(cause.status, cause.text) for cause in groups] == [
        ("failed", "y"),
        ("failed", "x"),
        ("not run", ""),
    ]
    assert groups[1].line == "run ring-4_hogs-10_a_1 failed: x"


@pytest.mark.parametrize("text", [*HOSTILE, "x" * 10**6, "\n\n", "\x1b[2J\u2028::error::"])
def test_a_cause_is_one_short_printable_line(text: str) -> None:
    (cause,) = causes([failed(1, text)])
    assert len(cause.text) <= LONGEST_CAUSE
    assert "\n" not in cause.text
    assert all(char.isprintable() for char in cause.line)


def test_the_rest_of_the_causes_is_counted() -> None:
    groups = causes([failed(n, "xyzuvw"[n % 6] * 5) for n in range(12)])
    assert cause_lines(groups, 5)[-1] == "  2 more runs without a result (other reasons: 1)"
    assert len(cause_lines(groups, 5)) == 11
    assert len(cause_lines(groups, 5, places=False)) == 6


def test_names_are_joined_while_they_fit() -> None:
    assert shortened(["a", "b"]) == "a; b"
    assert shortened(["aaaa", "bbbb", "cccc"], 10) == "aaaa; bbbb; and 1 more"
    assert len(shortened(["x" * 5000, "y"])) < 120


def test_where_every_run_finished_only_the_number_is_said() -> None:
    assert finished_text(StudyResults.of(sample_report())) == "6 of 6 runs finished"
    study = StudyResults.of(*thread_cells())
    assert finished_text(study) == "24 of 24 runs finished, in 4 of 4 cells"
    assert unfinished_lines(study) == plain_block(study) == []
