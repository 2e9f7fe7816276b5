"""A rule that a topology file breaks."""

from collections.abc import Sequence

from numalab.topology.limits import LOCAL_DISTANCE


class RuleBroken(ValueError):
    """A rule between keys that a document breaks: the key and what is wrong with it."""

    def __init__(self, key: str, message: str) -> None:
        self.key, self.message = key, message
        super().__init__(f"{key}: {message}")


def check_by_hop(key: str, by_hop: Sequence[int], diameter: int) -> None:
    """Check the distances of 0 hops, 1 hop and so on of a machine. Raises RuleBroken."""
    if len(by_hop) != diameter + 1:
        raise RuleBroken(
            key,
            f"the machine is {diameter} hops wide, so {diameter + 1} distances are needed "
            f"(0 to {diameter} hops), found {len(by_hop)}",
        )
    if by_hop[0] != LOCAL_DISTANCE:
        raise RuleBroken(f"{key}[0]", f"the distance of 0 hops is always 10, found {by_hop[0]}")
    for hop in range(1, len(by_hop)):
        check_remote(f"{key}[{hop}]", by_hop[hop])
        if by_hop[hop] < by_hop[hop - 1]:
            raise RuleBroken(
                f"{key}[{hop}]",
                f"distances do not shrink with hops, found {by_hop[hop]} after {by_hop[hop - 1]}",
            )


def check_remote(key: str, distance: int) -> None:
    """Check a distance between two nodes. Raises RuleBroken.

    10 is refused by libvirt's schema of `<sibling>`, and by `slit_valid()` of the kernel.
    """
    if distance <= LOCAL_DISTANCE:
        raise RuleBroken(
            key, f"a distance between two nodes is above 10, a node's own; found {distance}"
        )
