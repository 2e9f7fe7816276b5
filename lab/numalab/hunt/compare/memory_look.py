"""What a hunt reads in the memory of a guest that has ended."""

from dataclasses import dataclass
from pathlib import Path

from numalab.hunt.compare.facts import SYMBOLS, Fact, facts_in_memory
from numalab.hunt.compare.kernel_memory import open_kernel_memory
from numalab.hunt.compare.run_queues import RUN_QUEUES, RunQueues, read_run_queues
from numalab.machine.memory import HeldMemory
from numalab.topology.predict.rules import rules_for
from numalab.topology.topology import Topology


@dataclass(frozen=True)
class MemoryLook:
    """The facts in a guest's memory, and its run queues; nothing if it could not be read."""

    facts: tuple[Fact, ...] = ()
    run_queues: RunQueues | None = None


def look_into(
    memory: HeldMemory, machine: Topology, vmlinux: Path | None, release: str
) -> MemoryLook:
    """Read the memory of a guest that has ended.

    `machine` has its nodes in the order of QEMU; `vmlinux` and `release` are of its kernel.
    """
    kernel = open_kernel_memory(memory, machine, vmlinux, {*SYMBOLS, RUN_QUEUES})
    domains = rules_for(release).imbalance
    facts = facts_in_memory(kernel, machine.cpu_count, domains=domains)
    return MemoryLook(facts, read_run_queues(kernel, machine.cpu_count))
