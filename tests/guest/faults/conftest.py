"""Whatever was broken: nothing is left of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from guest_faults import held_files, qemus

from lab.machine import budget
from lab.machine.hypervisor import connect


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert qemus(str(tmp_path)) == []
    assert connect().guests == ()
    assert not budget._granted  # CPUs, memory, hugepages
    assert held_files(tmp_path) == []
    assert not [path for path in tmp_path.rglob(".*") if path.name not in (".", "..")]
