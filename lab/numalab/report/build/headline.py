"""The first sentence of a report: what its claims came to."""

from collections.abc import Sequence

from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.differences import MeasureDifference
from numalab.report.formatting import differences_verdict
from numalab.units import runs_of

MOST_TEXTS = 6  # claims that a list quotes


def headline(
    claims: Sequence[ClaimOutcome],
    compared: Sequence[MeasureDifference],
    finished: int,
    planned: int,
    lacking: str = "",
) -> str:
    """Return which required claims do not hold, else the verdicts on all claims, else what differs.

    Each list quotes at most `MOST_TEXTS` claims. `lacking` is a baseline without a finished run.
    """
    unfinished = planned - finished
    missing = f"; {runs_of(unfinished)} gave no result" if unfinished > 0 else ""
    missing += f"; {lacking}, the baseline, has no finished run" if lacking else ""
    every = "every finished run" if unfinished > 0 else "every run"
    texts_of: dict[str, list[str]] = {}
    for claim in [claim for claim in claims if not claim.holds] or claims:
        texts_of.setdefault(_heading(claim, every), []).append(claim.text)
    if texts_of:
        parts = [f"{heading}: {_named(texts)}" for heading, texts in texts_of.items()]
        return f"{'. '.join(parts)}{missing}."
    runs = f"{finished} of {runs_of(planned)} finished{missing}."
    return f"{differences_verdict(compared)}; {runs}" if compared else runs


def _heading(claim: ClaimOutcome, every: str) -> str:
    """Return what a verdict says of a claim, before its text; `every` run is one of its variant."""
    if claim.unjudged:
        return f"{claim.verdict_text[:1].upper()}{claim.verdict_text[1:]}"
    if claim.each_run:
        return f"Seen in {every}" if claim.holds else "Not seen in every run"
    why = f" because {claim.reason}" if claim.reason else ""
    verdict = f"{claim.verdict_in_mode}{why}"
    if not claim.holds:
        return f"Not as required ({verdict})" if verdict else "Not as required"
    return f"{verdict[:1].upper()}{verdict[1:]}" or "As required"


def _named(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - MOST_TEXTS} more" if len(texts) > MOST_TEXTS else ""
    return f"{'; '.join(texts[:MOST_TEXTS])}{more}"
