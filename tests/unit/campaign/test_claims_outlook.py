"""What a study's claims need, before any run: what refutes them, and what so many seeds show."""

import json
from dataclasses import replace
from math import log
from pathlib import Path

import pytest

from numalab.campaign.outlook import ClaimOutlook, look_at_claims
from numalab.cli.study.plan import _warnings, command, smallest_text
from numalab.places import project_dir
from numalab.statistics.scale import Scale, change_of
from numalab.study.claims import Claim
from numalab.study.model import find_study
from numalab.study.plan import plan_study
from support.one_command import invoke

REPORTS = project_dir() / "reports"
KEPT = "xfsrepair: fewer minor faults where the permission is kept"
FAULTS = "xfsrepair: about as many minor faults with the first patch"


def claim(**about: object) -> Claim:
    table = {"text": "t", "measure": "m", "from": "old", "to": "new", "direction": "lower"}
    return Claim.model_validate(table | about)


@pytest.mark.parametrize(
    ("published", "changes"),
    [
        ("22801 to 27059 (+19%)", (18.675, 18.675)),
        ("+7% to +15%, growing with the number of threads", (7.0, 15.0)),
        ("-30%", (-30.0, -30.0)),
        ("a drop to 1/2 (-50%)", (-50.0, -50.0)),
        ("249163829 to 105737890", (-57.563, -57.563)),
        ("758.98 to 498.12 s (34.36%)", (-34.37, -34.37)),
        ("16,077 to 6,602", (-58.935, -58.935)),
        ("50.7 % to 41.0 %", (-19.132, -19.132)),
        ("100 to 90 s (one load), 50 to 40 s (another)", (-20.0, -10.0)),
        ("0 to 0", None),
        ("no change in results", None),
        ("performance drop to 1/2", None),
        ("", None),
    ],
)
def test_the_published_change(published: str, changes: tuple[float, float] | None) -> None:
    shifts = claim(published=published).published_shifts("ratio")
    printed = None if shifts is None else tuple(change_of(shift, "ratio") for shift in shifts)
    assert printed == (None if changes is None else pytest.approx(changes, abs=0.01))


def test_the_published_change_on_other_scales() -> None:
    assert claim(published="52.18% to 99.30%").published_shifts("linear") == pytest.approx(
        (47.12, 47.12)
    )
    assert claim(published="16 to 1").published_shifts("count") == (log(1.5 / 16.5),) * 2
    assert claim(published="0 to 0").published_shifts("count") == (0, 0)


@pytest.mark.parametrize(
    ("published", "scale", "least", "most"),
    [
        ("48 to 47 us", "ratio", log(46.5 / 48.5), log(47.5 / 47.5)),
        ("6.3 to 6.2 s", "ratio", log(6.15 / 6.35), log(6.25 / 6.25)),
        ("1,714 to 338 s", "ratio", log(337.5 / 1714.5), log(338.5 / 1713.5)),
        ("50.7 % to 41.0 %", "linear", -9.8, -9.6),
        ("-30%", "ratio", log(0.695), log(0.705)),
        ("+1.55% to +2.0%", "linear", 1.545, 2.05),
        ("16 to 1", "count", log(1.5 / 16.5), log(1.5 / 16.5)),
    ],
)
def test_the_changes_that_round_to_the_published_one(
    published: str, scale: Scale, least: float, most: float
) -> None:
    """Counts are exact."""
    shifts = claim(published=published).published_shifts(scale, rounded=True)
    assert shifts == pytest.approx((least, most))


@pytest.mark.parametrize(
    ("published", "scale", "has_size"),
    [
        ("48 to 47 us", "ratio", False),
        ("62 to 60 us", "ratio", True),
        ("9 to 8 us", "ratio", True),
        ("48 to 47", "count", True),
        ("91.9 % to 92.4 %", "linear", True),
        ("+0% to +2%", "ratio", False),
        ("+0% to +15%", "ratio", True),
    ],
)
def test_figures_that_may_round_one_number_say_a_direction_only(
    published: str, scale: Scale, *, has_size: bool
) -> None:
    change = claim(published=published, direction="lower").change_on(scale)
    assert (change.published is not None) is has_size


def test_what_refutes_a_claim() -> None:
    first = "where the change is opposite, or its interval contains 0 and"
    assert claim().refuted_by("s") == f"{first} no decrease by more than 5 %"
    assert claim(direction="higher", margin=0.5).refuted_by("%") == (
        f"{first} no increase by more than 0.5 points"
    )
    sized = claim(published="9 to 8")
    assert sized.refuted_by("s") == f"{first} excludes 9 to 8"
    rounded = claim(published="48 to 47 us")
    assert rounded.refuted_by("us") == f"{first} no decrease by more than 5 %"
    same = claim(direction="same", margin=2)
    assert same.refuted_by("s") == "where new differs from old by more than 2 %"
    assert same.refuted_by("%") == "where new differs from old by more than 2 points"
    linear = claim(direction="same", margin=2, scale="linear")
    assert linear.refuted_by("MB") == "where new differs from old by more than 2 MB"
    bounded = Claim(text="t", measure="m", variant="new", at_least=1, below=3)
    assert bounded.refuted_by("s") == "FAILS with one run of new < 1 or >= 3"
    assert claim(direction=None, at_most=-5.0).refuted_by("s") == "FAILS with a change > -5 %"


def outlooks_of(name: str, preset: str | None, mode: str, folder: Path) -> dict[str, ClaimOutlook]:
    plan = plan_study(find_study(name), preset)
    return {outlook.text: outlook for outlook in look_at_claims(plan, mode, folder)}


def test_the_claims_of_a_stored_study() -> None:
    """Five seeds of vma-grouping show a third less of a repair's faults, but not 2 % less."""
    outlooks = outlooks_of("vma-grouping", None, "icount", REPORTS)
    faults = outlooks[FAULTS]
    assert (faults.seeds, faults.stored, faults.family, faults.least) == (5, 5, "secondary", 4)
    assert faults.too_few
    kept = outlooks[KEPT]
    assert (kept.family, kept.least, kept.unit) == ("primary", 5, "%")
    assert kept.published == pytest.approx(-38.4, abs=0.1)
    assert not kept.too_few
    assert kept.smallest is not None
    assert -38.4 < kept.smallest < -5
    assert {
        outlook.stored for outlook in outlooks_of("vma-grouping", None, "kvm", REPORTS).values()
    } == {0}


@pytest.mark.parametrize(
    ("measure", "varies"), [("vmstat_numa_miss", False), ("vmstat_numa_pte_updates", True)]
)
def test_stored_runs_without_spread_give_no_smallest_change(measure: str, *, varies: bool) -> None:
    """0 in all runs does not mean that a change by +0 % would be shown."""
    plan = plan_study(find_study("vma-grouping"))
    names = {"from": "4.0-rc4", "to": "vmwrite"}
    study = plan.study.model_copy(update={"claims": (claim(**names, measure=measure),)})
    (outlook, *_) = look_at_claims(replace(plan, study=study), "icount", REPORTS)
    assert outlook.stored == 5
    assert (outlook.no_spread, outlook.smallest is not None) == (not varies, varies)
    assert (smallest_text(outlook) == "unknown (no spread)") is not varies


def test_runs_with_other_parameters_are_no_outlook() -> None:
    """The stored runs of less-busy-nodes are not of its shorter preset `quick`."""
    for preset, is_stored in ((None, True), ("quick", False)):
        outlooks = outlooks_of("less-busy-nodes", preset, "timed", REPORTS).values()
        assert {outlook.stored > 0 for outlook in outlooks} == {is_stored}


def test_a_decrease_is_less_than_100_percent() -> None:
    """`shows from 218 %` is no decrease."""
    for name, mode in (("numa-fixes-2018", "timed"), ("numa-imbalance", "timed")):
        for outlook in outlooks_of(name, None, mode, REPORTS).values():
            if outlook.unit == "%" and outlook.smallest and outlook.published:
                assert outlook.smallest >= -100
                assert (outlook.smallest < 0) == (outlook.published < 0), outlook


def test_nobody_is_warned_of_claims_that_so_many_runs_reproduce() -> None:
    outlooks = outlooks_of("numa-fixes-2018", None, "timed", REPORTS)
    (moves,) = [outlooks[text] for text in outlooks if text.startswith("numa05: fewer moves")]
    assert not moves.too_few
    assert moves.least is not None
    assert moves.seeds >= moves.least


def test_a_plan_prints_what_refutes_its_claims_and_warns_of_too_few_seeds() -> None:
    asked = ["vma-grouping", "--preset", "quick", "--mode", "icount"]
    text = " ".join(invoke(command, *asked).stdout.split())
    assert f"too few seeds: ring-4, xfsrepair: {KEPT}: 3 a variant show nothing, 5 can" in text
    document = json.loads(invoke(command, *asked, "--json").stdout)
    entries = {entry["text"]: entry for entry in document["studies"][0]["claims"]}
    assert (entries[KEPT]["seeds"], entries[KEPT]["least"]) == (3, 5)
    asked = ["vma-grouping", "--mode", "icount"]
    document = json.loads(invoke(command, *asked, "--json").stdout)
    entries = {entry["text"]: entry for entry in document["studies"][0]["claims"]}
    assert entries[FAULTS]["refuted"] == "where vmwrite differs from 4.0-rc4 by more than 5 %"
    assert (entries[FAULTS]["seeds"], entries[FAULTS]["least"]) == (5, 4)
    whole = " ".join(invoke(command, *asked).stdout.split())
    assert f"too few seeds: ring-4, xfsrepair: {FAULTS}: 5 a variant would show" in whole
    assert "the margin is 5 % (from 5 stored runs)" in whole
    alone = (
        "few seeds: 5 a variant decide a secondary claim only if others are shown, too; 6 decide"
    )
    assert alone in whole
    enough = " ".join(invoke(command, "vma-grouping-time", "--mode", "timed").stdout.split())
    assert "only if others are shown" not in enough


def test_of_very_many_claims_no_number_of_seeds_decides_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numalab.campaign.outlook.why_unseen", lambda *_: "")  # takes its time
    plan = plan_study(find_study("group-construction"))
    study = plan.study.model_copy(
        update={
            "claims": (claim(**{"from": "before", "to": "after"}, measure="throughput"),) * 5001
        }
    )
    (first, *_) = look_at_claims(replace(plan, study=study), "kvm", tmp_path)
    assert (first.least, first.alone) == (4, None)
    (few, *_) = _warnings([replace(first, seeds=5)])
    assert str(few).endswith("only if others are shown, too; no number decides each")


def test_without_stored_runs_only_the_number_of_seeds_is_warned_of(tmp_path: Path) -> None:
    outlooks = outlooks_of("numa-fixes-2018", "quick", "icount", tmp_path)
    assert outlooks
    assert not any(claim.too_few for claim in outlooks.values())
    assert {claim.smallest for claim in outlooks.values()} == {None}
    assert all(claim.refuted for claim in outlooks.values())


@pytest.mark.parametrize("plan", ['{"format": 4}', "{"])
def test_newer_results_that_cannot_be_read_are_passed_over(plan: str, tmp_path: Path) -> None:
    newest = tmp_path / "vma-grouping" / "20990101-000000"
    newest.mkdir(parents=True)
    (newest / "plan.json").write_text(plan)
    (tmp_path / "examples").symlink_to(REPORTS / "examples")
    assert outlooks_of("vma-grouping", None, "icount", tmp_path)[FAULTS].stored == 5
