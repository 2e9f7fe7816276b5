"""CPU sets as plain integers, bit n for CPU n: fast enough for 64 nodes, and easy to compare."""

from collections.abc import Iterable, Iterator
from functools import lru_cache


def mask_of(cpus: Iterable[int]) -> int:
    """Return the set of these CPUs."""
    mask = 0
    for cpu in cpus:
        mask |= 1 << cpu
    return mask


@lru_cache(maxsize=1 << 16)
def cpus_of(mask: int) -> tuple[int, ...]:
    """Return the CPUs of a set, ascending."""
    cpus = []
    while mask:
        low = mask & -mask
        cpus.append(low.bit_length() - 1)
        mask ^= low
    return tuple(cpus)


def first(mask: int) -> int:
    """Return the smallest CPU of a set that is not empty (`cpumask_first`)."""
    return (mask & -mask).bit_length() - 1


def uncovered(span: int, start: int, covered: list[int]) -> Iterator[int]:
    """Walk the CPUs of `span` from `start` on and around, as `for_each_cpu_wrap` does.

    A CPU in `covered[0]`, which the caller adds to while walking, is passed over.
    """
    for part in (span >> start << start, span & ((1 << start) - 1)):
        left = part & ~covered[0]
        while left:
            low = left & -left
            yield low.bit_length() - 1
            left &= ~(covered[0] | low)
