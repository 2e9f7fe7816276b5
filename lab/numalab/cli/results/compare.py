"""`numalab compare`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numalab.cli import options
from numalab.cli.output import emit, picked
from numalab.report import formatting
from numalab.report.document import NOT_RUN, UnfinishedRun
from numalab.report.formats.terminal import OUTCOME_STYLES, render_lines
from numalab.report.unfinished import cause_lines, causes, shortened
from numalab.results.compare import CellVersus, MeasureVersus, Versus, compare_results
from numalab.results.layout import Results
from numalab.results.status import State
from numalab.statistics.comparison import TOO_FEW, Comparison, Outcome
from numalab.statistics.summary import Summary
from numalab.units import runs_of

_STATES = {State.FAILED: "failed", State.INTERRUPTED: "interrupted", State.RUNNING: "running"}
MOST_CAUSES = 2  # of each result
ORDER: tuple[Outcome, ...] = ("worse", "better", "different", "not comparable")


def command(
    before: Annotated[Path, typer.Argument(help="Folder of results, as printed by `numalab run`.")],
    after: Annotated[
        Path, typer.Argument(help="Folder of results of the same study with other kernels.")
    ],
    fail_on: Annotated[
        Literal["worse"] | None,
        typer.Option(help="Exit with 1 if a measure is worse or cannot be compared."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare two results of a study, each variant with itself, by measure.

    Only the kernels may differ; any other difference is printed, and the runs are not compared.
    Planned runs without a result come first; with `--fail-on worse` they fail too.
    """
    versus = compare_results(Results(before), Results(after))
    document = picked(versus, "before", "after", "worse", "whole", "unfinished", "cells")
    emit(document, as_json, _text(versus))
    if fail_on == "worse" and (versus.worse or not versus.whole):
        raise typer.Exit(1)


def _text(versus: Versus) -> RenderableType:
    parts = [*_unfinished(versus), *_alone(versus)]
    if parts:
        parts.append(Text())
    compared = [cell for cell in versus.cells if all(side.finished for side in cell.runs)]
    for cell in sorted(compared, key=lambda cell: -cell.count("worse")):
        kernel = "the same kernel in both" if cell.same_kernel else f"{' -> '.join(cell.kernels)}"
        title = f"{cell.cell}: {kernel}"
        parts.append(Text(formatting.printable(title), "bold"))
        parts.extend([*_runs(cell), *_cell(cell)])
        parts.append(Text())
    return Group(*parts, Text(formatting.STATISTICS_NOTE, "dim"))


def _unfinished(versus: Versus) -> list[RenderableType]:
    """Render how many planned runs of each result finished, and why the rest did not."""
    if not any(versus.unfinished):
        return []
    parts: list[RenderableType] = []
    for place, path in enumerate((versus.before, versus.after)):
        planned = sum(len(cell.runs[place].planned) for cell in versus.cells)
        missing = [
            UnfinishedRun(run.cell, run.run, _STATES.get(run.state, NOT_RUN), run.text)
            for run in versus.unfinished[place]
        ]
        title = f"{path}: {planned - len(missing)} of {runs_of(planned)} finished"
        parts.append(Text(formatting.printable(title), "bold dark_orange" if missing else "bold"))
        parts.extend(render_lines(cause_lines(causes(missing), MOST_CAUSES, places=False)))
    return parts


def _alone(versus: Versus) -> list[RenderableType]:
    """Name the cells that cannot be compared, because a result has no finished run of them."""
    cells: dict[str, list[str]] = {}
    for cell in versus.cells:
        if not all(side.finished for side in cell.runs):
            cells.setdefault(cell.differs[0], []).append(formatting.printable(cell.cell))
    return render_lines(
        f"not compared, {reason}: {shortened(names)}" for reason, names in cells.items()
    )


def _runs(cell: CellVersus) -> list[RenderableType]:
    """Say how many runs are compared, where the two results do not have the same."""
    before, after = cell.runs
    if before == after and before.finished == before.planned:
        return []
    counts = [f"{len(side.finished)} of {runs_of(len(side.planned))}" for side in cell.runs]
    only = [
        f"; only in the {name}: seeds {shortened([str(seed) for seed in seeds])}"
        for name, seeds in (
            ("first", sorted({*before.finished} - {*after.finished})),
            ("second", sorted({*after.finished} - {*before.finished})),
        )
        if seeds
    ]
    return [Text(f"finished: {counts[0]}, then {counts[1]}{''.join(only)}", "dark_orange")]


def _cell(cell: CellVersus) -> list[RenderableType]:
    if cell.differs:
        reasons = [Text(f"  {formatting.printable(reason)}") for reason in cell.differs]
        return [Text("not comparable:", OUTCOME_STYLES["not comparable"]), *reasons]
    parts: list[RenderableType] = []
    shown = [measure for measure in cell.measures if _is_shown(measure)]
    if shown:
        shown.sort(key=lambda measure: ORDER.index(measure.comparison.outcome))
        parts.append(_table(shown))
    if few := sum(map(_has_too_few, cell.measures)):
        style = OUTCOME_STYLES["not comparable"]
        parts.append(Text(f"{few} of {len(cell.measures)} measures: {TOO_FEW}", style))
    same = cell.count("no difference shown")
    of_all = f" of {len(cell.measures)} measures"
    texts = [f"{same}{of_all}: no difference shown"] if same or not few else []
    if without := sum(not _is_measured(measure) for measure in cell.measures):
        texts.append(
            f"{without}{'' if texts else of_all} not comparable: neither result has a value"
        )
    if texts:
        parts.append(Text("; ".join(texts), "dim"))
    return parts


def _is_shown(measure: MeasureVersus) -> bool:
    """Leave out what shows no difference, what neither result could measure, and too few runs."""
    is_same = measure.comparison.outcome == "no difference shown"
    return _is_measured(measure) and not is_same and not _has_too_few(measure)


def _is_measured(measure: MeasureVersus) -> bool:
    return measure.comparison.before is not None or measure.comparison.after is not None


def _has_too_few(measure: MeasureVersus) -> bool:
    return measure.comparison.verdict == TOO_FEW


def _table(rows: list[MeasureVersus]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("")
    table.add_column("measure", overflow="fold")
    for title in ("before", "after", "change"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("95 % of it, and why", overflow="fold")
    for row in rows:
        comparison = row.comparison
        places = formatting.row_decimals([comparison.before, comparison.after])
        table.add_row(
            Text(comparison.outcome, OUTCOME_STYLES[comparison.outcome]),
            Text(formatting.printable(f"{row.measure} [{row.unit}]")),
            _mean(comparison.before, places),
            _mean(comparison.after, places),
            "" if comparison.change is None else f"{comparison.change:+.1f}%",
            _why(comparison),
        )
    return table


def _why(comparison: Comparison) -> Text:
    lines = filter(None, (formatting.interval(comparison), comparison.verdict))
    return Text("\n").join(Text(formatting.printable(line)) for line in lines)


def _mean(summary: Summary | None, places: int) -> str:
    return formatting.number(summary.mean if summary else None, places, grouped=True)
