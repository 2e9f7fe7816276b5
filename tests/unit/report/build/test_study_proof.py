"""What a manifest proves, as rows of a report."""

from dataclasses import replace

from numalab.guest.proof import MemoryProof, Misplaced, MisplacedKind, Proof, ThreadProof
from numalab.guest.usage import ThreadUsage, Usage
from numalab.guest.witness import Doubt, Timing
from numalab.host.facts import Disturbance, DisturbanceKind
from numalab.report import document
from numalab.report.build.placement_rows import placement_line, proof_rows

VCPUS = {"vcpu 0": (0,), "vcpu 1": (1,)}


def thread(role: str, planned: tuple[int, ...], allowed: tuple[int, ...]) -> ThreadProof:
    return ThreadProof(role, 1, planned, allowed, VCPUS.get(role, ()))


def used(role: str, involuntary: int, waited: float | None) -> ThreadUsage:
    return ThreadUsage(role, 1, 10, involuntary, 3, 1, 1.0, waited, VCPUS.get(role, ()))


PROOF = Proof(
    threads=(
        thread("vcpu 0", (4,), (4,)), thread("vcpu 1", (5,), (4, 5)),
        thread("qemu", (0, 1), (1,)), thread("kvm-x", (0, 1), (4,)),
    ),
    memory=(MemoryProof(0, {2: 100}, 2048, 2), MemoryProof(1, {0: 7, 3: 9}, 4, 3)),
    note="",
    usage=Usage(
        seconds=12.04,
        threads=(used("vcpu 0", 5, 1.5), used("vcpu 1", 2, 2.0), used("qemu", 9, None)),
        stolen_ms={4: 0, 5: 30},
    ),
)  # fmt: skip
TIMING = Timing(True, (), (Disturbance(DisturbanceKind.KSM),))
EMPTY = Proof((), (), "")


def test_the_proof_of_a_run_is_shown_row_by_row() -> None:
    assert proof_rows(PROOF, TIMING) == (
        document.PlacementFact("vcpu 0", "host CPU 4", "host CPU 4"),
        document.PlacementFact("vcpu 1", "host CPU 5", "host CPU 4-5"),
        document.PlacementFact("qemu", "host CPU 0-1", "host CPU 0-1"),
        document.PlacementFact("kvm-x", "host CPU 0-1", "host CPU 4"),
        document.PlacementFact(
            "memory of node 0, 100 pages of 2048 KiB", "host node 2", "host node 2"
        ),
        document.PlacementFact(
            "memory of node 1",
            "host node 3",
            "7 pages of 4 KiB on host node 0, 9 pages of 4 KiB on host node 3",
        ),
        document.PlacementFact(
            "vCPUs while the workload ran",
            "any",
            "within 12.0 s: 7 involuntary and 20 voluntary switches, 6 minor and 2 major page"
            " faults, waited 4 ms in all for a host CPU",
        ),
        document.PlacementFact(
            "QEMU's other threads while the workload ran",
            "any",
            "within 12.0 s: 9 involuntary and 10 voluntary switches, 3 minor and 1 major page"
            " faults",
        ),
        document.PlacementFact("stolen by a hypervisor below", "any", "30 ms of host CPU 5"),
        document.PlacementFact("timing figures", "any", "valid; KSM merges pages of guests"),
    )
    assert placement_line(PROOF, TIMING) == (
        "one host CPU for each vCPU; timing was disturbed: KSM merges pages of guests"
    )


def test_a_run_that_was_stored_before_there_was_more() -> None:
    proof = replace(EMPTY, note="overcommitted", memory=(MemoryProof(0, {0: 7}, 4),))
    assert proof_rows(proof, None) == (
        document.PlacementFact(
            "memory of node 0", "any host node", "7 pages of 4 KiB on host node 0"
        ),
    )
    assert placement_line(proof, None) == "overcommitted"


def test_timing_figures_that_mean_nothing() -> None:
    timing = Timing(False, (Doubt.PLAN, Doubt.MISPLACED), ())
    gone = Misplaced(MisplacedKind.GONE, "12")
    (row,) = proof_rows(replace(EMPTY, note="overcommitted", differs=(gone,)), timing)
    assert row.read_back == "not valid: overcommitted; vCPU thread 12 is gone"
    (row,) = proof_rows(EMPTY, Timing(False, (Doubt.MODE,), ()))
    assert row.read_back == "not valid: not in kvm mode"


def test_a_run_without_a_proof_says_so() -> None:
    assert proof_rows(None, TIMING) == ()
    assert placement_line(None, None) == "unknown"
