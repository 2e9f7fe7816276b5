"""The first sentence of a report says what each claim came to."""

import pytest

from numalab.report.build.headline import MOST_TEXTS, headline
from numalab.report.claim_outcome import ClaimOutcome

HELD = ClaimOutcome("A", "< 1 %", "0 %", True, each_run=True)
BROKEN = ClaimOutcome("B", "< 1 %", "5 %", False, each_run=True)
CHANGED = ClaimOutcome("C", "<= -8 %", "-9 %", True)
UNJUDGED = ClaimOutcome("G", "< 1 %", "nothing", False, each_run=True, unjudged="no run of c")
REFUTED = ClaimOutcome("D", "higher", "5 to 5 s", True, verdict="refuted")
UNEXPECTED = ClaimOutcome("E", "higher", "5 to 5 s", False, verdict="refuted")
REPRODUCED = ClaimOutcome("F", "higher", "5 to 9 s", True, verdict="reproduced", required=False)


@pytest.mark.parametrize(
    ("claims", "text"),
    [
        ([HELD], "Seen in every run: A."),
        ([CHANGED], "As required: C."),
        ([REFUTED, HELD], "Refuted: D. Seen in every run: A."),
        ([HELD, REPRODUCED, REFUTED], "Seen in every run: A. Reproduced: F. Refuted: D."),
        ([HELD, BROKEN, REPRODUCED], "Not seen in every run: B."),
        ([UNEXPECTED, REPRODUCED], "Not as required (refuted): E."),
        ([HELD, BROKEN, UNJUDGED], "Not seen in every run: B. Not judged (no run of c): G."),
        ([], "12 of 12 runs finished."),
    ],
)
def test_each_verdict_stands_before_its_claims(claims: list[ClaimOutcome], text: str) -> None:
    assert headline(claims, (), 12, 12) == text


def test_runs_without_a_result_are_counted() -> None:
    assert headline([HELD], (), 2, 3) == "Seen in every finished run: A; 1 run gave no result."


def test_a_list_quotes_few_claims() -> None:
    text = headline([REFUTED] * (MOST_TEXTS + 2), (), 1, 1)
    assert text.endswith("; D; and 2 more.")
