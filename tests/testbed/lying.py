"""How guests lie on the bed's host, by what evidence.py has read from its /proc."""

from collections.abc import Callable, Sequence
from typing import Any

from testbed.bed import Bed
from testbed.test_pinned_guest import EVIDENCE, GUEST

Qemu = dict[str, Any]


def lying(bed: Bed, count: int = 1) -> list[Qemu]:
    """Return the QEMUs, once `count` of them have a guest whose workload runs."""
    evidence = bed.run("python3", EVIDENCE, str(count)).json()
    assert evidence["at_work"] == count, evidence
    qemus: list[Qemu] = evidence["qemus"]
    return qemus


def run_beside(
    bed: Bed,
    *guests: Sequence[str],
    user: str = "",
    before: Sequence[str] = (),
    meanwhile: Callable[[Qemu], None] = lambda _qemu: None,
) -> tuple[tuple[Qemu, dict[str, Any]], ...]:
    """Boot guests at once; return what /proc said of each while their workloads ran, and numalab.

    Each is the words of `numalab boot` with its command, which no other guest has and lasts until
    all of them run. `before` are words in front of numalab's; `meanwhile` is given each.
    """
    begun = []
    for words in guests:
        end = words.index("--")
        asked = (*before, "numalab", "boot", *words[:end], *GUEST, "--json", *words[end:])
        begun.append(bed.begin(*asked, user=user, seconds=600))
    try:
        qemus = lying(bed, len(guests))
    except AssertionError:
        raise AssertionError("\n".join(guest.result().output() for guest in begun)) from None
    # A daemon's QEMU does not say who asked for it.
    of = [qemus[0]] if len(guests) == 1 else [_asked(qemus, words[-1]) for words in guests]
    for qemu in of:
        meanwhile(qemu)
    return tuple((qemu, guest.result().json()) for qemu, guest in zip(of, begun, strict=True))


def _asked(qemus: list[Qemu], word: str) -> Qemu:
    (match,) = (qemu for qemu in qemus if word in qemu["asked"])
    return match


def policies(qemu: Qemu) -> list[str]:
    """Return the memory policy of each guest node, as in numa_maps."""
    return [node["policy"] for node in qemu["memory"]]


def vcpus(qemu: Qemu) -> list[int]:
    """Return the one host CPU of each vCPU, in the order of the vCPUs."""
    threads = {thread["name"]: thread["allowed"] for thread in qemu["threads"]}
    count = sum(name.startswith("CPU ") for name in threads)
    allowed = [threads[f"CPU {number}/KVM"] for number in range(count)]
    assert all(len(cpus) == 1 for cpus in allowed)
    return [cpus[0] for cpus in allowed]


def nodes(qemu: Qemu) -> list[int]:
    """Return the one host node of each guest node's pages."""
    host_nodes = [list(map(int, node["pages"])) for node in qemu["memory"]]
    assert all(len(node) == 1 for node in host_nodes)
    return [node[0] for node in host_nodes]


def pages_of_nodes(bed: Bed, size: str = "2048kB") -> dict[int, int]:
    """Return how many huge pages of a size each host node has that has any."""
    pools = bed.run("python3", EVIDENCE).json()["pools"]
    return {int(node): pool[size][0] for node, pool in pools.items() if pool[size][0]}
