from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.measure import MeasureKind
from numalab.report import formatting
from numalab.report.comparisons import MeasureComparison
from numalab.report.modes import Mode, RunMode
from numalab.statistics.summary import Summary
from support.report_sample import HOSTILE, sample_report


def summary_of(mean: float, stddev: float | None = 0.0) -> Summary:
    return Summary(n=3, mean=mean, minimum=mean, maximum=mean, stddev=stddev)


def pair(
    before: Summary | None, after: Summary | None, change: float | None = None
) -> MeasureComparison:
    return MeasureComparison("m", (before, after), (None, change), "different", "")


@pytest.mark.parametrize(
    ("values", "places"),
    [
        ([0, 5, 1234], 0),
        ([22801.0, 1950.0], 0),
        ([0.25, 0.5], 3),
        ([0.25, 12.0], 2),
        ([99.5, 123.4], 1),
        ([1234.5, 0.1], 0),
        ([None, None], 0),
        ([-0.25], 3),
        ([0.01, 0.001], 3),
        ([0.0014, 0.0011], 4),
        ([0.0001, 0.0002], 5),
        ([0.0, -0.000912], 5),
        ([1e-30], 9),
    ],
)
def test_decimals_follow_the_largest_figure(values: list[float | None], places: int) -> None:
    assert formatting.decimals(values) == places


def test_a_small_stddev_gets_the_decimals_to_be_seen() -> None:
    assert formatting.row_decimals([summary_of(5.011, 0.001), summary_of(5.012, 0.002)]) == 3
    assert formatting.row_decimals([summary_of(5.0, 0.0), summary_of(5.5, 0.0)]) == 2
    assert formatting.row_decimals([summary_of(1500, 0.4), None]) == 0
    assert formatting.row_decimals([None, None]) == 0
    assert formatting.row_decimals([summary_of(1e-4, 1e-5), summary_of(2e-4, 0.0)]) == 5
    assert formatting.row_decimals([summary_of(1e-4, 1e-5), summary_of(2e-4, 0.5)]) == 3
    assert formatting.row_decimals([summary_of(0.0014, 0.001), summary_of(0.0011, 1e-4)]) == 4
    assert formatting.row_decimals([summary_of(1.25e-7, 5e-9), summary_of(2.25e-7, 5e-9)]) == 9
    assert formatting.row_decimals([summary_of(0.005, 1e-8), summary_of(0.006, 1e-3)]) == 5


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [(None, 2, "n/s"), (-0.001, 2, "0.00"), (-1.5, 1, "-1.5"), (0, 0, "0"), (12345.6, 0, "12346")],
)
def test_number(value: float | None, places: int, text: str) -> None:
    assert formatting.number(value, places) == text


def test_numbers_can_be_grouped() -> None:
    assert formatting.number(1698631, 0, grouped=True) == "1,698,631"


@pytest.mark.parametrize(
    ("before", "after", "change", "text"),
    [
        (summary_of(22801), summary_of(27059), 18.67, "+19%"),
        (summary_of(100), summary_of(97), -3.0, "-3.0%"),
        (summary_of(100), summary_of(100.01), 0.01, "0%"),
        (summary_of(100), summary_of(999), 899, "+899%"),
        (summary_of(0.7), summary_of(87), 12057, "x122"),
        (summary_of(-10), summary_of(100), 1100, "+1100%"),
        (summary_of(0), summary_of(5), None, "from 0"),
        (summary_of(0), summary_of(0), None, "0%"),
        (None, summary_of(5), None, "n/s"),
        (summary_of(5), None, None, "n/s"),
    ],
)
def test_change(
    before: Summary | None, after: Summary | None, change: float | None, text: str
) -> None:
    assert formatting.change(pair(before, after, change), 1) == text


def test_an_interval_has_no_exponent() -> None:
    versus = sample_report().comparisons[0].versus[1]
    assert versus and versus.before
    none = replace(versus.before, mean=0.0)
    text = formatting.interval(replace(versus, before=none, interval=(999.4, 999.6)))
    assert text == "+999 .. +1,000"


def test_samples_tell_where_variants_differ_in_number() -> None:
    assert formatting.samples(sample_report().comparisons[0].summaries) == "3"
    assert formatting.samples([summary_of(1), None]) == "3/0"


@pytest.mark.parametrize("kind", [MeasureKind.TIMING, MeasureKind.PLACEMENT])
def test_every_mode_states_when_its_figures_are_valid(kind: MeasureKind) -> None:
    notes = {RunMode(mode).note(kind) for mode in get_args(Mode)}
    assert len(notes) == len(get_args(Mode))


def test_seeds_are_listed() -> None:
    assert formatting.seeds_line(sample_report()) == "3 of each variant (seeds 1, 2, 3)"


@given(st.text())
def test_plain_ascii_is_one_line_of_printable_ascii(text: str) -> None:
    assert all(" " <= char <= "~" for char in formatting.plain_ascii(text))


@pytest.mark.parametrize("text", HOSTILE)
def test_printable_keeps_nothing_that_acts(text: str) -> None:
    shown = formatting.printable(text)
    assert not any(char in shown for char in "\x1b\x07\n\t\x00\u202e\u2066\ud800")
    assert "script" not in text or "script" in shown


def test_printable_says_what_it_replaced() -> None:
    assert formatting.printable("\u202egnp") == "\\u202egnp"
    assert formatting.printable("a\x1bb") == "a\\x1bb"
    assert formatting.printable("Grüße ± 1") == "Grüße ± 1"


@pytest.mark.parametrize(
    ("names", "short"),
    [
        (["before", "after"], ["before", "after"]),
        (["sched-busy-v1", "sched-busy-v2"], ["sched~y-v1", "sched~y-v2"]),
        (["sched-busy-1-node", "sched-busy-2-node"], ["sched~no~1", "sched~no~2"]),
    ],
)
def test_short_names_stay_apart(names: list[str], short: list[str]) -> None:
    assert [name[:10] for name in formatting.short_names(names, 10)] == short


def test_moments_are_told_in_utc_and_other_texts_as_they_are() -> None:
    assert formatting.moment("2026-11-21T14:16:04+02:00") == "2026-11-21 12:16 UTC"
    assert formatting.moment("2026-11-21T14:16:04") == "2026-11-21T14:16:04"
    assert formatting.moment("yesterday") == "yesterday"
