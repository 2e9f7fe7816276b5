"""What docs/hunt.md says of deliberate bugs is what is stored."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs/hunt.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| `debian-6.12-mutation-")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_each_row_is_a_stored_one(row: list[str]) -> None:
    stored = json.loads((ROOT / "hunts/stored/mutations-one-boot.json").read_text(encoding="utf-8"))
    found = [
        [each["kernel"], one["property"], one["load"], f"{one['value']:g}",
         f"{one['on_debian_6_12']:g}"]
        for each in stored
        for one in each["clearly_worse"]
    ]  # fmt: skip
    assert row in found


def test_there_are_rows() -> None:
    assert len(ROWS) == 5
