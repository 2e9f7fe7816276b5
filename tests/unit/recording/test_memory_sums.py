"""Sums of the memory model's counts, which must not depend on the threads of polars."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

LAB = Path(__file__).parents[3] / "lab"
SUMS = """
import random
import polars as pl
from numalab.analysis.measures.memory import sum_by_slice, sum_within
from numalab.recording.window import Slices

values = random.Random(1)
rows = 20_000
table = pl.DataFrame({
    "start_ns": [row // 4 * 10_000 for row in range(rows)],
    "end_ns": [row // 4 * 10_000 + 10_003 for row in range(rows)],
    "node": [row % 4 for row in range(rows)],
    "lines": [values.randrange(10**6) for _ in range(rows)],
})
for keys in ((), ("node",)):
    print(sum_within(table, 5_000, 49_995_001, keys, ("lines",)).rows())
    slices = Slices(5_000, 49_995_001, 7_000_000, 8)
    print(sum_by_slice(table, slices, keys, ("lines",)).rows())
"""


@cache
def sums(threads: int) -> str:
    """Compute the sums in a process with this many threads."""
    environment = os.environ | {"POLARS_MAX_THREADS": str(threads), "PYTHONPATH": str(LAB)}
    return subprocess.run(
        [sys.executable, "-c", SUMS], env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("threads", [2, 3, 4])
def test_sums_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    assert sums(threads) == sums(1)
