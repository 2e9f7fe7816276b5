"""The texts that a guest left of a run, and the machine that they describe."""

from contextlib import suppress
from pathlib import Path

from numalab.errors import WorkloadFailed
from numalab.files import left_by_guest
from numalab.run_dir import RunDir
from numalab.topology.guest_view import GuestView, parse_guest_view


def guest_text(path: Path) -> str:
    """Return a text that a guest left. Raises WorkloadFailed where it left none."""
    return left_by_guest(path).decode("utf-8", "replace")


def guest_text_if_any(path: Path) -> str:
    """Return a text that a guest left; empty where it left none."""
    with suppress(WorkloadFailed):
        return guest_text(path)
    return ""


def read_guest_view(directory: RunDir) -> GuestView:
    """Return the machine as its guest reports it. Raises WorkloadFailed where it did not."""
    nodes = directory.sysfs
    return parse_guest_view(
        {str(path.relative_to(nodes)): guest_text(path) for path in sorted(nodes.glob("node*/*"))},
        guest_text(directory.sched_domains),
        guest_text_if_any(directory.dmesg),
    )
