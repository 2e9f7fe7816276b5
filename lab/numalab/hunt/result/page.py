"""The page of a hunt: outcome, findings, suspicions, coverage with annotated source, machines."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numalab.files import write_text
from numalab.hunt.direction.coverage import HuntCoverage, is_unreached
from numalab.hunt.direction.direction import HuntDirection
from numalab.hunt.loads.load_text import render_load
from numalab.hunt.outcome import ConfirmedViolation, Hunt
from numalab.reach.reach_map import SCHEDULER
from numalab.report.page.page import data_uri, render_template
from numalab.report.page.reach import annotated_values
from numalab.topology.view.drawing import render_svg
from numalab.units import counted

PAGE, COVERAGE = "index.html", "coverage.json"
_MOST_ROWS = 500  # suspicions, or branches
_COMPARED = "none: compared with the reference kernel"


@dataclass(frozen=True)
class HuntFacts:
    """What was hunted: kernels, seed, mode, `created` as ISO 8601, minutes of wall time, boots."""

    kernel: str
    baseline: str | None
    seed: int
    mode: str
    created: str
    minutes: float
    boots: int
    is_survey: bool = False


@dataclass(frozen=True)
class SuspicionRow:
    """A suspected value, its limit, and what fresh boots made of it."""

    prop: str
    value: str
    limit: str
    outcome: str
    text: str


@dataclass(frozen=True)
class ClassRow:
    """A class of machines or loads, and how many were booted."""

    name: str
    count: int


def write_result(
    folder: Path,
    facts: HuntFacts,
    hunt: Hunt,
    files: Sequence[Path],
    direction: HuntDirection | None,
) -> Path:
    """Write the page of a hunt and its coverage into its folder; return the page.

    `files` are the case files of the violations, in order.
    """
    coverage = direction.coverage if direction is not None else None
    if coverage is not None:
        write_text(folder / COVERAGE, coverage.model_dump_json(indent=1) + "\n")
    page = folder / PAGE
    write_text(page, render_hunt(facts, hunt, files, direction))
    return page


def render_hunt(
    facts: HuntFacts, hunt: Hunt, files: Sequence[Path], direction: HuntDirection | None
) -> str:
    """Render a hunt as one HTML page without requests; all texts may come from a guest."""
    coverage = direction.coverage if direction is not None else None
    reach = direction.total if direction is not None and coverage is not None else None
    suspicions = list(_suspicions(hunt))
    values = {
        "facts": facts,
        "outcome": outcome(hunt, coverage, is_survey=facts.is_survey),
        "hunt": hunt,
        "findings": [
            _finding(violation, file)
            for violation, file in zip(hunt.violations, files, strict=True)
        ],
        "suspicions": suspicions[:_MOST_ROWS],
        "closest": sorted(hunt.closest.items(), key=lambda item: -item[1].closeness),
        "machines": list(_classes(hunt.covered, "machine: ")),
        "loads": list(_classes(hunt.covered, "load: ")),
        "coverage": coverage,
        "branches": coverage.branches[:_MOST_ROWS] if coverage is not None else (),
        "annotated": annotated_values(reach) if reach and reach.series != SCHEDULER else None,
    }
    return render_template("hunt.html", (), values)


NOTHING_JUDGED = "Nothing was judged: no machine was finished."


def outcome(hunt: Hunt, coverage: HuntCoverage | None, *, is_survey: bool = False) -> str:
    """Return the outcome in one sentence."""
    booted = hunt.booted
    if hunt.violations:
        names = ", ".join(dict.fromkeys(item.finding.prop for item in hunt.violations))
        return f"{counted(len(hunt.violations), 'violation')} found ({names}); {booted}."
    if not hunt.machines:
        return NOTHING_JUDGED
    if hunt.compares_nothing:
        return f"Nothing was compared: {booted}: {hunt.reason}{hunt.untried}. {hunt.remark}".strip()
    if coverage is not None and is_unreached(coverage):
        return f"Not reached: no changed line ran on {booted}{hunt.untried}."
    if is_survey:
        return f"Survey of {booted}: no value was confirmed in other boots."
    return f"Nothing found: {booted}{hunt.untried}. {hunt.remark}".strip()


def _finding(violation: ConfirmedViolation, file: Path) -> Mapping[str, Any]:
    case, finding = violation.case, violation.finding
    machine = case.machine
    return {
        "prop": finding.prop,
        "text": finding.text,
        "picture": data_uri(render_svg(machine)),
        "machine": (
            f"{counted(len(machine.nodes), 'node')}, {counted(machine.cpu_count, 'CPU')},"
            f" {counted(sum(load.tasks for load in case.loads), 'task')}"
        ),
        "value": finding.with_unit(finding.figure),
        "limit": finding.with_unit(finding.most) if finding.measured is None else _COMPARED,
        "seeds": ", ".join(map(str, violation.seeds)),
        "minutes": violation.minutes,
        "after": violation.after,
        "boots": violation.shrunk_boots,
        "loads": [render_load(load) for load in case.loads],
        "file": file.name,
    }


def _suspicions(hunt: Hunt) -> Iterator[SuspicionRow]:
    """Return the suspicions, the longest tried first: these came closest to a finding."""
    for item in sorted(hunt.suspicions, key=lambda item: (not item.confirmed, -item.samples)):
        finding = item.finding
        value = finding.with_unit(finding.figure)
        limit = "none" if finding.differential else finding.with_unit(finding.most)
        yield SuspicionRow(finding.prop, value, limit, item.outcome, finding.text)


def _classes(covered: Mapping[str, int], prefix: str) -> Iterator[ClassRow]:
    """Return the classes of machines or of loads, the most frequent first."""
    for name, count in sorted(covered.items(), key=lambda item: (-item[1], item[0])):
        if name.startswith(prefix):
            yield ClassRow(name.removeprefix(prefix), count)
