"""What becomes of a claim in the runs of a cell."""

import json
from dataclasses import replace
from typing import Any

import pytest

from numalab.guest.proof import Misplaced, MisplacedKind, Proof, ThreadProof
from numalab.guest.witness import Doubt, Timing
from numalab.report.build.verdicts import family_size, judge
from numalab.results.reader import StoredRun
from numalab.study.claims import Claim
from support.stored_run import stored_manifest, stored_run


def stored(
    variant: str,
    value: float | None,
    mode: str = "icount",
    timing: Timing | None = None,
    **about: str,
) -> StoredRun:
    gone = Misplaced(MisplacedKind.GONE, "3")
    differs = (gone,) if timing and not timing.means else ()
    proof = Proof((), (), "", differs=differs)
    manifest = stored_manifest(variant=variant, mode=mode, timing=timing, proof=proof)
    return stored_run(manifest, value, **about)


def runs(before: list[float], after: list[float], **about: Any) -> list[StoredRun]:
    sides = {"before": before, "after": after}
    return [stored(name, value, **about) for name, side in sides.items() for value in side]


def compared(**keys: Any) -> Claim:
    table = {"text": "t", "measure": "m", "from": "before", "to": "after", "direction": "higher"}
    return Claim.model_validate_json(json.dumps({**table, **keys}))


LOW, HIGH = [1.0, 1.1, 0.9, 1.0], [9.0, 9.1, 9.2, 9.0]


@pytest.mark.parametrize(
    ("direction", "before", "after", "verdict"),
    [
        ("higher", LOW, HIGH, "reproduced"),
        ("higher", HIGH, LOW, "opposite"),
        ("lower", HIGH, LOW, "reproduced"),
        ("lower", LOW, LOW, "no difference shown"),
        ("same", HIGH, HIGH, "reproduced"),
        ("same", [0.0, 0.0, 0.0], [0.0, 0.0, 0.0], "reproduced"),
        ("same", LOW, LOW, "no difference shown"),  # by up to 14 %, which nobody would call none
        ("same", HIGH[:1], HIGH[:1], "no difference shown"),
        ("same", LOW, HIGH, "opposite"),
        ("higher", LOW[:1], HIGH[:1], "no difference shown"),
    ],
)
def test_verdicts(direction: str, before: list[float], after: list[float], verdict: str) -> None:
    outcome = judge(compared(direction=direction, published="+14%"), runs(before, after))
    assert (outcome.verdict, outcome.holds, outcome.required) == (verdict, True, False)
    assert outcome.published == "+14%"


@pytest.mark.parametrize(
    ("mode", "kind", "verdict"),
    [
        ("icount", "timing", "cannot be seen in this mode because icount counts instructions"),
        ("tcg", "timing", "cannot be seen in this mode because tcg emulates"),
        ("kvm", "timing", "reproduced"),
        ("timed", "timing", "reproduced"),
        ("tcg", "placement", "reproduced"),
    ],
)
def test_time_is_not_judged_where_it_is_not_that_of_hardware(
    mode: str, kind: str, verdict: str
) -> None:
    outcome = judge(compared(), runs(LOW, HIGH, mode=mode, kind=kind))
    assert outcome.verdict_text.startswith(verdict)
    assert outcome.kind == ("modelled" if mode == "timed" else kind)
    change = "1 to 9.075 moves (+807.5%), difference +7.92 to +8.23 (95 %), 4 and 4 runs"
    assert outcome.measured == change


def test_a_claim_without_an_interval() -> None:
    assert (
        judge(compared(), runs(LOW[:1], HIGH[:1])).measured == "1 to 9 moves (+800.0%), 1 and 1 run"
    )


@pytest.mark.parametrize(
    ("timing", "verdict"),
    [
        (Timing(True, (), ()), "reproduced"),
        (Timing(False, (Doubt.MISPLACED,), ()), "placed: vCPU thread 3 is gone"),
    ],
)
def test_time_is_judged_where_the_proof_of_placement_held(timing: Timing, verdict: str) -> None:
    about = {"mode": "kvm", "kind": "timing"}
    every = runs(LOW, HIGH, timing=Timing(True, (), ()), **about)
    every[-1] = stored("after", HIGH[-1], timing=timing, **about)
    assert judge(compared(), every).verdict_text.endswith(verdict)


VCPUS = (ThreadProof("vcpu 0", 12, (1,), (1,), (0,)), ThreadProof("vcpu 1", 13, (2,), (2,), (1,)))
OTHER = ThreadProof("worker", 14, (0,), (0,))
ELSEWHERE = (VCPUS[0], ThreadProof("vcpu 1", 13, (3,), (3,), (1,)), OTHER)


@pytest.mark.parametrize(
    ("threads", "verdict"),
    [
        ((*VCPUS, OTHER), "reproduced"),
        ((OTHER, *VCPUS), "reproduced"),  # numbers of processes begin anew
        ((*VCPUS, OTHER, OTHER), "reproduced"),  # one that has nothing to do ends after a while
        (ELSEWHERE, "because the runs were not on the same host CPUs"),
    ],
)
def test_time_is_judged_where_vcpus_had_the_same_host_cpus(
    threads: tuple[ThreadProof, ...], verdict: str
) -> None:
    every = runs(LOW, HIGH, mode="kvm", kind="timing")
    for place, run in enumerate(every):
        proof = Proof(threads if place else (*VCPUS, OTHER), (), "")
        every[place] = replace(run, manifest=run.manifest.but(proof=proof))
    assert judge(compared(), every).verdict_text.endswith(verdict)


def test_a_claim_about_large_numbers() -> None:
    large = [[181500.0, 181600.0, 181400.0], [186800.0, 186900.0, 186700.0]]
    assert judge(compared(), runs(*large)).measured == (
        "181,500 to 186,800 moves (+2.9%), difference +5,073 to +5,527 (95 %), 3 and 3 runs"
    )


def test_what_was_not_measured_cannot_be_seen() -> None:
    outcome = judge(compared(), [stored("before", None), stored("after", 3)])
    assert outcome.verdict_text.startswith("cannot be seen in this mode because no run before")


def test_an_expected_verdict_and_a_threshold_are_conditions() -> None:
    samples = runs(LOW, HIGH)
    reproduced = judge(compared(expect=["reproduced"]), samples)
    assert (reproduced.holds, reproduced.required) == (True, True)
    assert not judge(compared(expect=["opposite", "no difference shown"]), samples).holds
    assert judge(compared(above=800.0), samples).holds
    assert not judge(compared(above=800.0, below=801.0), samples).holds
    assert judge(compared(direction="same", at_most=0.0), runs([0.0], [0.0])).holds


def test_a_claim_that_nothing_measured_makes_no_family_larger() -> None:
    threshold = Claim(text="t", measure="m", variant="after", at_least=1)
    claims = [compared(), compared(measure="never"), compared(to="other"), threshold]
    assert family_size(claims, runs(LOW, HIGH)) == 1
    assert family_size(claims, runs(LOW, [])) == 0
