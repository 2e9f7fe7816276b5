"""The proof of placement: the actual binding of the running QEMU's threads and memory."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from numalab.cpulist import format_cpulist, parse_cpulist
from numalab.guest.usage import Usage, role_in_words
from numalab.machine.memory import HeldMemory
from numalab.placement.planner import Placement


@dataclass(frozen=True)
class ThreadProof:
    """A thread of QEMU: its role, its planned and its allowed host CPUs, and its vCPUs."""

    role: str
    thread: int
    planned: tuple[int, ...]
    allowed: tuple[int, ...]
    vcpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class MemoryProof:
    """A guest node's memory: pages on each host node, and the size of a page in KiB.

    `planned` is the planned host node; None if the plan is not recorded.
    """

    node: int
    pages: Mapping[int, int]
    page_kib: int
    planned: int | None = None


class MisplacedKind(StrEnum):
    """The kind of a difference from the plan."""

    THREAD = "thread"
    GONE = "gone"
    NODE = "node"
    PAGES = "pages"


@dataclass(frozen=True)
class Misplaced:
    """A difference between the placement of QEMU and the plan.

    `subject` is a thread by its role (by its number where it is gone), or a guest node by its
    number. `found` and `planned` are host CPUs, host nodes, or KiB of a page.
    """

    kind: MisplacedKind
    subject: str
    found: tuple[int, ...] = ()  # key of manifest.json
    planned: tuple[int, ...] = ()

    def __str__(self) -> str:
        """Return the text for messages and reports."""
        actual = format_cpulist(self.found) or "none"
        planned = format_cpulist(self.planned) or "none"
        match self.kind:
            case MisplacedKind.THREAD:
                return f"{self.subject} may run on host CPUs {actual}, planned {planned}"
            case MisplacedKind.GONE:
                return f"vCPU thread {self.subject} is gone"
            case MisplacedKind.NODE:
                return f"guest node {self.subject} lies on host nodes {actual}, planned {planned}"
            case MisplacedKind.PAGES:
                return f"guest node {self.subject} has pages of {actual} KiB, planned {planned}"


@dataclass(frozen=True)
class Proof:
    """The actual placement of one guest.

    `memory` is empty where the host's kernel has no numa_maps. `usage` covers the workload; None
    where it could not be read. `differs`: the differences from the plan.
    """

    threads: tuple[ThreadProof, ...]
    memory: tuple[MemoryProof, ...]
    note: str
    usage: Usage | None = None
    differs: tuple[Misplaced, ...] = ()


def prove_threads(
    pid: int, vcpu_threads: Sequence[int], placement: Placement
) -> tuple[ThreadProof, ...]:
    """Read the affinity of every thread of QEMU process `pid`, with what was planned for it.

    Under emulation all vCPUs have the same thread, which then appears once.
    """
    threads = []
    for path in _tasks(pid):
        thread = int(path.name)
        try:
            allowed = parse_allowed((path / "status").read_text(encoding="utf-8"))
        except OSError:
            continue  # it ended between listing and reading
        vcpus = tuple(vcpu for vcpu, runs in enumerate(vcpu_threads) if runs == thread)
        planned = {placement.vcpus[vcpu] for vcpu in vcpus} or set(placement.emulator)
        role = role_in_words(vcpus, _comm(path))
        threads.append(ThreadProof(role, thread, tuple(sorted(planned)), allowed, vcpus))
    return tuple(threads)


def pin_others(threads: Iterable[ThreadProof]) -> None:
    """Pin threads that run no vCPU to their planned CPUs.

    A thread that KVM itself starts for a guest (kvm-nx-lpage-recovery) inherits the CPU of the vCPU
    that ran first. libvirt has pinned the other threads before, and does not know this one.
    """
    for thread in threads:
        if not thread.vcpus and not _is_placed(thread):
            with suppress(OSError):  # it has ended, or pinning is not permitted
                os.sched_setaffinity(thread.thread, thread.planned)


def misplaced_threads(
    threads: Sequence[ThreadProof], expected: Iterable[int]
) -> tuple[Misplaced, ...]:
    """Return the threads that are missing or may run on other CPUs than planned."""
    wrong = [
        Misplaced(MisplacedKind.THREAD, thread.role, thread.allowed, thread.planned)
        for thread in threads
        if not _is_placed(thread)
    ]
    tids = {thread.thread for thread in threads}
    wrong += [Misplaced(MisplacedKind.GONE, str(tid)) for tid in sorted(set(expected) - tids)]
    return tuple(wrong)


def parse_allowed(status: str) -> tuple[int, ...]:
    """Read Cpus_allowed_list from the text of /proc/<tid>/status. Raises ValueError."""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return parse_cpulist(value)
    raise ValueError("no Cpus_allowed_list")


def prove_memory(
    pid: int, memory: HeldMemory, placement: Placement, numbers: Sequence[int]
) -> tuple[MemoryProof, ...]:
    """Return the host nodes of each guest node's memory, by the guest's `numbers` of the nodes.

    Memory is identified by the inode of its memfd, anonymous memory by its address. Empty where
    the host's kernel has no numa_maps, or QEMU has ended.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
        numa_maps = Path(f"/proc/{pid}/numa_maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    pages = parse_numa_maps(numa_maps)
    if memory.fds:
        by_inode = parse_maps(maps)
        places = [by_inode.get(inode, []) for inode in memory.inodes()]
    else:
        places = [[a for a in pages if start <= a < start + size] for start, size in memory.ranges]
    proofs = []
    for node, addresses in enumerate(places):
        counts: dict[int, int] = {}
        size = 0
        for address in addresses:
            mapped, size = pages.get(address, ({}, size))
            for host_node, count in mapped.items():
                counts[host_node] = counts.get(host_node, 0) + count
        proofs.append(MemoryProof(numbers[node], counts, size, placement.host_nodes[node]))
    return tuple(sorted(proofs, key=lambda proof: proof.node))


def misplaced_memory(
    proofs: Sequence[MemoryProof], page_kib: int, *, allocated: bool
) -> tuple[Misplaced, ...]:
    """Return the guest nodes with memory on another host node, or on too small pages.

    `page_kib` is the planned size of a page. `allocated`: all memory is allocated already, so a
    node without pages is misplaced too. Without `proofs` nothing is misplaced.
    """
    wrong = []
    for proof in proofs:
        node, lies = str(proof.node), tuple(sorted(proof.pages))
        if set(lies) - {proof.planned} or (allocated and not lies):
            planned = () if proof.planned is None else (proof.planned,)
            wrong.append(Misplaced(MisplacedKind.NODE, node, lies, planned))
        if lies and proof.page_kib < page_kib:
            wrong.append(Misplaced(MisplacedKind.PAGES, node, (proof.page_kib,), (page_kib,)))
    return tuple(wrong)


def parse_maps(text: str) -> dict[int, list[int]]:
    """Parse /proc/<pid>/maps (proc(5)) into the start addresses of each inode's mappings."""
    places: dict[int, list[int]] = {}
    for line in text.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/memfd:"):
            places.setdefault(int(fields[4]), []).append(int(fields[0].split("-")[0], 16))
    return places


def parse_numa_maps(text: str) -> dict[int, tuple[dict[int, int], int]]:
    """Parse /proc/<pid>/numa_maps (numa(7)): by address, pages by host node and KiB of a page."""
    mappings: dict[int, tuple[dict[int, int], int]] = {}
    for line in text.splitlines():
        address, *words = line.split()
        pages: dict[int, int] = {}
        size = 0
        for word in words:
            name, _, value = word.partition("=")
            if name[:1] == "N" and name[1:].isdecimal() and value.isdecimal():
                pages[int(name[1:])] = int(value)
            elif name == "kernelpagesize_kB" and value.isdecimal():
                size = int(value)
        mappings[int(address, 16)] = (pages, size)
    return mappings


def _is_placed(thread: ThreadProof) -> bool:
    """Return whether a vCPU has exactly its planned CPUs, another thread a subset of them."""
    if thread.vcpus:
        return thread.allowed == thread.planned
    return set(thread.allowed) <= set(thread.planned)


def _tasks(pid: int) -> list[Path]:
    try:
        return sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name))
    except OSError:
        return []  # it has ended


def _comm(path: Path) -> str:
    try:
        return (path / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"
