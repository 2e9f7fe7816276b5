"""Reads the placement proof of a guest before its first instruction and around its workload."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from numalab.errors import PlacementMismatch
from numalab.guest.proof import (
    Proof,
    misplaced_memory,
    misplaced_threads,
    pin_others,
    prove_memory,
    prove_threads,
)
from numalab.guest.usage import Usage, between, read_usage, shared_cpus
from numalab.host.facts import Disturbance
from numalab.machine.memory import HeldMemory
from numalab.machine.model import PAGE_KIB, Machine
from numalab.placement.planner import Placement
from numalab.qemu.domain_xml import is_allocated
from numalab.topology.predict.firmware import node_numbers


class Witness:
    """Collects the proof of a guest whose QEMU is process `pid`."""

    def __init__(
        self,
        pid: int,
        vcpu_threads: Sequence[int],
        memory: HeldMemory,
        machine: Machine,
        placement: Placement,
    ) -> None:
        self._pid = pid
        self._vcpu_threads = tuple(vcpu_threads)
        self._memory = memory
        self._page_kib = PAGE_KIB[machine.pages]
        self._allocated = is_allocated(machine, placement)
        self._strict = machine.mode == "kvm" and machine.measures_time
        self._placement = placement
        self._numbers = node_numbers(machine.topology)
        self._before: Usage | None = None
        self._ended = False
        self.proof = Proof((), (), placement.note)

    def started(self) -> None:
        """Read everything before the guest's first instruction.

        Threads that libvirt does not pin are moved first: QEMU allocates strict memory by threads
        `TC tc-ram-nodeN`, which may run on the whole host node. Raises PlacementMismatch, as
        `check`.
        """
        self._pin_others()
        self._read()
        self.check()

    def workload_began(self) -> None:
        """Read the usage of QEMU's threads, all of which exist now; later calls do nothing."""
        if self._before is None:
            self._pin_others()
            self._before = self._usage()

    def workload_ended(self) -> None:
        """Read the proof and the usage again; later calls do nothing."""
        if self._ended:
            return
        self._ended = True
        after = self._usage()
        if after.threads:
            self._read()
            if self._before is not None:
                self.proof = replace(self.proof, usage=between(self._before, after))

    def check(self) -> None:
        """Raise PlacementMismatch where timing is measured and the placement is not as planned."""
        if self._strict and self.proof.differs:
            raise PlacementMismatch(
                "not placed as planned: " + "; ".join(map(str, self.proof.differs))
            )

    def _pin_others(self) -> None:
        pin_others(prove_threads(self._pid, self._vcpu_threads, self._placement))

    def _usage(self) -> Usage:
        vcpus = {thread.thread: thread.vcpus for thread in self.proof.threads}
        return read_usage(self._pid, vcpus, set(self._placement.vcpus))

    def _read(self) -> None:
        threads = prove_threads(self._pid, self._vcpu_threads, self._placement)
        memory = prove_memory(self._pid, self._memory, self._placement, self._numbers)
        differs = (
            *misplaced_threads(threads, self._vcpu_threads),
            *misplaced_memory(memory, self._page_kib, allocated=self._allocated),
        )
        # A later reading does not remove a difference.
        differs = tuple(dict.fromkeys((*self.proof.differs, *differs)))
        self.proof = replace(self.proof, threads=threads, memory=memory, differs=differs)


class Doubt(StrEnum):
    """Why timing figures of a run are invalid.

    The mode, the plan (see `Proof.note`), or a placement not as planned (see `Proof.differs`).
    """

    MODE = "mode"
    PLAN = "plan"
    MISPLACED = "misplaced"


@dataclass(frozen=True)
class Timing:
    """Whether timing figures of a run are valid, and if not, why.

    `disturbs` makes valid figures less certain.
    """

    means: bool
    against: tuple[Doubt, ...]
    disturbs: tuple[Disturbance, ...]


def judge_timing(placement: Placement, proof: Proof) -> Timing:
    """Return whether timing figures of a run are valid, from its plan and its proof."""
    against = []
    if not placement.timing:
        against.append(Doubt.PLAN if placement.note else Doubt.MODE)
    if proof.differs:
        against.append(Doubt.MISPLACED)
    disturbs: tuple[Disturbance, ...] = ()
    if placement.timing:
        shared = shared_cpus(proof.usage, placement.vcpus) if proof.usage else ()
        disturbs = (*placement.disturbs, *shared)
    return Timing(not against, tuple(against), disturbs)
