"""Cores of two CPUs: who shares one while another is idle, by hand."""

from dataclasses import replace

import polars as pl
import pytest

from numalab.hunt.properties.cores import choice, cores
from numalab.hunt.recording import MS, LoadRecording
from unit.hunt.recordings import Row, recording

HOGS = "time ms=1000;hog n=2 cpus=0-3"
USERS = "time ms=1000;memory n=2 cpus=0-7"


def smt(load: str, rows: list[Row], *moves: tuple[int, int]) -> LoadRecording:
    """Two nodes with two cores of two CPUs each; `moves` are when (ms) and to which CPU."""
    run = recording(load, rows, cpus=(4, 4), threads=2)
    columns = {
        "event": ["sched_move_numa"] * len(moves),
        "time_ns": [ms * MS for ms, _ in moves],
        "dst_cpu": [cpu for _, cpu in moves],
    }
    types = {"event": pl.String, "time_ns": pl.Int64, "dst_cpu": pl.Int32}
    return replace(run, table=pl.DataFrame(columns, schema=types))


@pytest.mark.parametrize(
    ("second", "share"), [(1, 1.0), (2, 0.0), (4, 0.0)], ids=["one core", "two", "another node"]
)
def test_two_hogs_on_a_core_beside_an_idle_one(second: int, share: float) -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 0.0, 1000.0), (2, "hog0.1", second, 0.0, 1000.0)]
    (result,) = cores(smt(HOGS.replace("0-3", "0-7"), rows))
    assert result.value == share


def test_cores_are_judged_of_hogs_on_machines_that_have_them() -> None:
    rows: list[Row] = [(1, "hog0.0", 0, 0.0, 1000.0)]
    assert not list(cores(recording(HOGS, rows)))
    assert not list(choice(smt(HOGS, rows)))


def test_a_move_to_a_busy_core_counts_while_another_one_is_idle() -> None:
    rows: list[Row] = [
        (1, "memory0.0", 4, 0.0, 1000.0),
        (2, "memory0.1", 0, 0.0, 500.0),
        (2, "memory0.1", 5, 500.0, 1000.0),
    ]
    # CPU 5 is the sibling of CPU 4, which is busy; CPUs 6 and 7 are idle.
    (result,) = choice(smt(USERS, rows, (500, 5)))
    assert result.value == 1 / 2
    assert result.weak
    # To an idle core; within the core of one that is away; to where nothing is.
    assert [item.value for item in choice(smt(USERS, rows, (500, 6)))] == [0]
    assert [item.value for item in choice(smt(USERS, rows, (500, 99)))] == [0]


def test_a_move_to_a_busy_core_is_fair_where_no_core_is_idle() -> None:
    rows: list[Row] = [
        (1, "memory0.0", 4, 0.0, 1000.0),
        (3, "memory0.2", 6, 0.0, 1000.0),
        (2, "memory0.1", 5, 500.0, 1000.0),
    ]
    (result,) = choice(smt(USERS.replace("n=2", "n=3"), rows, (500, 5)))
    assert result.value == 0
