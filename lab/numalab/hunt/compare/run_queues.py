"""What the run queues of a kernel hold after all tasks have ended.

Then the run queue of each CPU but the first is that of an idle CPU, and about a third of its words
are 0 with every seed. A counter that a patch raises and does not lower again is not.
"""

import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from numalab.hunt.compare.kernel_memory import KernelMemory

RUN_QUEUES = "runqueues"  # a per-CPU struct rq, kernel/sched/core.c
_LARGEST = 1 << 16  # bytes of a run queue
_WORD = 4
_NAME = re.compile(
    rf"left-in-{RUN_QUEUES}\+0x([0-9a-f]{{1,4}})/0x([0-9a-f]{{1,4}})"
    r"(?:-([A-Za-z_]\w{0,60}(?:\+0x[0-9a-f]{1,4})?))?"
)


@dataclass(frozen=True)
class Word:
    """A word of a run queue: its offset in struct rq, and the size of that, in bytes.

    `member` is the member of struct rq there, "" if it is unknown.
    """

    offset: int
    size: int
    member: str = field(default="", compare=False)

    def __str__(self) -> str:
        """Write it as in the kernel's own messages, with its member."""
        return f"{self.place} ({self.member})" if self.member else self.place

    @property
    def place(self) -> str:
        """The offset in the per-CPU variable, and its size."""
        return f"{RUN_QUEUES}+{self.offset:#x}/{self.size:#x}"

    @property
    def prop(self) -> str:
        """The name of the property that it is 0 after all tasks have ended."""
        return f"left-in-{self.place}-{self.member}" if self.member else f"left-in-{self.place}"


@dataclass(frozen=True)
class RunQueues:
    """The run queues of all CPUs but the first: their size in bytes, and what they hold.

    `held` is the number of CPUs where the word at an offset is not 0; without those of none.
    """

    size: int
    held: Mapping[int, int]


def word_of(prop: str) -> Word | None:
    """Return the word that a property is about; None for other properties."""
    match = _NAME.fullmatch(prop)
    return Word(int(match[1], 16), int(match[2], 16), match[3] or "") if match else None


def member_at(members: Mapping[int, str], offset: int) -> str:
    """Return the member at an offset, or that which begins before: `cfs+0x18`; "" without one."""
    start = max((place for place in members if place <= offset), default=None)
    if start is None:
        return ""
    return members[start] + (f"+{offset - start:#x}" if offset > start else "")


def read_run_queues(kernel: KernelMemory | None, cpus: int) -> RunQueues | None:
    """Return the run queues of a guest that has ended; None if they cannot be read.

    A machine with one CPU has none.
    """
    size = kernel.size(RUN_QUEUES) if kernel is not None else 0
    if kernel is None or cpus < 2 or not 0 < size <= _LARGEST:
        return None
    held = Counter[int]()
    for cpu in range(1, cpus):
        address = kernel.per_cpu_address(RUN_QUEUES, cpu)
        data = None if address is None else kernel.read(address, size)
        if data is None:
            return None
        numbers = struct.unpack_from(f"<{size // _WORD}i", data)
        held.update(_WORD * place for place, number in enumerate(numbers) if number)
    return RunQueues(size, dict(sorted(held.items())))
