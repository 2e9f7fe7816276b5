"""What a manifest proves, as rows of a report."""

from typing import Any

from lab.report import model
from lab.study.proof import placement_line, proof_rows


def thread(role: str, planned: list[int], allowed: list[int]) -> dict[str, Any]:
    return {"role": role, "thread": 1, "planned": planned, "allowed": allowed}


def used(role: str, involuntary: int, waited: float | None) -> dict[str, Any]:
    return {
        "role": role, "thread": 1, "voluntary": 10, "involuntary": involuntary,
        "minor_faults": 3, "major_faults": 1, "ran_ms": 1.0, "waited_ms": waited,
    }  # fmt: skip


MANIFEST: dict[str, Any] = {
    "proof": {
        "note": "",
        "threads": [
            thread("vcpu 0", [4], [4]), thread("vcpu 1", [5], [4, 5]),
            thread("qemu", [0, 1], [1]), thread("kvm-x", [0, 1], [4]),
        ],
        "memory": [
            {"node": 0, "pages": {"2": 100}, "page_kib": 2048, "planned": 2},
            {"node": 1, "pages": {"0": 7, "3": 9}, "page_kib": 4, "planned": 3},
        ],
        "usage": {
            "seconds": 12.04,
            "threads": [used("vcpu 0", 5, 1.5), used("vcpu 1", 2, 2.0), used("qemu", 9, None)],
            "stolen_ms": {"4": 0, "5": 30},
        },
    },
    "timing": {"means": True, "against": [], "disturbs": ["KSM merges pages of guests"]},
}  # fmt: skip


def test_the_proof_of_a_run_is_shown_row_by_row() -> None:
    assert proof_rows(MANIFEST) == (
        model.Proof("vcpu 0", "host CPU 4", "host CPU 4"),
        model.Proof("vcpu 1", "host CPU 5", "host CPU 4-5"),
        model.Proof("qemu", "host CPU 0-1", "host CPU 0-1"),
        model.Proof("kvm-x", "host CPU 0-1", "host CPU 4"),
        model.Proof("memory of node 0, 100 pages of 2048 KiB", "host node 2", "host node 2"),
        model.Proof(
            "memory of node 1",
            "host node 3",
            "7 pages of 4 KiB on host node 0, 9 pages of 4 KiB on host node 3",
        ),
        model.Proof(
            "vCPUs while the workload ran",
            "any",
            "within 12.0 s: 7 involuntary and 20 voluntary switches, 6 minor and 2 major page"
            " faults, waited 4 ms in all for a host CPU",
        ),
        model.Proof(
            "QEMU's other threads while the workload ran",
            "any",
            "within 12.0 s: 9 involuntary and 10 voluntary switches, 3 minor and 1 major page"
            " faults",
        ),
        model.Proof("stolen by a hypervisor below", "any", "30 ms of host CPU 5"),
        model.Proof("timing figures", "any", "mean something; KSM merges pages of guests"),
    )
    assert placement_line(MANIFEST) == (
        "one host CPU for each vCPU; timing was disturbed: KSM merges pages of guests"
    )


def test_a_run_that_was_stored_before_there_was_more() -> None:
    proof: dict[str, Any] = {
        "note": "overcommitted",
        "threads": [],
        "memory": [{"node": 0, "pages": {"0": 7}, "page_kib": 4}],
    }
    rows = proof_rows({"proof": proof})
    assert rows == (
        model.Proof("memory of node 0", "any host node", "7 pages of 4 KiB on host node 0"),
    )
    assert placement_line({"proof": proof}) == "overcommitted"


def test_timing_figures_that_mean_nothing() -> None:
    timing = {"means": False, "against": ["overcommitted", "vcpu 0 may run elsewhere"]}
    proof: dict[str, Any] = {"note": "", "threads": [], "memory": [], "usage": None}
    (row,) = proof_rows({"proof": proof, "timing": timing})
    assert row.found == "mean nothing: overcommitted; vcpu 0 may run elsewhere"
