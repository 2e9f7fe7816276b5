"""Comparisons of programs: seeds, error rate, order and verdicts, with made-up machines."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from numalab.errors import UserError
from numalab.measure import Direction, Measure, MeasureInfo, MeasureKind, MeasureSource, SourceKind
from numalab.programs.compare_programs import ProgramComparison, compare_programs

TIME = MeasureInfo(
    "elapsed_time", "s", Direction.LOWER, MeasureKind.TIMING, "time",
    (MeasureSource(SourceKind.GUEST, "clock"),),
)  # fmt: skip
SHARE = MeasureInfo(
    "memory_local_share", "%", Direction.HIGHER, MeasureKind.MODELLED, "share",
    (MeasureSource(SourceKind.MODEL, ""),),
)  # fmt: skip


class MadeUpMachine:
    """Takes a time by its command and seed; counts its boots."""

    def __init__(self, times: Mapping[str, float], share: float | None = 50.0) -> None:
        self.times, self.share = times, share
        self.topology, self.mode = SimpleNamespace(name="made-up"), "timed"
        self.boots: list[tuple[str, int]] = []

    def measure(self, words: list[str], *, seed: int, **_: object) -> dict[str, Measure]:
        self.boots.append((words[0], seed))
        return {
            "elapsed_time": Measure(TIME, self.times[words[0]] + 0.01 * (seed % 3)),
            "memory_local_share": Measure(SHARE, self.share),
        }


def compared(machine: MadeUpMachine, **options: Any) -> ProgramComparison:
    return compare_programs(machine, ["old"], ["new"], **options)  # type: ignore[arg-type]


def test_a_slower_program_is_worse() -> None:
    machine = MadeUpMachine({"old": 1.0, "new": 2.0})
    result = compared(machine, seeds=3)
    assert machine.boots == [(name, seed) for seed in (1, 2, 3) for name in ("old", "new")]
    assert [row.info.name for row in result.worse] == ["elapsed_time"]
    assert not result.better
    assert str(result).splitlines()[0].endswith("3 runs of each command: 1 worse, 0 better")
    assert "elapsed_time: 1.01 to 2.01 s (+99.0 %): worse" in str(result).splitlines()[1]
    assert result["memory_local_share"].outcome == "no difference shown"


def test_a_faster_program_is_better() -> None:
    result = compared(MadeUpMachine({"old": 2.0, "new": 1.0}))
    assert [row.info.name for row in result.better] == ["elapsed_time"]


def test_equal_programs_do_not_differ() -> None:
    result = compared(MadeUpMachine({"old": 1.0, "new": 1.0}))
    assert not result.better
    assert not result.worse


def test_what_no_run_could_measure_is_left_out() -> None:
    result = compared(MadeUpMachine({"old": 1.0, "new": 1.0}, share=None))
    assert [row.info.name for row in result.rows] == ["elapsed_time"]
    with pytest.raises(UserError, match=r"no measure 'memory_local_share' \(valid: elapsed_time\)"):
        result["memory_local_share"]


def test_wrong_questions_are_refused() -> None:
    machine = MadeUpMachine({"old": 1.0, "new": 1.0})
    with pytest.raises(UserError, match="seeds: 2 seeds show nothing; use 3 or more"):
        compared(machine, seeds=2)
    assert not machine.boots
    with pytest.raises(UserError, match="no measure 'elapsed'; did you mean elapsed_time"):
        compared(machine, measures=("elapsed",))
