"""What run queues hold after all tasks have ended, and what of it chance does not explain."""

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from scipy.stats import fisher_exact

from numalab.hunt.case import Case
from numalab.hunt.compare.kernel_memory import KernelMemory
from numalab.hunt.compare.leftovers import Leftovers, chance
from numalab.hunt.compare.run_queues import (
    RUN_QUEUES,
    RunQueues,
    Word,
    member_at,
    read_run_queues,
    word_of,
)
from numalab.hunt.finding import BootResult
from numalab.hunt.property import describe_property, is_property
from numalab.hunt.replay import verdict
from numalab.machine.memory import HeldMemory
from numalab.workload.elf_symbols import ElfSymbol

TEXT, DIRECT, SIZE = 0xFFFFFFFF80000000, 0xFFFF888000000000, 32
WORD = Word(0xC, SIZE)


def result(**held: int) -> BootResult:
    """Return a boot that left something on a number of CPUs, by offset: `at12=3`."""
    places = {int(name.removeprefix("at")): cpus for name, cpus in held.items()}
    return BootResult((), 0.0, run_queues=RunQueues(SIZE, places))


@pytest.fixture
def memory() -> Iterator[HeldMemory]:
    fd = os.memfd_create("node")
    os.ftruncate(fd, 1 << 20)
    os.pwrite(fd, struct.pack("<3Q", *(DIRECT + 0x2000 + 0x100 * cpu for cpu in range(3))), 0x1000)
    for cpu, numbers in enumerate([(7,) * 8, (0, 3, -1, 0, 9, -30592, 0, 0), (0, 5, 0, 0) * 2]):
        os.pwrite(fd, struct.pack("<8i", *numbers), 0x2000 + 0x100 * cpu + 0x10)
    yield HeldMemory((fd,))
    os.close(fd)


def kernel_of(memory: HeldMemory, size: int = SIZE) -> KernelMemory:
    symbols = {
        "__per_cpu_offset": ElfSymbol(TEXT + 0x1000, 64, "__per_cpu_offset"),
        RUN_QUEUES: ElfSymbol(0x10, size, RUN_QUEUES),
    }
    return KernelMemory(memory, symbols, (0,), (1 << 20,))


def test_words_of_all_cpus_but_the_first_count(memory: HeldMemory) -> None:
    left = read_run_queues(kernel_of(memory), 3)
    assert left is not None
    assert (left.size, left.held) == (SIZE, {4: 2, 8: 1, 16: 1, 20: 2})


def test_run_queues_that_cannot_be_read_say_nothing(memory: HeldMemory) -> None:
    assert read_run_queues(None, 3) is None
    assert read_run_queues(kernel_of(memory), 1) is None
    assert read_run_queues(kernel_of(memory, 0), 3) is None
    assert read_run_queues(kernel_of(memory, 1 << 20), 3) is None
    assert read_run_queues(replace(kernel_of(memory), symbols={}), 3) is None
    assert read_run_queues(kernel_of(memory), 4) is None, "a CPU whose memory is not mapped"


def test_a_word_is_a_property_of_the_boot() -> None:
    assert WORD.prop == "left-in-runqueues+0xc/0x20"
    assert word_of(WORD.prop) == WORD
    assert is_property(WORD.prop) and "runqueues+0xc/0x20" in describe_property(WORD.prop)
    assert word_of("left-in-runqueues+0xc") is None
    named = word_of(Word(0xC, SIZE, "nr_numa_running").prop)
    assert named == WORD and str(named) == "runqueues+0xc/0x20 (nr_numa_running)"
    left = result(at12=3).of(f"{WORD.prop}-cfs+0x8", None)
    assert left is not None and left.text.startswith("runqueues+0xc/0x20 (cfs+0x8) is not 0")
    finding = result(at12=3).of(WORD.prop, None)
    assert finding is not None and finding.violated
    assert finding.text == "runqueues+0xc/0x20 is not 0 on 3 CPUs after all tasks have ended"
    assert verdict([result(at12=3)], WORD.prop, 0.0)[0] is True
    assert verdict([result(at8=3)], WORD.prop, 0.0)[0] is False
    assert verdict([BootResult((), 0.0)], WORD.prop, 0.0)[0] is None
    assert result(at12=3).of(Word(0xC, 36).prop, None) is None, "another struct rq"


@pytest.mark.parametrize(
    ("boots", "of", "beside"),
    [(0, 4, 4), (3, 4, 4), (7, 8, 9), (9, 12, 7), (12, 12, 12), (2, 3, 0)],
)
def test_the_chance_is_that_of_fishers_test(boots: int, of: int, beside: int) -> None:
    expected = fisher_exact([[boots, of - boots], [0, beside]], alternative="greater")
    assert chance(boots, of, beside) == pytest.approx(expected.pvalue)


def test_a_word_is_in_the_member_that_begins_before_it() -> None:
    members = {4: "nr_running", 16: "cfs"}
    assert [member_at(members, place) for place in (0, 4, 16, 24)] == [
        "", "nr_running", "cfs", "cfs+0x8",
    ]  # fmt: skip


def suspected(case: Case, boots: Sequence[tuple[BootResult, BootResult]]) -> str | None:
    left = Leftovers()
    for mine, theirs in boots:
        left.add(case, mine, mine=True)
        left.add(case, theirs, mine=False)
    suspect = left.suspect()
    assert left.suspect() is None, "each word once"
    return suspect.finding.prop if suspect else None


def test_a_word_that_one_kernel_leaves_is_suspected(drawn_case: Case) -> None:
    both = result(at4=2, at12=1), result(at4=2)
    assert suspected(drawn_case, [both] * 7) == WORD.prop
    assert suspected(drawn_case, [both] * 4) is None, "too few boots"
    assert suspected(drawn_case, [*[both] * 9, (result(), result(at12=1))]) is None
    other = result(at4=2), BootResult((), 0.0, run_queues=RunQueues(SIZE + 8, {}))
    assert suspected(drawn_case, [other] * 20) is None, "another struct rq"


def test_boots_of_one_kernel_only_count_as_well(drawn_case: Case) -> None:
    left = Leftovers()
    for _ in range(3):
        left.add(drawn_case, result(at12=1), mine=True)
    for _ in range(6):
        left.add(drawn_case, result(), mine=False)
    left.add(drawn_case, BootResult((), 0.0), mine=False)
    suspect = left.suspect()
    assert suspect is None, "1 in 84"
    left.add(drawn_case, result(), mine=False)
    suspect = left.suspect()
    assert suspect is not None and suspect.finding.prop == WORD.prop


def test_the_clearest_case_is_tried(drawn_case: Case) -> None:
    left, fewer = Leftovers(), drawn_case.only(drawn_case.loads[0])
    for _ in range(8):
        left.add(drawn_case, result(at12=1), mine=True)
        left.add(drawn_case, result(), mine=False)
    left.add(fewer, result(at12=3), mine=True)
    suspect = left.suspect()
    assert suspect is not None and suspect.case == fewer and suspect.finding.value == 3
