"""What a study's claims need, before any run: what refutes them, and what so many seeds show."""

import json
from pathlib import Path

import pytest

from numalab.campaign.outlook import ClaimOutlook, look_at_claims
from numalab.cli.study.plan import command
from numalab.measure import Direction
from numalab.places import project_dir
from numalab.statistics.comparison import compare_samples, smallest_effect
from numalab.study.claims import Claim
from numalab.study.model import find_study
from numalab.study.plan import plan_study
from support.one_command import invoke

REPORTS = project_dir() / "reports"
FAULTS = "xfsrepair: about as many minor faults with the first patch"


def claim(**about: object) -> Claim:
    table = {"text": "t", "measure": "m", "from": "old", "to": "new", "direction": "lower"}
    return Claim.model_validate(table | about)


@pytest.mark.parametrize(
    ("published", "change"),
    [
        ("22801 to 27059 (+19%)", 19.0),
        ("+7% to +15%, growing with the number of threads", 7.0),
        ("-30%", -30.0),
        ("249163829 to 105737890", -57.563),
        ("758.98 to 498.12 s (34.36%)", -34.37),
        ("16,077 to 6,602", -58.935),
        ("52.18% to 99.30%", 90.303),
        ("0 to 0", None),
        ("no change in results", None),
        ("performance drop to 1/2", None),
        ("", None),
    ],
)
def test_the_published_change(published: str, change: float | None) -> None:
    published_change = claim(published=published).published_change
    assert published_change == (None if change is None else pytest.approx(change, abs=0.01))


def test_what_refutes_a_claim() -> None:
    assert claim().refuted == "where new is shown to be higher than old"
    assert claim(direction="same").refuted == "where new is shown to differ from old"
    bounded = Claim(text="t", measure="m", variant="new", at_least=1, below=3)
    assert bounded.refuted == "by one run of new that is not >= 1 and < 3"
    assert claim(direction=None, at_most=-5.0).refuted == "by a change that is not <= -5 %"


def test_more_seeds_show_smaller_effects_and_as_many_what_a_comparison_says() -> None:
    before, after = [10.0, 12.5, 11.0], [14.0, 15.5, 13.5]
    same = smallest_effect(before, after, runs=3, family=4)
    comparison = compare_samples(before, after, direction=Direction.HIGHER, family=4)
    assert same == pytest.approx(comparison.smallest_effect)
    effects = [smallest_effect(before, after, runs=n) or 0 for n in (3, 5, 10, 30)]
    assert effects == sorted(effects, reverse=True)
    # By hand: variances 1.583 and 1.083 of 3 runs each, 3.92 degrees of freedom.
    assert effects[0] == pytest.approx(0.9428 * (2.798 + 0.946), rel=0.01)
    assert smallest_effect([1.5], after, runs=3) is None
    assert smallest_effect(before, after, runs=2) is None
    assert smallest_effect([0.5, 0.5], [0.5, 0.5], runs=3) == 0


def test_the_claims_of_a_stored_study() -> None:
    """Three seeds of vma-grouping cannot show what its post published of a repair's faults."""
    plan = plan_study(find_study("vma-grouping"), "quick")
    outlooks = {claim.text: claim for claim in look_at_claims(plan, "icount", REPORTS)}
    faults = outlooks[FAULTS]
    assert (faults.seeds, faults.stored) == (3, 5)
    assert faults.published == pytest.approx(-2.1, abs=0.1)
    assert faults.too_few
    assert {claim.stored for claim in look_at_claims(plan, "kvm", REPORTS)} == {0}


def test_a_plan_prints_what_refutes_its_claims_and_warns_of_too_few_seeds() -> None:
    asked = ["vma-grouping", "--preset", "quick", "--mode", "icount"]
    text = " ".join(invoke(command, *asked).stdout.split())
    assert f"too few seeds: ring-4, xfsrepair: {FAULTS}" in text
    document = json.loads(invoke(command, *asked, "--json").stdout)
    (claim, *_) = [entry for entry in document["studies"][0]["claims"] if entry["text"] == FAULTS]
    assert claim["too_few"]
    assert claim["refuted"] == "where vmwrite is shown to differ from 4.0-rc4"
    assert claim["smallest"] > 3


def test_without_stored_runs_nothing_is_warned_of(tmp_path: Path) -> None:
    plan = plan_study(find_study("numa-fixes-2018"), "quick")
    outlooks = look_at_claims(plan, "icount", tmp_path)
    assert outlooks
    assert not any(claim.too_few for claim in outlooks)
    assert {claim.smallest for claim in outlooks} == {None}
    assert all(isinstance(claim, ClaimOutlook) and claim.refuted for claim in outlooks)
