"""docs/results/claims.md: its tables are made from the studies' files and their stored results."""

import re
from collections.abc import Iterator, Mapping

from numalab.places import project_dir
from numalab.report.build.study import gather
from numalab.report.claim_outcome import ClaimOutcome
from numalab.results.layout import Results
from numalab.results.plan import Cell
from numalab.study.claims import Claim
from numalab.study.model import find_study
from numalab.study.plan import plan_study

PAGE = project_dir() / "docs/results/claims.md"
_HEAD = "| claim | published | measured | verdict |\n|---|---|---|---|"
_TABLE = re.compile(r"(<!-- claims: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

Outcomes = Mapping[tuple[Cell, str], ClaimOutcome]


def render(page: str) -> str:
    """Return the page with a table of each study between `<!-- claims: NAME -->` and
    `<!-- end -->`."""

    def table(match: re.Match[str]) -> str:
        return "\n".join([match[1] + _HEAD, *_rows(match[2]), match[3]])

    return _TABLE.sub(table, page)


def studies_of(page: str) -> list[str]:
    """Return the studies that a page has a table of."""
    return [match[2] for match in _TABLE.finditer(page)]


def _rows(study: str) -> Iterator[str]:
    plan = plan_study(find_study(study))
    example = project_dir() / "reports" / "examples" / study
    reports = gather(Results(example))
    outcomes = {
        (Cell(report.topology.name, report.workload.label), claim.text): claim
        for report in reports
        for claim in report.claims
    }
    modes = {
        Cell(report.topology.name, report.workload.label): report.mode.name for report in reports
    }
    for claim in plan.study.claims:
        for cell in plan.cells:
            if claim.is_about(cell.topology, cell.label):
                outcome = outcomes.get((cell, claim.text))
                yield _row(claim, cell, outcome, modes.get(cell, ""), study)


def _row(claim: Claim, cell: Cell, outcome: ClaimOutcome | None, mode: str, study: str) -> str:
    text = claim.text if cell.label in claim.text else f"{cell}: {claim.text}"
    if outcome is None:
        return f"| {text} | {claim.published} | | not run |"
    measured = re.sub(r", difference .*|, \d+ and \d+ runs?$", "", outcome.measured)
    interval = re.search(r"difference (\S+ to \S+) \(95 %\)", outcome.measured)
    text_of = f"{measured}; {interval[1]}" if interval else measured
    link = f"../../reports/examples/{study}/changelog.txt"
    return f"| {text} | {outcome.published} | {text_of} | [{_verdict(outcome, mode)}]({link}) |"


def _verdict(outcome: ClaimOutcome, mode: str) -> str:
    if not outcome.verdict:
        return "holds" if outcome.holds else "does not hold"
    verdict = outcome.verdict.partition(" in this mode")[0]
    if verdict == "cannot be seen":
        return f"{verdict} ({mode})"
    return f"{verdict} (modelled)" if outcome.kind == "modelled" else verdict
