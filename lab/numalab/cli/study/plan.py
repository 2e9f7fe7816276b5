"""`numalab plan`."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import inf, isinf
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from numalab.campaign.outlook import (
    ClaimOutlook,
    StudyOutlook,
    look_ahead,
    look_at_claims,
    total_seconds,
)
from numalab.campaign.schedule import within_budget
from numalab.cli import options
from numalab.cli.output import emit, picked
from numalab.places import project_dir
from numalab.study.model import find_study
from numalab.study.plan import Plan, plan_study
from numalab.units import format_seconds, format_size, parse_seconds, runs_of

MOST_ROWS = 1000  # runs of a study that are shown


def command(
    studies: options.Studies,
    preset: options.Preset = None,
    mode: options.StudyMode = None,
    jobs: options.Guests = None,
    budget: Annotated[
        str | None, typer.Option(help="Wall time such as 20m: list only the runs that fit.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List the runs of studies and estimate their time, without a build or boot.

    The time of a run is the median of earlier runs on this host, or an estimate. For each claim,
    the condition that refutes it is printed. If the study has stored runs, the smallest change that
    the seeds detect with a power of 80 % is printed too.
    """
    plans = [plan_study(find_study(study), preset) for study in studies]
    outlooks = [look_ahead(plan, mode) for plan in plans]
    wanted = jobs or min(outlook.jobs for outlook in outlooks)
    if budget is not None:
        seconds = options.parsed(parse_seconds, budget, "--budget")
        plans = _within(plans, outlooks, seconds, wanted)
        outlooks = [look_ahead(plan, mode) for plan in plans]
    reports = project_dir() / "reports"
    claims = [
        look_at_claims(plan, outlook.mode, reports)
        for plan, outlook in zip(plans, outlooks, strict=True)
    ]
    emit(_document(outlooks, claims, wanted), as_json, _text(outlooks, claims, wanted))


def _within(
    plans: Sequence[Plan], outlooks: Sequence[StudyOutlook], seconds: float, jobs: int
) -> list[Plan]:
    """Return what `numalab run --budget` runs: each study has the same share of the time."""
    builds = sum(outlook.build_seconds for outlook in outlooks)
    share = max(0.0, seconds - builds) / len(plans)
    costs = {run.run: run.cost.seconds for outlook in outlooks for run in outlook.runs}
    return [within_budget(plan, share, costs.__getitem__, jobs) for plan in plans]


Claims = Sequence[Sequence[ClaimOutlook]]


def _document(outlooks: Sequence[StudyOutlook], claims: Claims, jobs: int) -> dict[str, Any]:
    return {
        "jobs": jobs,
        "seconds": total_seconds(outlooks, jobs),
        "studies": [
            {
                "study": outlook.name,
                **picked(outlook, "mode", "reason", "to_build", "build_seconds", "remarks"),
                "seconds": outlook.seconds(jobs),
                "runs": outlook.runs,
                "claims": [{**asdict(claim), **_finite(claim)} for claim in of_study],
            }
            for outlook, of_study in zip(outlooks, claims, strict=True)
        ],
    }


def _text(outlooks: Sequence[StudyOutlook], claims: Claims, jobs: int) -> RenderableType:
    parts: list[RenderableType] = []
    for outlook, of_study in zip(outlooks, claims, strict=True):
        parts += [
            Text(f"{outlook.name}: mode {outlook.mode} ({outlook.reason})", "bold"),
            _runs(outlook),
        ]
        if outlook.to_build:
            built = ", ".join(outlook.to_build)
            parts.append(
                Text(f"to build first: {built}, about {format_seconds(outlook.build_seconds)}")
            )
        remarks = [Text(remark) for remark in outlook.remarks]
        parts += [Text(), _claims(of_study), *_warnings(of_study), *remarks, Text()]
    runs = sum(len(outlook.runs) for outlook in outlooks)
    counts = sorted({1, min(outlook.at_once(jobs) for outlook in outlooks)})
    times = ", ".join(
        f"{format_seconds(total_seconds(outlooks, n))} with --jobs {n}" for n in counts
    )
    parts.append(Text(f"{runs_of(runs)}: about {times}", "bold"))
    largest = max(outlook.largest_mib for outlook in outlooks)
    memory = min(outlook.host_memory_mib for outlook in outlooks)
    sizes = f"up to {format_size(largest << 20)} a run, {format_size(memory << 20)} available"
    parts.append(Text(f"memory: {sizes}"))
    if largest > memory:
        parts.append(
            Text("memory: the largest run does not fit if its guest uses all of its memory", "red")
        )
    return Group(*parts)


def _runs(outlook: StudyOutlook) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False, pad_edge=False)
    table.add_column("run", overflow="fold")
    for title in ("host CPUs", "host memory", "time"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("time from", overflow="fold")
    for run in outlook.runs[:MOST_ROWS]:
        n = run.cost.learned_from
        source = "an estimate" if n == 0 else f"{n} earlier run{'s' * (n > 1)}"
        size = format_size(run.memory_mib << 20)
        time = format_seconds(run.cost.seconds)
        table.add_row(Text(run.run.id), str(run.cpus), size, time, source)
    if (left := len(outlook.runs) - MOST_ROWS) > 0:
        table.add_row(Text(f"and {left} more (--json lists all)"))
    return table


def _claims(claims: Sequence[ClaimOutlook]) -> RenderableType:
    if not claims:
        return Text("no claims")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), show_edge=False, pad_edge=False)
    for title in ("cell", "claim", "refuted"):
        table.add_column(title, overflow="fold")
    for title in ("published", "shows from"):
        table.add_column(title, justify="right", no_wrap=True)
    for claim in claims:
        texts = (str(claim.cell), claim.text, claim.refuted)
        table.add_row(
            *map(Text, texts),
            change_text(claim.published, claim.unit),
            smallest_text(claim),
        )
    return table


def _finite(claim: ClaimOutlook) -> dict[str, float | None]:
    """Return the figures that may be infinite, which JSON has no number for."""
    values = {"smallest": claim.smallest, "published": claim.published}
    return {
        name: None if value is None or isinf(value) else value for name, value in values.items()
    }


def smallest_text(claim: ClaimOutlook) -> str:
    """Return the smallest change that the runs of a claim show, or why it is unknown."""
    return "unknown (no spread)" if claim.no_spread else change_text(claim.smallest, claim.unit)


def change_text(value: float | None, unit: str) -> str:
    """Return a change in whole units, or with two digits below 100; "-" for none."""
    if value is None:
        return "-"
    if isinf(value):
        return "nothing"
    figure = f"{value:{'+,.0f' if abs(value) >= 99.5 else '+.2g'}}"  # 99.5 would be 1e+02
    return f"{figure}%" if unit == "%" else f"{figure} {unit}"


def _warnings(claims: Sequence[ClaimOutlook]) -> list[RenderableType]:
    texts = [text for claim in claims for text in _warning(claim)]
    together = {
        f"few seeds: {claim.seeds} a variant decide a {claim.family} claim only if others are"
        f" shown, too; {f'{claim.alone} decide' if claim.alone else 'no number decides'} each"
        for claim in claims
        if (claim.least or inf) <= claim.seeds < (claim.alone or inf)
    }
    return [Text(text, "yellow") for text in (*texts, *sorted(together))]


def _warning(claim: ClaimOutlook) -> Iterator[str]:
    name = f"too few seeds: {claim.cell}: {claim.text}"
    if claim.seeds < (claim.least or inf):
        yield f"{name}: {claim.seeds} a variant show nothing, {claim.least or 'no number'} can"
    elif claim.too_few:
        published = f"published is {change_text(claim.published, claim.unit)}"
        sought = f"the margin is {claim.margin}" if claim.published is None else published
        yield (
            f"{name}: {claim.seeds} a variant would show {change_text(claim.smallest, claim.unit)},"
            f" {sought} (from {claim.stored} stored runs)"
        )
