"""The host's budget: no CPU twice, also between processes; hugepages come and go."""

import contextlib
import os
import re
import resource
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from numalab.errors import HostBusy, HostError
from numalab.host.budget import (
    Admission,
    CpusInUse,
    NodeMemory,
    Pages,
    Reservation,
    admit,
    cpus_in_use,
)
from support.host_tree import SERVERS, write_tree

CHILD = """
    import sys
    from pathlib import Path
    from numalab.host.budget import Reservation, Pages, admit

    cpus = tuple(map(int, sys.argv[2].split(",")))
    shares = "shares" in sys.argv
    admit(lambda taken: Reservation(cpus, 1024, (Pages(1, 2048, 256),), shares), Path(sys.argv[1]))
    print("taken", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = write_tree(SERVERS["two-node"], tmp_path / "root")
    (root / "proc/meminfo").write_text("MemTotal: 4194304 kB\nMemFree: 4194304 kB\n")
    return root


@contextlib.contextmanager
def other_process(root: Path, cpus: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(CHILD), root, cpus, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "taken\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def pool(root: Path, node: int, size: int = 2048) -> Path:
    name = f"sys/devices/system/node/node{node}/hugepages/hugepages-{size}kB"
    return root / name / "nr_hugepages"


def take(root: Path, *cpus: int, memory: int = 0, pages: tuple[Pages, ...] = ()) -> Admission:
    return admit(lambda _: Reservation(cpus, memory, pages), root)


def test_two_processes_never_share_a_cpu(root: Path) -> None:
    with other_process(root, "0,1") as process:
        assert cpus_in_use(root).alone == {0, 1}
        with pytest.raises(HostError, match=f"host CPUs 1 run a guest of process {process.pid}"):
            take(root, 1, 2)
        requests: list[CpusInUse] = []

        def choose(in_use: CpusInUse) -> Reservation:
            requests.append(in_use)
            return Reservation(tuple(sorted({0, 1, 2, 3} - in_use.cpus)), 0)

        mine = admit(choose, root)
        assert requests == [CpusInUse(frozenset({0, 1}), {})] and mine.claim.cpus == (2, 3)
        assert cpus_in_use(root).alone == {0, 1, 2, 3}
        mine.release()
        assert cpus_in_use(root).alone == {0, 1}


def test_a_nice_process_leaves_more_of_a_shared_cpu(root: Path) -> None:
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    with other_process(root, "0", "shares") as process:
        assert cpus_in_use(root).shared == {0: pytest.approx(1.25**-nice)}
        os.setpriority(os.PRIO_PROCESS, process.pid, 19)
        assert cpus_in_use(root).shared == {0: pytest.approx(15 / 1024, rel=0.05)}
    assert cpus_in_use(root).shared == {}


def test_what_a_killed_process_had_is_free_again(root: Path) -> None:
    with other_process(root, "0,1"):
        assert pool(root, 1).read_text() == "256\n"
    assert cpus_in_use(root).alone == frozenset()
    assert pool(root, 1).read_text() == "0\n"


def test_hugepages_of_an_earlier_boot_are_not_taken_from_the_pool_of_this_one(
    root: Path, tmp_path: Path
) -> None:
    with other_process(root, "0,1"):
        pass
    budget = tmp_path / "cache/host/budget.json"
    budget.write_text(re.sub('"boot": "[^"]+"', '"boot": "an earlier one"', budget.read_text()))
    assert pool(root, 1).read_text() == "256\n"  # as by sysctl.conf
    assert cpus_in_use(root).alone == frozenset()
    assert pool(root, 1).read_text() == "256\n"


@contextlib.contextmanager
def full_disk() -> Iterator[None]:
    """Let every write to a file fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_pages_of_a_dead_process_are_given_back_once_though_the_disk_is_full(root: Path) -> None:
    with other_process(root, "0,1"):
        pass
    pool(root, 1).write_text("1000\n")
    for _ in range(2):
        with full_disk(), pytest.raises(HostError, match="File too large"):
            cpus_in_use(root)
    assert pool(root, 1).read_text() == "1000\n"
    cpus_in_use(root)
    cpus_in_use(root)
    assert pool(root, 1).read_text() == "744\n"


def test_a_full_disk_keeps_the_end_of_a_guest_for_the_next_look(root: Path) -> None:
    mine = take(root, 0, pages=(Pages(0, 2048, 5),))
    with full_disk():
        mine.release()
    assert pool(root, 0).read_text() == "5\n"
    again = take(root, 0)
    assert pool(root, 0).read_text() == "0\n"
    mine.release()
    assert cpus_in_use(root).alone == {0}
    again.release()


def test_hugepages_are_added_where_they_are_wanted_and_given_back(root: Path) -> None:
    pool(root, 0).write_text("10\n")  # the administrator's own
    mine = take(root, pages=(Pages(0, 2048, 5), Pages(1, 1 << 20, 2)))
    assert pool(root, 0).read_text() == "15\n"
    assert pool(root, 1, 1 << 20).read_text() == "2\n"
    mine.release()
    mine.release()
    assert pool(root, 0).read_text() == "10\n"
    assert pool(root, 1, 1 << 20).read_text() == "0\n"


def test_too_few_hugepages_take_nothing(root: Path) -> None:
    stuck = pool(root, 1)
    stuck.unlink()
    stuck.symlink_to("/proc/sys/kernel/ngroups_max")  # 65536, and nobody may write it
    stuck.with_name("free_hugepages").write_text("3\n")
    with pytest.raises(HostError) as caught:
        take(root, 0, pages=(Pages(0, 2048, 5), Pages(1, 2048, 5)))
    assert "5 hugepages of 2 MiB are needed on host node 1; 3 are free" in str(caught.value)
    assert f"echo {65536 + 5 - 3} > {stuck}" in str(caught.value)
    assert pool(root, 0).read_text() == "0\n"
    assert cpus_in_use(root).alone == frozenset()


def test_free_hugepages_are_used_where_none_may_be_added(root: Path) -> None:
    stuck = pool(root, 1)
    stuck.unlink()
    stuck.symlink_to("/proc/sys/kernel/ngroups_max")
    stuck.with_name("free_hugepages").write_text("5\n")
    taken = take(root, pages=(Pages(1, 2048, 5),))
    assert taken.claim.pages == (Pages(1, 2048, 5),)
    with pytest.raises(HostError, match="6 hugepages of 2 MiB are needed on host node 1"):
        take(root, pages=(Pages(1, 2048, 6),))
    taken.release()


@pytest.mark.parametrize("free", [65536, 0])  # before and after QEMU has taken its pages
def test_free_hugepages_are_granted_once(root: Path, free: int) -> None:
    stuck = pool(root, 1)
    stuck.unlink()
    stuck.symlink_to("/proc/sys/kernel/ngroups_max")  # 65536
    stuck.with_name("free_hugepages").write_text("65536\n")
    first = take(root, pages=(Pages(1, 2048, 65536),))
    stuck.with_name("free_hugepages").write_text(f"{free}\n")
    with pytest.raises(HostBusy, match="1 hugepages of 2 MiB are needed on host node 1; 0 are"):
        take(root, pages=(Pages(1, 2048, 1),))
    first.release()


def test_a_host_without_such_hugepages(root: Path) -> None:
    with pytest.raises(HostError, match="the host has no hugepages of 64 KiB"):
        take(root, pages=(Pages(0, 64, 1),))


def test_memory_is_counted_over_all_guests(root: Path) -> None:
    first = take(root, memory=3072)
    with pytest.raises(HostError, match=r"needs 2 GiB, other guests have 3 GiB, .* has 4 GiB"):
        take(root, memory=2048)
    first.release()
    take(root, memory=2048).release()


def test_a_broken_budget_names_its_file(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "cache/host/budget.json"
    for text in ("{", '[{"owner": 1}]'):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        with pytest.raises(HostError, match=r"budget\.json cannot be read"):
            take(root, 0)


def test_a_failing_choice_takes_nothing(root: Path) -> None:
    def choose(_taken: CpusInUse) -> Reservation:
        raise HostError("no")

    with pytest.raises(HostError):
        admit(choose, root)
    assert cpus_in_use(root).alone == frozenset()


def meminfo(root: Path, node: int, total: int, free: int, cached: int) -> None:
    """Write what a host node has, in MiB."""
    values = {"MemTotal": total, "MemFree": free, "Active(file)": cached, "AnonPages": 5000}
    text = "".join(f"Node {node} {name}: {mib << 10} kB\n" for name, mib in values.items())
    (root / f"sys/devices/system/node/node{node}/meminfo").write_text(text)


def bind(root: Path, *bound: NodeMemory) -> Admission:
    return admit(lambda _: Reservation((), 0, bound=bound), root)


def test_strict_memory_is_compared_with_what_its_host_node_has_free(root: Path) -> None:
    """Otherwise the kernel has no way out but to kill QEMU, or numalab."""
    meminfo(root, 0, 2048, 1500, 0)
    meminfo(root, 1, 2048, 500, 300)
    bind(root, NodeMemory(0, 1500), NodeMemory(1, 800)).release()
    with pytest.raises(HostError) as caught:
        bind(root, NodeMemory(0, 1000), NodeMemory(1, 801))
    assert str(caught.value).startswith(
        "the guest needs 801 MiB of host node 1, which has 2048: 800 are free, other guests have 0"
    )
    assert not isinstance(caught.value, HostBusy)


def test_what_another_guest_will_take_of_a_host_node_is_no_longer_free(root: Path) -> None:
    meminfo(root, 0, 2048, 2000, 0)
    first = bind(root, NodeMemory(0, 1024))
    with pytest.raises(HostBusy, match="has 2048: 2000 are free, other guests have 1024"):
        bind(root, NodeMemory(0, 1025))
    first.release()
    bind(root, NodeMemory(0, 1025)).release()
