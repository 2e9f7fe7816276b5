"""A guest measures the same in mode timed with either QEMU: `distances` on ring-4, seed 1."""

import re
from pathlib import Path

import pytest

DATA = Path(__file__).parents[2] / "data"
# Of a number. How a line handed over meets a tick of the guest's kernel differs by seed as well.
REACH = {"cache": 0.005, "chase": 0.001, "copy": 0.01, "handover": 0.12}


def measured(file: str) -> dict[str, float]:
    versions = re.findall(
        r"^(\w+ .+) (\d+\.\d+) (?:ns|MB/s)$", (DATA / file).read_text(), re.MULTILINE
    )
    return {what: float(number) for what, number in versions}


def test_distances_are_the_same_with_either_qemu() -> None:
    old = measured("workload/distances.txt")
    new = measured("timed/distances-ring-4-qemu-10.0.txt")
    assert len(old) == 9 + 4 * 16
    assert new.keys() == old.keys()
    for what, number in new.items():
        assert number == pytest.approx(old[what], rel=REACH[what.split()[0]]), what
