"""Writes numbers and names for people: decimals, changes, intervals, p values, notes."""

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from math import ceil, log10

from numalab.measure import MeasureInfo
from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.comparisons import MeasureComparison
from numalab.report.differences import OUTCOMES, MeasureDifference
from numalab.report.document import CellReport, StudyResults
from numalab.statistics.comparison import FEWEST, LEVEL, TOO_FEW, Comparison, smallest_rank_p
from numalab.statistics.summary import Summary
from numalab.units import counted, runs_of

TEST_NOTE = (
    f"better, worse, different: p < {LEVEL} after Holm's correction for the number of measures. "
    "Exact Mann-Whitney test if there are enough runs; else Welch's t, and the two sides must not "
    "overlap"
)
CHANCE_NOTE = (
    f" ({FEWEST} and {FEWEST} runs do not overlap by chance in "
    f"{smallest_rank_p(FEWEST, FEWEST):.0%} of cases)"
)
INTERVAL_NOTE = ". The 95 % interval is Welch's, of the means, and may disagree with the outcome"
STATISTICS_NOTE = f"{TEST_NOTE}{CHANCE_NOTE}{INTERVAL_NOTE}"
NOT_SUPPORTED = "n/s"
LOST_NOTE = "figures from the trace may be wrong in either direction"
NOT_SUPPORTED_NOTE = f"{NOT_SUPPORTED}: no run measured it; it is not 0"
FROM_ZERO = "from 0"
MOST_NAMED = 3  # differences of one outcome in a verdict
MOST_CELLS, MOST_DIFFERENCES = 12, 4  # of a study of several cells, above its tables

COMPACT_NOTE = "Events, timelines, curves and sched domains are not stored. Record them again with"


def decimals(values: Iterable[float | None]) -> int:
    """Return the number of decimals of a row of figures: 0 to 3, fewer for larger figures.

    All figures of a row have the same number, so that they line up. Where all are below 0.01, it
    is that of two digits of the largest, at most 9.
    """
    numbers = [abs(value) for value in values if value is not None]
    if all(value == int(value) for value in numbers):
        return 0
    largest = max(numbers)
    if largest < 0.01:
        return min(9, 1 + ceil(-log10(largest)))
    return next((places for limit, places in ((1, 3), (100, 2), (1000, 1)) if largest <= limit), 0)


def number(value: float | None, places: int, *, grouped: bool = False) -> str:
    """Write a figure with `places` decimals; None is a figure that no run measured."""
    if value is None:
        return NOT_SUPPORTED
    text = f"{value:,.{places}f}" if grouped else f"{value:.{places}f}"
    return text[1:] if text.startswith("-") and not text.strip("-0.,") else text


def mean_and_stddev(summary: Summary | None, places: int, *, grouped: bool = True) -> list[str]:
    """Write a mean and its standard deviation; the latter is empty for a single run."""
    if summary is None:
        return [NOT_SUPPORTED, ""]
    stddev = summary.stddev
    spread = "" if stddev is None else number(stddev, places, grouped=grouped)
    return [number(summary.mean, places, grouped=grouped), spread]


def row_decimals(summaries: Iterable[Summary | None]) -> int:
    """Return the decimals for the means and standard deviations of one comparison.

    Enough for the means, and up to 3 (of means below 0.01 one more than theirs) where a standard
    deviation would otherwise read as 0, but none for means of 1000 and above.
    """
    present = [summary for summary in summaries if summary is not None]
    places = decimals([summary.mean for summary in present])
    spreads = [summary.stddev for summary in present if summary.stddev]
    if not spreads or max(abs(summary.mean) for summary in present) >= 1000:
        return places
    # More than two digits of the larger deviation say nothing.
    places = min(places, max(3, 1 + ceil(-log10(max(spreads)))))
    most = min(9, places + 1) if places > 3 else 3
    return max(places, min(most, ceil(-log10(min(spreads)))))


def change(comparison: MeasureComparison, index: int) -> str:
    """Write the change of variant `index` against the first: `+43%`, `0%`, or its absence.

    Whole percents as in kernel changelogs, one decimal below 10 %; from ten times as much
    on, a factor (`x122`), but for a negative mean, of which a factor is no increase.
    """
    return _change(comparison.changes[index], comparison.summaries[0], comparison.summaries[index])


def means(versus: Comparison) -> tuple[str, str]:
    """Write the two means of a comparison with as many decimals."""
    places = row_decimals([versus.before, versus.after])
    before, after = (
        number(side.mean if side else None, places, grouped=True)
        for side in (versus.before, versus.after)
    )
    return before, after


def change_of(versus: Comparison) -> str:
    """Write the change of one comparison, as `change` does."""
    return _change(versus.change, versus.before, versus.after)


def _change(percent: float | None, base: Summary | None, other: Summary | None) -> str:
    if percent is not None and percent >= 900 and base is not None and base.mean > 0:
        return f"x{1 + percent / 100:.0f}"
    if percent is not None:
        text = f"{percent:+.0f}%" if abs(percent) >= 10 else f"{percent:+.1f}%"
        return "0%" if text in {"+0.0%", "-0.0%"} else text
    if base is None or other is None:
        return NOT_SUPPORTED
    return "0%" if other.mean == base.mean else FROM_ZERO


def interval(comparison: Comparison | None) -> str:
    """Write the confidence interval of a change, in percent of the mean before where there is one.

    `-12% .. -3%`, or the ends of the difference itself where the mean before is 0.
    """
    if comparison is None or comparison.interval is None:
        return ""
    low, high = (comparison.percent(end) for end in comparison.interval)
    if low is None or high is None:
        ends = [
            f"{end:+,.0f}" if abs(end) >= 999.5 else f"{0.0 if round(end, 9) == 0 else end:+.3g}"
            for end in comparison.interval
        ]
        return " .. ".join(ends)
    places = 1 if max(abs(low), abs(high)) < 10 else 0
    return f"{low:+.{places}f}% .. {high:+.{places}f}%"


def difference_text(difference: MeasureDifference) -> str:
    """Write a difference in one line: `wait 12 to 16 ms, +33% (95 %: +30% .. +36%), worse`."""
    versus = difference.comparison
    ends, change = interval(versus), change_of(versus)
    size = f", {change}" if change != FROM_ZERO else ""
    return (
        f"{difference.measure} {' to '.join(means(versus))} {difference.unit}{size}"
        f"{f' (95 %: {ends})' if ends else ''}, {difference.outcome}"
    )


def differences_title(study: StudyResults) -> str:
    """Count the cells that differ; empty where no cell has two variants."""
    reports, cells = study.reports, study.differences
    if all(len(report.variants) < 2 for report in reports):
        return ""
    few = sum(not _enough_runs(report.compared) for report in reports)
    differing = [cell for cell in cells if cell.shown]
    if not differing:
        if few == len(cells):
            return TOO_FEW
        of = f" in {counted(len(cells) - few, 'cell')}" if len(cells) > 1 else ""
        return f"no difference shown{of}{f'; too few runs in {few}' if few else ''}"
    if len(cells) == 1:
        return f"differences: {_outcome_counts(cells[0].shown)}"
    counts = [
        f"{outcome} in {count}"
        for outcome in OUTCOMES[:3]
        if (count := sum(outcome in cell.outcomes for cell in differing))
    ]
    return f"{len(differing)} of {len(cells)} cells differ: {', '.join(counts)}"


def _enough_runs(compared: Sequence[MeasureDifference]) -> bool:
    """Return whether some variant and the baseline have enough runs to show a difference."""
    sides = ((item.comparison.before, item.comparison.after) for item in compared)
    return any(old and new and min(old.n, new.n) >= FEWEST for old, new in sides)


def differences_verdict(compared: Sequence[MeasureDifference]) -> str:
    """Name the first differences of a cell by outcome: `Worse: wait +33%, and 2 more. Better: ...`.

    With several variants each has its own in brackets.
    """
    several = len({difference.variant for difference in compared}) > 1
    parts = []
    for outcome in OUTCOMES[:3]:
        texts = [
            f"{item.measure} {_size(item)}{f' ({item.variant})' if several else ''}"
            for item in compared
            if item.outcome == outcome
        ]
        more = f", and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
        if texts:
            parts.append(f"{outcome.capitalize()}: {', '.join(texts[:MOST_NAMED])}{more}")
    nothing = "No difference shown" if _enough_runs(compared) else TOO_FEW.capitalize()
    return ". ".join(parts) or nothing


def _size(difference: MeasureDifference) -> str:
    """Write a change, or both means where it is no percentage: `+33%`, `0 to 12 ms`."""
    change = change_of(difference.comparison)
    if change != FROM_ZERO:
        return change
    return f"{' to '.join(means(difference.comparison))} {difference.unit}".rstrip()


def difference_lines(study: StudyResults) -> list[str]:
    """Write what differs, a line for each of the first differences of the first cells."""
    title = differences_title(study)
    if not title:
        return []
    differing = [cell for cell in study.differences if cell.shown]
    lines = [title]
    for cell in differing[:MOST_CELLS]:
        lines.append(f"{cell.cell}:")
        several = len({difference.variant for difference in cell.shown}) > 1
        for item in cell.shown[:MOST_DIFFERENCES]:
            lines.append(f"  {difference_text(item)}{f' in {item.variant}' if several else ''}")
        if (more := len(cell.shown) - MOST_DIFFERENCES) > 0:
            lines.append(f"  and {more} more")
    if (more := len(differing) - MOST_CELLS) > 0:
        lines.append(f"and {more} more cells")
    return lines


def claim_counts(reports: Iterable[CellReport]) -> str:
    """Count the claims of some cells by verdict: `9 reproduced, 2 no difference shown`."""
    verdicts = [
        verdict_words(claim, claim.verdict_in_mode) for report in reports for claim in report.claims
    ]
    return ", ".join(f"{verdicts.count(words)} {words}" for words in dict.fromkeys(verdicts))


def _outcome_counts(differences: Sequence[MeasureDifference]) -> str:
    outcomes = [difference.outcome for difference in differences]
    return ", ".join(
        f"{count} {outcome}" for outcome in OUTCOMES if (count := outcomes.count(outcome))
    )


def p_value(value: float) -> str:
    """Write a p value with two digits, or `< 0.0001`."""
    return "< 0.0001" if value < 0.0001 else f"{value:.2g}"


def samples(summaries: Iterable[Summary | None]) -> str:
    """Write the number of runs of each variant: `3`, or `3/2` where the numbers differ."""
    counts = [str(summary.n if summary else 0) for summary in summaries]
    return counts[0] if len(set(counts)) == 1 else "/".join(counts)


def label(info: MeasureInfo) -> str:
    """Write a measure's name for people, its unit in brackets."""
    return f"{info.name} [{info.unit}]" if info.unit else info.name


def plain_ascii(text: str) -> str:
    """Reduce any text to one line of printable ASCII, for mails and terminals.

    Accents are dropped, everything else that is not ASCII becomes `?`. Control and bidirectional
    characters, which could reorder or clear what a reader sees, never pass.
    """
    replaced = text.translate({0xB1: "+-", 0x2013: "-", 0x2014: "-", 0xD7: "x", 0x2212: "-"})
    words = unicodedata.normalize("NFKD", " ".join(replaced.split()))
    kept = (char for char in words if not unicodedata.combining(char))
    return "".join(char if " " <= char <= "~" else "?" for char in kept)


def cut(text: str, size: int) -> str:
    """Reduce any text to plain ASCII of at most `size` characters; `~` stands for a cut end."""
    plain = plain_ascii(text)
    return plain if len(plain) <= size else f"{plain[: size - 1]}~"


def shortened_name(name: str, size: int, mark: str = "…") -> str:
    """Leave out the middle of a name that is longer than `size`; both of its ends identify it."""
    if len(name) <= size:
        return name
    head = size // 2
    return (
        f"{name[:head]}{mark}{name[len(name) - (size - head - 1) :]}" if size > 2 else name[:size]
    )


def short_names(names: Sequence[str], size: int) -> list[str]:
    """Reduce names to plain ASCII of at most `size` characters; `~` stands for what is left out.

    Names that become equal are numbered by their places.
    """
    short = [shortened_name(plain_ascii(name), size, "~") for name in names]
    return [
        name if short.count(name) == 1 else f"{name[: size - len(number)]}{number}"
        for name, number in zip(
            short, (f"~{place}" for place in range(1, 1 + len(names))), strict=True
        )
    ]


def printable(text: str) -> str:
    """Escape every control, format and surrogate character (Unicode Cc, Cf, Cs).

    Such a character could act on a terminal or reorder a line; it becomes text like `\\u202e`.
    """
    if text.isprintable():
        return text
    return "".join(
        _escape(char) if unicodedata.category(char) in {"Cc", "Cf", "Cs"} else char for char in text
    )


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else char.encode("ascii", "backslashreplace").decode()


def moment(text: str) -> str:
    """Write an ISO 8601 time for people, to the minute and in UTC; any other text as it is."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return text
    if time.tzinfo is None:
        return text
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def verdict_words(claim: ClaimOutcome, verdict: str | None = None) -> str:
    """Return the verdict on a claim, or its shorter form `verdict`; it starts with `FAILS` where
    the claim fails the study."""
    words = claim.verdict_text if verdict is None else verdict
    if not words:
        return "holds" if claim.holds else "FAILS"
    return words if claim.holds else f"FAILS: {words}"


def machine_line(report: CellReport) -> str:
    """Describe the machine in one line: name, nodes, CPUs, memory."""
    topology = report.topology
    return (
        f"{topology.name}: {len(topology.nodes)} nodes, {topology.cpu_count} CPUs, "
        f"{topology.memory_mib} MiB"
    )


def seeds_line(report: CellReport) -> str:
    """Write the number of finished runs of each variant, and their seeds."""
    parts = []
    for variant in report.variants:
        seeds = sorted(r.seed for r in report.runs if r.ok and r.variant == variant.name)
        word = "seed" if len(seeds) == 1 else "seeds"
        parts.append((len(seeds), f"({word} {', '.join(map(str, seeds))})" if seeds else ""))
    if len(parts) == 1:
        ((count, seeds_text),) = parts
        return f"{runs_of(count)} {seeds_text}"
    if len(set(parts)) == 1:
        count, seeds_text = parts[0]
        return f"{count} of each variant {seeds_text}"
    return "; ".join(
        f"{count} of {variant.name} {text}".rstrip()
        for variant, (count, text) in zip(report.variants, parts, strict=True)
    )


def lost_line(report: CellReport) -> str:
    """Say how many trace events were lost, and in how many runs; empty if none were."""
    lost = [run.provenance.lost_events for run in report.runs if run.provenance.lost_events]
    if not lost:
        return ""
    runs = f"{len(lost)} of {runs_of(len(report.runs))}"
    return f"{sum(lost)} trace events, in {runs}; {LOST_NOTE}"


def notes(report: CellReport, *, intervals: bool = True) -> list[str]:
    """Return the notes below a table: when its figures are valid, and which figures are missing.

    With `intervals`, the table has some.
    """
    kinds = {report.measure(row.measure).kind for row in report.comparisons}
    lines = [*report.remarks, *(report.mode.note(kind) for kind in sorted(kinds))]
    versus = [side for row in report.comparisons for side in row.versus if side is not None]
    if versus:
        few = any(side.before and side.before.n == FEWEST for side in versus)
        lines.append(f"{TEST_NOTE}{CHANCE_NOTE * few}{INTERVAL_NOTE * intervals}")
    if any(None in row.summaries for row in report.comparisons):
        lines.append(NOT_SUPPORTED_NOTE)
    if unfinished := len(report.unfinished):
        lines.append(
            f"{unfinished} of {runs_of(len(report.runs))} gave no result; no figure has them"
        )
    return lines
