"""The bounds of a machine, and the error for a topology file that breaks a rule."""

from collections.abc import Iterable, Iterator, Sequence

from numalab.units import counted

LOCAL_DISTANCE = 10  # ACPI 6.5, 5.2.17: the distance from a locality to itself
MAX_DISTANCE = 254  # 255 means that one node cannot reach the other
UNREACHABLE = 255
MAX_NODES = 64  # CONFIG_NODES_SHIFT=6 in Debian's kernels
MAX_CPUS = 255  # APIC ids 0 to 254; fewer where the numbers of a socket or a core have gaps
# Of all nodes, besides 1 MiB for each CPU. Debian's 6.12 boots with 36 MiB and 1 MiB for each CPU
# (1 to 16 nodes and CPUs, measured); a smaller kernel may boot with a little less.
LEAST_MEMORY_MIB = 32
MAX_MEMORY_MIB = 1 << 24  # 16 TiB for one node
MAX_LATENCY_NS = 1_000_000
# More need x2APIC and interrupt remapping (libvirt: an iommu device with eim), which no mode has.
MAX_APIC_ID = 254


class RuleBroken(ValueError):
    """A rule between keys that a document breaks; `more` are broken rules of the same part."""

    def __init__(self, key: str, message: str) -> None:
        self.key, self.message = key, message
        self.more: tuple[RuleBroken, ...] = ()
        super().__init__(f"{key}: {message}")


def refuse(broken: Iterable[RuleBroken]) -> None:
    """Raise the first broken rule, with the rest as its `more`; return if there is none."""
    rules = tuple(broken)
    if rules:
        rules[0].more = rules[1:]
        raise rules[0]


def broken_by_hop(key: str, by_hop: Sequence[int], diameter: int) -> Iterator[RuleBroken]:
    """Check the distances of 0 hops, 1 hop and so on of a machine."""
    if len(by_hop) != diameter + 1:
        yield RuleBroken(
            key,
            f"the machine is {counted(diameter, 'hop')} wide, so {diameter + 1} distances are "
            f"needed (0 to {diameter} hops), found {len(by_hop)}",
        )
    if by_hop and by_hop[0] != LOCAL_DISTANCE:
        yield RuleBroken(f"{key}[0]", f"the distance of 0 hops is always 10, found {by_hop[0]}")
    for hop in range(1, len(by_hop)):
        yield from broken_remote(f"{key}[{hop}]", by_hop[hop])
        if by_hop[hop] < by_hop[hop - 1]:
            yield RuleBroken(
                f"{key}[{hop}]",
                f"distances do not shrink with hops, found {by_hop[hop]} after {by_hop[hop - 1]}",
            )


def broken_memory(cpus: Sequence[Sequence[int]], memory_mib: Sequence[int]) -> Iterator[RuleBroken]:
    """Check that no node is empty, and that all together have memory for a kernel."""
    for number, (held, mib) in enumerate(zip(cpus, memory_mib, strict=True)):
        if not held and mib == 0:
            reason = f"node {number} has neither CPUs nor memory; no kernel would see it"
            yield RuleBroken(f"memory_mib[{number}]", reason)
    count, needed = sum(memory_mib), LEAST_MEMORY_MIB + sum(map(len, cpus))
    if count < needed:
        reason = f"{count} MiB in all; no kernel boots below {LEAST_MEMORY_MIB} MiB, and 1 MiB for"
        yield RuleBroken("memory_mib", f"{reason} each CPU: {needed} MiB")


def broken_remote(key: str, distance: int) -> Iterator[RuleBroken]:
    """Check a distance between two nodes.

    libvirt's schema of `<sibling>` and `slit_valid()` of the kernel refuse 10.
    """
    if distance <= LOCAL_DISTANCE:
        yield RuleBroken(
            key, f"a distance between two nodes is above 10, a node's own; found {distance}"
        )
