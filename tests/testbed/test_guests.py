"""Several guests at once, guests that are killed, and guests whose place is not the best."""

import json
from typing import Any

from numalab.guest.usage import parse_stolen
from numalab.host.facts import parse_steal
from testbed.bed import Bed
from testbed.lying import Qemu, nodes, pages_of_nodes, policies, run_beside, vcpus
from testbed.test_pinned_guest import EVIDENCE, GUEST

SMALL = """
summary = "Two small nodes"
nodes = 2
cpus = 2
memory_mib = 256

[shape]
kind = "ring"
distances = [10, 20]
"""
NO_MEMORY = """
summary = "Three nodes, one of them without memory"
nodes = 3
cpus = [2, 1, 1]
memory_mib = [256, 256, 0]
matrix = [[10, 20, 20], [20, 10, 20], [20, 20, 10]]
"""
BUSY = "timeout {seconds} taskset -c {cpu} sh -c 'while :; do :; done' || true"


def test_two_share_nothing_a_third_is_refused_and_killed_ones_leave_nothing(bed: Bed) -> None:
    boot = ("numalab", "boot", "ring-2", *GUEST, "--pages", "2M", "--json", "--")
    guests = {entry: bed.begin(*boot, "sleep", entry, seconds=900) for entry in ("3601", "3602")}
    evidence = bed.run("python3", EVIDENCE, "2", seconds=900).json()
    assert evidence["at_work"] == 2
    first, second = (
        next(qemu for qemu in evidence["qemus"] if seconds in qemu["asked"]) for seconds in guests
    )
    assert len({*vcpus(first), *vcpus(second)}) == 8
    assert len({*nodes(first), *nodes(second)}) == 4

    third = bed.run(*boot, "true")
    assert third.status == 3, third.output()
    assert "run other guests" in third.stderr

    # QEMU is killed: numalab tells it, and gives back what the guest had.
    bed.run("kill", "-9", str(first["pid"]))
    lost = guests["3601"].result()
    assert lost.status == 4, lost.output()
    assert "QEMU was killed by SIGKILL" in lost.stderr
    assert pages_of_nodes(bed) == dict.fromkeys(nodes(second), 384)
    assert {cpu for entry in budget(bed) for cpu in entry["claim"]["cpus"]} >= {*vcpus(second)}
    assert len(budget(bed)) == 1

    # numalab is killed: its QEMU runs on until the next numalab ends it.
    bed.run("kill", "-9", str(second["starter"]))
    assert guests["3602"].result().status == -9
    assert [entry["pid"] for entry in bed.run("python3", EVIDENCE).json()["qemus"]] == [
        second["pid"]
    ]
    result = bed.run(*boot, "true").json()
    assert result["status"] == 0 and result["timing"]["means"]
    assert bed.run("python3", EVIDENCE).json()["qemus"] == []
    assert pages_of_nodes(bed) == {}
    assert budget(bed) == []


def budget(bed: Bed) -> list[dict[str, Any]]:
    """Return what numalab has noted as taken."""
    text = bed.run("sh", "-c", "cat ~/.cache/numalab/host/budget.json").stdout
    noted: list[dict[str, Any]] = json.loads(text)
    return noted


def write(bed: Bed, name: str, text: str) -> str:
    """Write a topology file for guests; returns its path."""
    path = f"/tmp/{name}.toml"
    assert bed.run("sh", "-c", 'cat >"$0"', path, stdin=text).status == 0
    return path


def test_a_user_who_may_lock_little_is_told_of_load_on_a_vcpus_cpu(bed: Bed) -> None:
    work = f"{BUSY.format(seconds=60, cpu=0)}; cat /proc/stat"

    def load(qemu: Qemu) -> None:
        bed.run("sh", "-c", BUSY.format(seconds=20, cpu=vcpus(qemu)[0]))

    ((qemu, result),) = run_beside(
        bed,
        (write(bed, "small", SMALL), "--", "sh", "-c", work),
        user="user",
        before=("prlimit", "--memlock=65536:65536"),
        meanwhile=load,
    )
    assert qemu["locked_kib"] == 0
    assert policies(qemu) == [f"bind:{n}" for n in nodes(qemu)]
    assert [list(entry["pages"].values()) for entry in qemu["memory"]] == [[256 << 8]] * 2
    assert result["proof"]["differs"] == [] and result["timing"]["means"]
    waited = {
        entry["subject"]: entry["amount"]
        for entry in result["timing"]["disturbs"]
        if entry["kind"] == "waited"
    }
    assert max(waited, key=waited.__getitem__) == "vcpu 0" and waited["vcpu 0"] > 0.1
    # The guest itself counts what was taken from it: what numalab reads of a host that is a guest.
    stolen = parse_stolen(result["stdout"], range(4))
    assert max(stolen, key=stolen.__getitem__) == 0 and stolen[0] > 3000
    percent = parse_steal(result["stdout"])
    assert percent is not None and percent > 0.1


def test_beside_each_other_one_with_a_bare_node_and_one_that_is_torn(bed: Bed) -> None:
    work = "grep -h MemTotal: /sys/devices/system/node/node*/meminfo; sleep 61"
    (bare, result), (torn, not_timed) = run_beside(
        bed,
        (write(bed, "bare", NO_MEMORY), "--nodes", "0,1,2", "--", "sh", "-c", work),
        # A host CPU for each vCPU, but those of a guest node are of two host nodes. None is one
        # that the other guest is given, whichever of them is first.
        (write(bed, "small", SMALL), "--pin", "9,5,10,11", "--nodes", "3,1", "--", "sleep", "62"),
    )
    assert [cpu // 3 for cpu in vcpus(bare)] == [nodes(bare)[n] for n in (0, 0, 1, 2)]
    assert policies(bare) == ["bind:0", "bind:1", "bind:2"]
    assert result["timing"]["means"] and result["proof"]["differs"] == []
    sizes = [int(line.split()[3]) for line in result["stdout"].splitlines()]
    assert [bool(kib) for kib in sizes] in ([True, True], [True, True, False])

    assert vcpus(torn) == [9, 5, 10, 11] and not {*vcpus(bare)} & {*vcpus(torn)}
    assert (policies(torn), nodes(torn)) == (["bind:3", "bind:1"], [3, 1])
    assert not_timed["timing"] == {"means": False, "against": ["plan"], "disturbs": []}
    assert not_timed["proof"]["differs"] == []
