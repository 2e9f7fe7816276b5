"""Facts that a kernel computed about its machine: read from memory, files and log, and compared."""

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.case import Case, machine_of
from numalab.hunt.compare.facts import (
    LARGEST,
    LEVELS,
    SYMBOLS,
    TYPE,
    Fact,
    differing_levels,
    facts_in_memory,
    facts_of_guest,
    with_facts,
)
from numalab.hunt.compare.kernel_memory import open_kernel_memory, read_symbols
from numalab.hunt.compare.pairs import boot_beside, with_differences
from numalab.hunt.finding import BootResult
from numalab.hunt.property import FACTS
from numalab.hunt.workers import Boot, CaseWorkers
from numalab.machine.memory import HeldMemory
from numalab.topology.guest_view import parse_guest_view
from numalab.topology.predict.prediction import predict
from numalab.topology.topology import Topology

TEXT, DIRECT, HERE = 0xFFFFFFFF80000000, 0xFFFF888000000000, 0x1000
VALUES = {LARGEST: 20, LEVELS: 2, TYPE: 0, "node_reclaim_distance": 30}
# Of CPU 0: an MC domain below a NUMA domain, and a group of the latter beside itself.
MC, NUMA, GROUP, OTHER, TABLE = (DIRECT + 0x8000 + place * 0x100 for place in range(5))
DMESG = """Linux version 6.12.1
CPU0 attaching sched-domain(s):
 domain-0: span=0-1 level=MC
  groups: 0:{ span=0 cap=1020 }, 1:{ span=1 }
"""


def elf(symbols: Mapping[str, int]) -> bytes:
    """Return an ELF file with these symbols."""
    names, table = b"\0", b""
    for name, value in symbols.items():
        table += struct.pack("<IBBHQQ", len(names), 0x11, 0, 1, value, 0)
        names += name.encode() + b"\0"
    head, body = 64, table + names
    sections = [(2, head, len(table), 1), (3, head + len(table), len(names), 0)]
    rows = b"".join(
        struct.pack("<IIQQQQIIQQ", 0, kind, 0, 0, offset, size, link, 0, 0, 0)
        for kind, offset, size, link in sections
    )
    header = b"\x7fELF\x02\x01".ljust(40, b"\0") + struct.pack("<Q", head + len(body))
    return header.ljust(60, b"\0") + struct.pack("<HH", len(sections), 0) + body + rows


def domain(parent: int, child: int, imbalance: int, group: int) -> bytes:
    numbers = struct.pack("<QQ4I", 2, 4, 16, 117, 1, imbalance)
    return struct.pack("<QQQ", parent, child, group) + numbers


@pytest.fixture
def machine() -> Topology:
    text = 'summary = "s"\nnodes = 2\ncpus = [2, 2]\nmemory_mib = 256\n'
    machine = machine_of(text + '[shape]\nkind = "full"\ndistances = [10, 20]\n')
    assert machine is not None
    return machine


@pytest.fixture
def memory(machine: Topology) -> Iterator[HeldMemory]:
    """Return the memory of a kernel that computed `VALUES` and the domains of CPU 0."""
    fds = tuple(os.memfd_create("node") for _ in machine.nodes)
    for fd in fds:
        os.ftruncate(fd, 256 << 20)
    os.pwrite(fds[0], b"Linux version 6.12", HERE)
    for place, value in enumerate(VALUES.values()):
        os.pwrite(fds[0], struct.pack("<I", value), HERE + 0x100 + 8 * place)
    os.pwrite(fds[0], struct.pack("<Q", TABLE), HERE + 0x200)
    # __per_cpu_offset[] (CPUs 1 to 3 have no such domain), and sd_numa of CPU 0.
    os.pwrite(fds[0], struct.pack("<4Q", *(DIRECT + 0x2000 + 0x100 * n for n in range(4))), 0x1300)
    os.pwrite(fds[0], struct.pack("<Q", NUMA), 0x2000 + 0x10)
    os.pwrite(fds[0], domain(NUMA, 0, 0, 0), MC - DIRECT)
    os.pwrite(fds[0], domain(0, MC, 1, GROUP), NUMA - DIRECT)
    for group, other, weight in ((GROUP, OTHER, 2), (OTHER, GROUP, 1)):
        os.pwrite(fds[0], struct.pack("<QII", other, 0, weight), group - DIRECT)
    os.pwrite(fds[0], struct.pack("<2I", 10, 20), TABLE - DIRECT)
    yield HeldMemory(fds)
    for fd in fds:
        os.close(fd)


@pytest.fixture
def vmlinux(tmp_path: Path) -> Path:
    symbols = {name: TEXT + HERE + 0x100 + 8 * place for place, name in enumerate(VALUES)}
    symbols |= {"linux_banner": TEXT + HERE, "sched_domains_numa_distance": TEXT + HERE + 0x200}
    symbols |= {"__per_cpu_offset": TEXT + 0x1300, "sd_numa": 0x10}
    path = tmp_path / "vmlinux"
    path.write_bytes(elf(symbols))
    return path


def values(facts: tuple[Fact, ...]) -> dict[str, str]:
    return {fact.name: fact.value for fact in facts}


def test_facts_are_read_from_the_memory(
    machine: Topology, memory: HeldMemory, vmlinux: Path
) -> None:
    kernel = open_kernel_memory(memory, machine, vmlinux, SYMBOLS)
    facts = values(facts_in_memory(kernel, machine.cpu_count))
    assert (facts[TYPE], facts[LARGEST], facts[LEVELS]) == ("direct", "20", "2")
    assert facts["sched_domains_numa_distance"] == "10 20"
    assert facts["CPU 0, domain 1, imb_numa_nr"] == "1"
    assert facts["CPU 0, domain 0, min_interval"] == "2"
    assert facts["CPU 0, domain 1, group_weight of groups"] == "2, 1"
    assert not any(name.startswith("CPU 1") for name in facts)
    only_variables = facts_in_memory(kernel, machine.cpu_count, domains=False)
    assert {fact.source for fact in only_variables} == {"variables"}


def test_a_kernel_may_choose_where_it_maps_all_memory(
    machine: Topology, memory: HeldMemory, vmlinux: Path
) -> None:
    """As one does from 6.17 on where the CPU has five levels of page tables (LA57)."""
    symbols = {"linux_banner": TEXT + HERE, "sched_domains_numa_levels": TEXT + HERE + 0x100}
    symbols |= {"sched_domains_numa_distance": TEXT + HERE + 0x200}
    symbols |= {"page_offset_base": TEXT + 0x1400}
    vmlinux.write_bytes(elf(symbols))
    five_levels = 0xFF11000000000000
    os.pwrite(memory.fds[0], struct.pack("<I", 2), HERE + 0x100)
    os.pwrite(memory.fds[0], struct.pack("<Q", five_levels), 0x1400)
    os.pwrite(memory.fds[0], struct.pack("<Q", TABLE - DIRECT + five_levels), HERE + 0x200)
    kernel = open_kernel_memory(memory, machine, vmlinux, SYMBOLS)
    assert values(facts_in_memory(kernel, 4))["sched_domains_numa_distance"] == "10 20"
    # A table that cannot be read is no fact.
    os.pwrite(memory.fds[0], struct.pack("<Q", TABLE), HERE + 0x200)
    assert "sched_domains_numa_distance" not in values(facts_in_memory(kernel, 4))


def test_a_kernel_that_is_not_where_its_symbols_are_has_no_facts(
    machine: Topology, memory: HeldMemory, vmlinux: Path, tmp_path: Path
) -> None:
    os.pwrite(memory.fds[0], b"elsewhere", HERE)
    assert open_kernel_memory(memory, machine, vmlinux, SYMBOLS) is None
    assert open_kernel_memory(memory, machine, None, SYMBOLS) is None
    assert open_kernel_memory(HeldMemory(()), machine, vmlinux, SYMBOLS) is None
    assert facts_in_memory(None, 4) == ()
    for text in (b"", b"MZ" * 50, elf({"a": 1})[:90]):
        (tmp_path / "damaged").write_bytes(text)
        assert read_symbols(tmp_path / "damaged", SYMBOLS) == {}
        assert open_kernel_memory(memory, machine, tmp_path / "damaged", SYMBOLS) is None


def test_domains_that_do_not_fit_to_each_other_are_left_out(
    machine: Topology, memory: HeldMemory, vmlinux: Path
) -> None:
    os.pwrite(memory.fds[0], struct.pack("<Q", GROUP), NUMA + 8 - DIRECT)
    kernel = open_kernel_memory(memory, machine, vmlinux, SYMBOLS)
    assert {fact.source for fact in facts_in_memory(kernel, 4)} == {"variables"}


def test_facts_of_files_and_log() -> None:
    files = "/x/cpu0/domain1/imbalance_pct:117\n/x/cpu0/domain1/flags:SD_NUMA  SD_LLC \n/x/y:1\n"
    facts = values(facts_of_guest(parse_guest_view({}, files, DMESG), files))
    assert facts["CPU 0, domain 1, imbalance_pct"] == "117"
    assert facts["CPU 0, domain 1, flags"] == "SD_NUMA SD_LLC"
    assert facts["CPU 0, domain 0"] == "MC 0-1"
    assert facts["CPU 0, domain 0, groups"] == "0 (mask 0), 1 (mask 1)"
    assert facts["CPU 0, domain 0, capacity of groups for each CPU"] == "1, 1"
    view = parse_guest_view({}, files, DMESG)
    assert "CPU 0, domain 0, capacity of groups for each CPU" not in values(
        facts_of_guest(view, files, capacities=False)
    )


def test_predicted_values_are_compared_with_the_prediction(machine: Topology) -> None:
    facts = (
        Fact("variables", TYPE, "backplane"),
        Fact("variables", LEVELS, "3"),
        Fact("variables", LARGEST, "20"),
        Fact("domains in memory", "CPU 0, domain 1, imb_numa_nr", "7"),
    )
    guest = with_facts(parse_guest_view({}, "", DMESG), facts)
    assert guest.sched_log.numa_type == "backplane"
    assert guest.sched_log.imb_numa_nr == {(0, 1): 7}
    (difference,) = differing_levels(predict(machine), facts)
    assert str(difference) == f"{LEVELS}: expected 2, found 3"


def test_facts_of_two_kernels_are_compared() -> None:
    def boot(*facts: tuple[str, str]) -> BootResult:
        return BootResult((), 1.0, facts=tuple(Fact("variables", *fact) for fact in facts))

    mine, theirs = boot((LEVELS, "3"), (LARGEST, "30")), boot((LEVELS, "2"), (LARGEST, "20"))
    finding = with_differences(mine, theirs).of(FACTS, None)
    assert finding is not None
    assert (finding.value, finding.violated) == (2.0, True)
    assert finding.text == (f"{LEVELS}: 3, with the reference kernel 2; 1 more differences")
    same = with_differences(theirs, theirs).of(FACTS, None)
    assert same is not None
    assert not same.violated
    gone = with_differences(boot((LEVELS, "3")), boot((LEVELS, "3"), (LARGEST, "20")))
    assert gone.findings[0].text == f"{LARGEST}: nothing, with the reference kernel 20"
    failed = BootResult((), 1.0, "no QEMU")
    assert with_differences(mine, failed) == mine, "a boot without facts is not compared"
    log = BootResult((), 1.0, facts=(Fact("kernel log", "CPU 0, domain 0", "MC 0-1"),))
    (compared,) = with_differences(mine, log).findings
    assert not compared.violated, "a source that one kernel lacks is left out"


def test_only_facts_are_booted_beside_the_reference_kernel(drawn_case: Case) -> None:
    class Crew:
        def __init__(self) -> None:
            self.booted: list[HuntBench] = []

        def boot(self, boots: Sequence[Boot]) -> list[BootResult]:
            self.booted += [bench for _, bench, _ in boots]
            return [
                BootResult((), 1.0, facts=(Fact("variables", LEVELS, cast(str, bench)),))
                for _, bench, _ in boots
            ]

    crew, mine, theirs = Crew(), cast(HuntBench, "3"), cast(HuntBench, "2")
    boots: list[Boot] = [(drawn_case, mine, 1), (drawn_case, theirs, 1)]

    def values_of(prop: str, reference: HuntBench | None) -> list[float]:
        results = boot_beside(cast(CaseWorkers, crew), boots, prop, reference)
        return [finding.value for result in results for finding in result.findings]

    assert values_of(FACTS, theirs) == [1.0, 0.0]
    assert crew.booted == [mine, theirs, theirs, theirs]
    assert values_of("affinity", theirs) == values_of(FACTS, None) == []
    assert len(crew.booted) == 8
