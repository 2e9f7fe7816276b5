"""One guest in kvm mode on a host of four nodes, and how it lies there by /proc's own account."""

import pytest

from testbed.bed import Bed, Completed

# Each character on a console costs several exits.
WORDS = ("quiet",)
GUEST = (
    *("--kernel", "/disk/guests/bzImage", "--image", "/disk/guests/base", "--mode", "kvm"),
    *(option for word in WORDS for option in ("--cmdline", word)),
)
EVIDENCE = "/disk/project/tests/testbed/evidence.py"


def checks(completed: Completed) -> dict[str, dict[str, str]]:
    """Return what the doctor found, by name; it also misses compilers here."""
    listed = Completed((), 0, completed.stdout, completed.stderr, cut=False).json()
    return {check["name"]: check for check in listed}


@pytest.fixture(scope="module")
def before(bed: Bed) -> tuple[Completed, Completed]:
    """Ask the doctor and the planner, at once, before any guest has run."""
    doctor = bed.begin("numalab", "doctor", "--json")
    plan = bed.begin("numalab", "place", "ring-2", "--json")
    return doctor.result(), plan.result()


def test_the_doctor_has_not_tried_kvm_yet(before: tuple[Completed, Completed]) -> None:
    results = checks(before[0])
    assert results["QEMU"]["ok"] and results["libvirt"]["ok"]
    assert "/dev/kvm opens" in results["KVM"]["found"]


def test_a_guest_of_two_nodes_is_planned_one_to_one(before: tuple[Completed, Completed]) -> None:
    plan = before[1].json()
    first, second = plan["host_nodes"]
    assert first != second
    assert [cpu // 3 for cpu in plan["vcpus"]] == [first, first, second, second]
    assert plan["timing"] and not plan["distorts"]


@pytest.fixture(scope="module")
def seen_and_told(bed: Bed, before: object) -> tuple[dict[str, object], dict[str, object]]:
    """Boot a guest; return what /proc said while its workload ran, and what numalab said after."""
    guest = bed.begin("numalab", "boot", "ring-2", *GUEST, "--pages", "2M", "--json", "--",
                      "sleep", "60", seconds=200)  # fmt: skip
    evidence = bed.run("python3", EVIDENCE, "1").json()
    return evidence, guest.result().json()


def test_it_lies_where_it_was_planned(seen_and_told: tuple[dict, dict]) -> None:  # type: ignore[type-arg]
    evidence, _ = seen_and_told
    assert evidence["at_work"] == 1
    (qemu,) = evidence["qemus"]
    vcpus = {t["name"]: t["allowed"] for t in qemu["threads"] if t["name"].startswith("CPU ")}
    assert sorted(vcpus) == [f"CPU {number}/KVM" for number in range(4)]
    assert all(len(allowed) == 1 for allowed in vcpus.values())
    cpus = [vcpus[f"CPU {number}/KVM"][0] for number in range(4)]
    assert len(set(cpus)) == 4
    nodes = [cpu // 3 for cpu in cpus]
    assert nodes[0] == nodes[1] != nodes[2] == nodes[3]
    for thread in qemu["threads"]:
        assert thread["name"].startswith("CPU ") or not set(thread["allowed"]) & set(cpus)
    assert [memory["policy"] for memory in qemu["memory"]] == [
        f"bind:{node}" for node in (nodes[0], nodes[2])
    ]
    for memory, node in zip(qemu["memory"], (nodes[0], nodes[2]), strict=True):
        assert memory["page_kib"] == 2048
        assert memory["pages"] == {str(node): 384}
    assert qemu["huge_kib"] == 2 * 768 << 10
    assert qemu["locked_kib"] > 0


def test_its_timing_means_something(seen_and_told: tuple[dict, dict]) -> None:  # type: ignore[type-arg]
    _, result = seen_and_told
    assert result["status"] == 0
    assert result["proof"]["differs"] == []
    assert result["timing"]["means"] and not result["timing"]["against"]


def test_its_pages_are_given_back(bed: Bed, seen_and_told: tuple[dict, dict]) -> None:  # type: ignore[type-arg]
    after = bed.run("python3", EVIDENCE).json()
    assert after["qemus"] == []
    assert all(pool == [0, 0] for node in after["pools"].values() for pool in node.values())


def test_the_doctor_knows_what_was_found_out(bed: Bed, seen_and_told: object) -> None:
    results = checks(bed.run("numalab", "doctor", "--json"))
    assert results["KVM"]["ok"]
    assert "reached its init, tried" in results["KVM"]["found"]
