"""What a topology file says of its memory's speed; what it leaves out has a default."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryGiven:
    """The table `[memory]`, as it stands in the file. None where it is silent."""

    latency_ns: int | tuple[tuple[int, ...], ...] | None = None
    bandwidth_mb_s: int | tuple[int, ...] | None = None
    link_bandwidth_mb_s: int | None = None
    channels: int | None = None
    l1_kib: int | None = None
    l2_kib: int | None = None
    l2_ns: int | None = None
    llc_kib: int | None = None
    llc_ns: int | None = None
    interrupt_ns: int | None = None
    far_may_be_nearer: bool = False
