"""The host's budget: reservations of CPUs, memory and hugepages by running guests.

One file with a lock serves all numalab processes, so that exclusive reservations never overlap and
shared ones spread out. The next process that reads the file frees the reservations and hugepages
of dead processes.
"""

import atexit
import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter

from numalab.cpulist import format_cpulist
from numalab.errors import HostBusy, HostError, LabError
from numalab.files import write_json
from numalab.host.facts import parse_available, parse_meminfo
from numalab.host.processes import Owner, boot_id, is_alive, this_process
from numalab.host.read import total_mib
from numalab.locks import locked
from numalab.places import cache_dir
from numalab.units import format_size

_counter = itertools.count(1)


@dataclass(frozen=True)
class Pages:
    """Hugepages of one size (in KiB) on one host node (its id)."""

    node: int
    size_kib: int
    count: int


@dataclass(frozen=True)
class NodeMemory:
    """Memory of one host node (its id), in MiB."""

    node: int
    mib: int


@dataclass(frozen=True)
class Reservation:
    """The reservation of a guest: host CPUs, total memory, and its hugepages.

    `shares`: other guests that share may run on the same CPUs; otherwise it has them to itself.
    `bound`: memory that must come from certain nodes, hugepages aside.
    """

    cpus: tuple[int, ...]
    memory_mib: int
    pages: tuple[Pages, ...] = ()
    shares: bool = False
    bound: tuple[NodeMemory, ...] = ()


@dataclass(frozen=True)
class CpusInUse:
    """The host CPUs on which guests run: `alone` by one that has the CPU to itself, or `shared`.

    `shared` says by how many; a guest whose numalab is nice counts for less.
    """

    alone: frozenset[int]
    shared: Mapping[int, float]

    @property
    def cpus(self) -> frozenset[int]:
        """All of them."""
        return self.alone | self.shared.keys()


@dataclass(frozen=True)
class _Granted:
    owner: Owner
    number: int
    claim: Reservation
    added: tuple[Pages, ...]
    boot: str = ""

    @property
    def lives(self) -> bool:
        """Whether its process runs and has not released it."""
        if self.boot not in ("", boot_id()) or not is_alive(self.owner):
            return False
        return self.owner.pid != os.getpid() or self.number not in _released


_ENTRIES = TypeAdapter(list[_Granted])


class Admission:
    """A claim that was granted, until it is released."""

    def __init__(self, claim: Reservation, number: int | None, root: Path) -> None:
        self.claim = claim
        self._number = number
        self._root = root
        if number is not None:
            _granted.add(self)

    @classmethod
    def of_nothing(cls) -> "Admission":
        """Return the admission of a guest without a reservation."""
        return cls(Reservation((), 0), None, Path("/"))

    def release(self) -> None:
        """Give everything back. Safe to call again.

        Where the budget cannot be written, a later look at it gives it back.
        """
        if self._number is None:
            return
        _released.add(self._number)
        with contextlib.suppress(HostError):
            cpus_in_use(self._root)
            _granted.discard(self)
            self._number = None


# Admissions to release at the end of this process, even by Ctrl-C.
_granted: set[Admission] = set()
# The numbers of those that were released.
_released: set[int] = set()


@atexit.register
def _release_all() -> None:
    for admission in tuple(_granted):
        with contextlib.suppress(LabError):
            admission.release()


def admit(choose: Callable[[CpusInUse], Reservation], root: Path = Path("/")) -> Admission:
    """Reserve a part of the host: `choose` maps the CPUs in use to the reservation.

    No other process reserves meanwhile. Hugepages are added to the pools of their nodes where
    this user may do that, else free ones are used. `root` holds the host's /proc and /sys. Raises
    HostBusy where other guests have the CPUs or the memory, HostError where memory or hugepages
    do not suffice; then nothing is taken.
    """
    with locked(_lock()):
        entries = _living(root)
        claim = choose(_taken(entries))
        _check_cpus(claim, entries)
        _check_memory(claim, entries, root)
        _check_nodes(claim, entries, root)
        number = next(_counter)
        added = _reserve(claim.pages, entries, root)
        try:
            _write([*entries, _Granted(this_process(), number, claim, added, boot_id())])
        except BaseException:
            _give_back(added, root)
            raise
    return Admission(claim, number, root)


def cpus_in_use(root: Path = Path("/")) -> CpusInUse:
    """Return the CPUs on which guests of living processes run."""
    with locked(_lock()):
        return _taken(_living(root))


def _taken(entries: Sequence[_Granted]) -> CpusInUse:
    shared: dict[int, float] = {}
    for entry in entries:
        if entry.claim.shares:
            weight = _weight(entry.owner)
            for cpu in entry.claim.cpus:
                shared[cpu] = shared.get(cpu, 0) + weight
    alone = {cpu for entry in entries if not entry.claim.shares for cpu in entry.claim.cpus}
    return CpusInUse(frozenset(alone), shared)


def _weight(owner: Owner) -> float:
    """Return the weight of a process on a shared CPU: 1 for nice value 0.

    A step of it is a factor of 1.25 (`sched_prio_to_weight[]` in kernel/sched/core.c, 6.12).
    """
    try:
        return float(1.25 ** -os.getpriority(os.PRIO_PROCESS, owner.pid))
    except ProcessLookupError:  # it has just ended
        return 0.0


def _check_cpus(claim: Reservation, entries: Sequence[_Granted]) -> None:
    for entry in entries:
        both = set(claim.cpus) & set(entry.claim.cpus)
        if both and not (claim.shares and entry.claim.shares):
            raise HostBusy(
                f"host CPUs {format_cpulist(both)} run a guest of process {entry.owner.pid}",
                hint="wait until it has ended, or use another mode than kvm",
            )


def _check_memory(claim: Reservation, entries: Sequence[_Granted], root: Path) -> None:
    total = total_mib(root)
    claimed = sum(entry.claim.memory_mib for entry in entries)
    if claim.memory_mib + claimed > total:
        busy = HostBusy if claim.memory_mib <= total else HostError
        raise busy(
            f"the guest needs {format_size(claim.memory_mib << 20)}, other guests have"
            f" {format_size(claimed << 20)}, and the host (or the cgroup of this process) has"
            f" {format_size(total << 20)}",
            hint="wait until they have ended, or ask for a smaller topology",
        )


def _check_nodes(claim: Reservation, entries: Sequence[_Granted], root: Path) -> None:
    """Refuse memory bound to a node that lacks it: the OOM killer would end the guest.

    Compares it with the reservations of other guests, and with the memory free now.
    """
    for wanted in claim.bound:
        try:
            path = root / f"sys/devices/system/node/node{wanted.node}/meminfo"
            text = path.read_text(encoding="ascii")
            total, available = parse_meminfo(text)[0], parse_available(text)
        except (OSError, ValueError):
            continue  # a host without per-node meminfo
        claimed = sum(
            bound.mib
            for entry in entries
            for bound in entry.claim.bound
            if bound.node == wanted.node
        )
        if wanted.mib > min(available, total - claimed):
            busy = HostBusy if claimed and wanted.mib <= total else HostError
            raise busy(
                f"the guest needs {wanted.mib} MiB of host node {wanted.node}, which has {total}:"
                f" {available} are free, other guests have {claimed}",
                hint="free memory there, put guest nodes elsewhere (--nodes), or ask for less",
            )


def _reserve(wanted: Iterable[Pages], entries: Sequence[_Granted], root: Path) -> tuple[Pages, ...]:
    """Add hugepages to the pools; returns those that were added (the rest were free before)."""
    added: list[Pages] = []
    try:
        for pages in wanted:
            if _add(pages, entries, root):
                added.append(pages)
    except BaseException:
        _give_back(added, root)
        raise
    return tuple(added)


def _add(pages: Pages, entries: Sequence[_Granted], root: Path) -> bool:
    """Make room for `pages` in their pool; return whether the pool grew.

    Pages of other guests are not free, even if QEMU has not taken them yet.
    """
    pool = _pool(pages, root)
    try:
        before = _count(pool / "nr_hugepages")
        with contextlib.suppress(OSError):  # not root, or a read-only /sys
            (pool / "nr_hugepages").write_text(f"{before + pages.count}\n", encoding="ascii")
        after = _count(pool / "nr_hugepages")
        if after >= before + pages.count:
            return True
        if after > before:  # memory is too fragmented for all of them
            (pool / "nr_hugepages").write_text(f"{before}\n", encoding="ascii")
        free = _count(pool / "free_hugepages")
    except (OSError, ValueError) as error:
        raise HostError(f"the host has no hugepages of {_size(pages)}: {error}") from None
    claimed = sum(
        other.count
        for entry in entries
        for other in entry.claim.pages
        if (other.node, other.size_kib) == (pages.node, pages.size_kib)
    )
    free = max(0, min(free, before - claimed))
    if free < pages.count:
        busy = HostBusy if claimed and pages.count <= before else HostError
        raise busy(
            f"{pages.count} hugepages of {_size(pages)} are needed on host node {pages.node};"
            f" {free} are free, and only {after - before} more could be had",
            hint=f"echo {before + pages.count - free} > {pool}/nr_hugepages (as root)",
        )
    return False


def _give_back(added: Iterable[Pages], root: Path) -> None:
    for pages in added:
        path = _pool(pages, root) / "nr_hugepages"
        with contextlib.suppress(OSError, ValueError):
            # Pages that are still in use leave the pool when they are freed.
            path.write_text(f"{max(0, _count(path) - pages.count)}\n", encoding="ascii")


def _pool(pages: Pages, root: Path) -> Path:
    name = f"hugepages/hugepages-{pages.size_kib}kB"
    node = root / f"sys/devices/system/node/node{pages.node}"
    return node / name if node.is_dir() else root / "sys/kernel/mm" / name


def _size(pages: Pages) -> str:
    return format_size(pages.size_kib << 10)


def _count(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


def _lock() -> Path:
    return cache_dir("host") / "lock"


def _budget() -> Path:
    return cache_dir("host") / "budget.json"


def _living(root: Path) -> list[_Granted]:
    """Return the entries of living processes; remove hugepages that dead ones added.

    The pools of an earlier boot are gone, and those of this one are not numalab's to shrink.
    """
    entries = _read()
    living = [entry for entry in entries if entry.lives]
    dead = [entry for entry in entries if entry not in living]
    if dead:
        _write(living)  # first, as pages are given back once
    for entry in dead:
        if entry.boot in ("", boot_id()):
            _give_back(entry.added, root)
    return living


def _read() -> list[_Granted]:
    path = _budget()
    if not os.path.lexists(path):
        return []
    reason = "not a file"  # a pipe would block
    try:
        if path.is_file():
            return _ENTRIES.validate_json(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = str(error).partition("\n")[0]
    raise HostError(f"{path} cannot be read: {reason}", hint=f"rm -r {path}, when no guest runs")


def _write(entries: Iterable[_Granted]) -> None:
    write_json(_budget(), [asdict(entry) for entry in entries])
