"""Threads that QEMU starts for strict memory: seen astray by a first look that moves none.

That numalab, which moves them first, finds none astray is in test_pinned_guest.py.
"""

from testbed.bed import Bed
from testbed.test_pinned_guest import GUEST

OLD = "/disk/project/tests/testbed/old_order.py"


def test_a_look_before_anything_is_moved_finds_them_astray(bed: Bed) -> None:
    result = bed.run("python3", OLD, "boot", "ring-2", *GUEST, "--json", "--", "true").json()
    assert any("TC tc-ram-node" in misplaced["subject"] for misplaced in result["proof"]["differs"])
    assert not result["timing"]["means"]
