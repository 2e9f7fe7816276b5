"""The proof of placement: what the running QEMU's threads and memory are bound to, read back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.cpulist import format_cpulist, parse_cpulist
from lab.errors import PlacementMismatch
from lab.machine.placement import Placement


@dataclass(frozen=True)
class ThreadProof:
    """A thread of QEMU: what it does, the host CPUs planned for it, and those it may run on."""

    role: str
    thread: int
    planned: tuple[int, ...]
    allowed: tuple[int, ...]


@dataclass(frozen=True)
class MemoryProof:
    """A guest node's memory: pages on each host node, and the size of a page in KiB."""

    node: int
    pages: Mapping[int, int]
    page_kib: int


@dataclass(frozen=True)
class Proof:
    """What was read back from one guest; `memory` is empty where the host does not tell."""

    threads: tuple[ThreadProof, ...]
    memory: tuple[MemoryProof, ...]
    note: str


def prove_threads(pid: int, vcpu_threads: Sequence[int], placement: Placement) -> Proof:
    """Read the affinity of every thread of QEMU process `pid` and compare it with the plan.

    In `icount` mode all vCPUs have the same thread, which then appears once. Raises
    PlacementMismatch when a thread may run elsewhere than planned.
    """
    roles: dict[int, list[int]] = {}
    for vcpu, thread in enumerate(vcpu_threads):
        roles.setdefault(thread, []).append(vcpu)
    threads = []
    for path in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        thread = int(path.name)
        try:
            allowed = parse_allowed((path / "status").read_text(encoding="utf-8"))
        except OSError:
            continue  # it ended between listing and reading
        vcpus = roles.get(thread, [])
        planned = {placement.vcpus[vcpu] for vcpu in vcpus} or set(placement.emulator)
        role = f"vcpu {format_cpulist(vcpus)}" if vcpus else _comm(path)
        threads.append(ThreadProof(role, thread, tuple(sorted(planned)), allowed))
    proof = Proof(tuple(threads), (), placement.note)
    check_threads(proof, roles.keys())
    return proof


def check_threads(proof: Proof, expected: object) -> None:
    """Raise PlacementMismatch for a thread that may run elsewhere than planned, or is missing."""
    wrong = [
        f"{thread.role} may run on host CPUs {format_cpulist(thread.allowed)},"
        f" planned {format_cpulist(thread.planned)}"
        for thread in proof.threads
        if thread.allowed != thread.planned
    ]
    found = {thread.thread for thread in proof.threads}
    wrong += [f"vCPU thread {tid} is gone" for tid in set(expected) - found]  # type: ignore[call-overload]
    if wrong:
        raise PlacementMismatch("not placed as planned: " + "; ".join(wrong))


def parse_allowed(status: str) -> tuple[int, ...]:
    """Read Cpus_allowed_list from the text of /proc/<tid>/status. Raises ValueError."""
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return parse_cpulist(value)
    raise ValueError("no Cpus_allowed_list")


def prove_memory(pid: int, inodes: Sequence[int]) -> tuple[MemoryProof, ...]:
    """Read on which host nodes the memory of each guest node lies, by the inode of its memfd.

    Empty where the host's kernel has no numa_maps, or QEMU has ended.
    """
    try:
        maps = Path(f"/proc/{pid}/maps").read_text(encoding="utf-8", errors="replace")
        numa_maps = Path(f"/proc/{pid}/numa_maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ()
    places = parse_maps(maps)
    pages = parse_numa_maps(numa_maps)
    proofs = []
    for node, inode in enumerate(inodes):
        counts: dict[int, int] = {}
        size = 0
        for address in places.get(inode, ()):
            found, size = pages.get(address, ({}, size))
            for host_node, count in found.items():
                counts[host_node] = counts.get(host_node, 0) + count
        proofs.append(MemoryProof(node, counts, size))
    return tuple(proofs)


def check_memory(found: Sequence[MemoryProof], placement: Placement, page_kib: int) -> None:
    """Compare where a guest's memory lies, all of it allocated, with the plan.

    Raises PlacementMismatch for a guest node with pages on another host node than planned, with
    none at all, or with pages that are smaller than `page_kib`. A host whose kernel tells nothing
    (`found` is empty) is no mismatch.
    """
    wrong = []
    for proof in found:
        planned = placement.host_nodes[proof.node]
        if set(proof.pages) != {planned}:
            lies = format_cpulist(proof.pages) or "none"
            wrong.append(f"guest node {proof.node} lies on host nodes {lies}, planned {planned}")
        if proof.page_kib < page_kib:
            wrong.append(
                f"guest node {proof.node} has pages of {proof.page_kib} KiB, planned {page_kib}"
            )
    if wrong:
        raise PlacementMismatch("memory is not placed as planned: " + "; ".join(wrong))


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
    found: dict[int, tuple[dict[int, int], int]] = {}
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
        found[int(address, 16)] = (pages, size)
    return found


def _comm(path: Path) -> str:
    try:
        return (path / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"
