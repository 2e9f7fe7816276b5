"""Whatever was broken: nothing is left of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from numalab.host import budget
from numalab.qemu.hypervisor import connect
from support.guest_faults import held_files, qemus


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    assert qemus(str(tmp_path)) == []
    assert connect().guests == ()
    assert not budget._granted  # CPUs, memory, hugepages
    assert held_files(tmp_path) == []
    assert not [path for path in tmp_path.rglob(".*") if path.name not in (".", "..")]
