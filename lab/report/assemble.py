"""From what the analysis gives to what a report shows: the one place where the two meet."""

from collections.abc import Collection, Iterable, Sequence

import polars as pl

from lab.analysis import compare
from lab.analysis.measure import Measure
from lab.analysis.occupancy import IDLE_PID
from lab.analysis.window import BEGIN, END, Window
from lab.report.model import (
    Comparison,
    Mark,
    MeasureInfo,
    Reading,
    Run,
    Span,
    Summary,
    Timeline,
)

PREFIX = "numalab: "
NS_PER_MS = 1_000_000


def measure_infos(runs: Iterable[Iterable[Measure]]) -> tuple[MeasureInfo, ...]:
    """Return what is known about each measure of any run, in the order in which they appear."""
    found: dict[str, MeasureInfo] = {}
    for measures in runs:
        for m in measures:
            info = MeasureInfo(m.name, m.unit, m.direction, m.kind, m.definition, m.source)
            found.setdefault(m.name, info)
    return tuple(found.values())


def readings(measures: Iterable[Measure]) -> tuple[Reading, ...]:
    """Return the values of one run."""
    return tuple(Reading(m.name, m.value) for m in measures)


def comparisons(
    variants: Sequence[str], measures: Iterable[MeasureInfo], runs: Sequence[Run]
) -> tuple[Comparison, ...]:
    """Compare each variant with the first by every measure, over the runs that ended well."""
    return tuple(_comparison(variants, info, runs) for info in measures)


def timeline_of(
    variant: str,
    run: str,
    spans: pl.DataFrame,
    window: Window,
    *,
    tasks: Collection[str],
    marks: pl.DataFrame | None = None,
) -> Timeline:
    """Make a timeline of who ran where in `window`, in ms after its start.

    `spans` is what `lab.analysis.occupancy.spans` gave for that window, `tasks` the names of the
    tasks of interest (none: every task), `marks` what `lab.analysis.window.marks` gave. A task is
    called `name-pid`, as the kernel's tracer does. Idle and unknown time is left out.
    """
    ran = spans.filter(pl.col("pid").is_not_null() & (pl.col("pid") != IDLE_PID))
    shown = ran.select(
        pl.col("cpu"),
        pl.col("node").fill_null(-1),
        start=(pl.col("start_ns") - window.start_ns) / NS_PER_MS,
        end=(pl.col("end_ns") - window.start_ns) / NS_PER_MS,
        task=pl.format("{}-{}", pl.col("comm").fill_null("?"), pl.col("pid")),
        own=pl.col("comm").is_in(list(tasks)) if tasks else pl.lit(value=True),
    )
    return Timeline(
        variant=variant,
        run=run,
        length_ms=window.length_ns / NS_PER_MS,
        spans=tuple(Span(*row) for row in shown.iter_rows()),
        marks=() if marks is None else _marks(marks, window),
    )


def _marks(marks: pl.DataFrame, window: Window) -> tuple[Mark, ...]:
    inside = marks.filter(pl.col("time_ns").is_between(window.start_ns, window.end_ns))
    return tuple(
        Mark((time - window.start_ns) / NS_PER_MS, text.removeprefix(PREFIX))
        for time, text in inside.select("time_ns", "text").iter_rows()
        if text.startswith(PREFIX) and text not in {BEGIN, END}
    )


def _comparison(variants: Sequence[str], info: MeasureInfo, runs: Sequence[Run]) -> Comparison:
    values = [_values(variant, info.name, runs) for variant in variants]
    pairs = [compare.compare(values[0], other, info.direction) for other in values[1:]]
    outcomes = {pair.outcome for pair in pairs}
    texts = [pair.verdict for pair in pairs]
    if len(pairs) > 1:
        texts = [f"{name}: {text}" for name, text in zip(variants[1:], texts, strict=True)]
    # Several variants that come out differently are told apart in the text.
    outcome: compare.Outcome = outcomes.pop() if len(outcomes) == 1 else "different"
    if not pairs:
        outcome, texts = "not comparable", ["there is nothing to compare with"]
    return Comparison(
        measure=info.name,
        summaries=tuple(_summary(each) for each in values),
        changes=(None, *(pair.change for pair in pairs)),
        outcome=outcome,
        verdict="; ".join(texts),
    )


def _values(variant: str, measure: str, runs: Sequence[Run]) -> list[float | int | None]:
    return [
        reading.value
        for run in runs
        if run.variant == variant and run.status == "ok"
        for reading in run.readings
        if reading.measure == measure
    ]


def _summary(values: Sequence[float | int | None]) -> Summary | None:
    found = compare.summarise(values)
    if found is None:
        return None
    return Summary(found.n, found.mean, found.minimum, found.maximum, found.stddev)
