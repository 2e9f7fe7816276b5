"""docs/results/claims.md: its tables are made from the studies' files and their stored results."""

import re
from collections import Counter
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
_HEAD = "| claim | published | measured | change | p, family | verdict |\n|---|---|---|---|---|---|"
_TABLE = re.compile(r"(<!-- claims: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_OLD_TABLE = re.compile(r"(<!-- own kernel: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_CLAIM = re.compile(
    r"(?P<text>.*?)(?: \(published: (?P<published>.*)\))?: (?P<verdict>(?:reproduced|direction only"
    r"|refuted|inconclusive|not reached|vacuous|cannot be seen)[^;]*);"
    r" measured (?:not measured|(?P<means>.*?), change (?P<change>.*?) interval\), p (?P<p>[^,]*),"
    r" (?:\w+ of \d+|one of \d+ \w+ claims), (?P<runs>\d+ and \d+ runs?))"
)
_COUNTS = re.compile(r"(<!-- verdicts -->)\n.*?(<!-- end -->)", re.DOTALL)
_FIGURE = re.compile(r"\d ?%? to \d|[+-]\d")  # a pair of numbers, or a change
_ROW = re.compile(
    r"^\| [^|]* \| (?P<published>[^|]*)\|.* \| (?:\[([a-z ]+).*\]\(\S+\)|(not run)) \|$",
    re.MULTILINE,
)

Outcomes = Mapping[tuple[Cell, str], ClaimOutcome]


def render(page: str) -> str:
    """Return the page with its tables.

    That of a study stands between `<!-- claims: NAME -->` and `<!-- end -->`, that of all verdicts
    between `<!-- verdicts -->` and `<!-- end -->`. An experiment on the kernel of a post stands
    between `<!-- own kernel: NAME -->` and `<!-- end -->`; its verdicts are not counted.
    """

    def table(match: re.Match[str]) -> str:
        return "\n".join([match[1] + _HEAD, *_rows(match[2]), match[3]])

    def experiment(match: re.Match[str]) -> str:
        return "\n".join([match[1] + _HEAD, *_rows_of_experiment(match[2]), match[3]])

    rendered = _TABLE.sub(table, page)
    counts = "\n".join(_counts(_OLD_TABLE.sub("", rendered)))
    rendered = _OLD_TABLE.sub(experiment, rendered)
    return _COUNTS.sub(lambda match: "\n".join([match[1], counts, match[2]]), rendered)


def _rows_of_experiment(name: str) -> Iterator[str]:
    """Yield the claims that the changelog of an experiment has."""
    path = f"studies/experiments/{name}/changelog.txt"
    text = (project_dir() / path).read_text(encoding="utf-8").replace("\n          ", " ")
    for line in re.findall(r"^Claim:    (.*)$", text, re.MULTILINE):
        claim = _CLAIM.fullmatch(line)
        assert claim is not None, line
        cells = (
            claim["text"],
            claim["published"] or "",
            claim["means"] or "",
            f"{claim['change']})" if claim["means"] else "",
            f"p {claim['p']}, {claim['runs']}" if claim["means"] else "",
            f"[{claim['verdict']}](../../{path})",
        )
        yield f"| {' | '.join(cells)} |"


def _counts(page: str) -> Iterator[str]:
    """Yield a table of how many claims have each verdict, the most frequent first."""
    rows = [(row["published"], (row[2] or row[3]).strip()) for row in _ROW.finditer(page)]
    counts = Counter(verdict for _, verdict in rows)
    yield "| verdict | claims | | a figure is published | words | nothing: our own |"
    yield "|---|---:|---:|---:|---:|---:|"
    for verdict, count in counts.most_common():
        texts = [text.strip() for text, its in rows if its == verdict]
        figures = sum(bool(_FIGURE.search(text)) for text in texts)
        own = texts.count("")
        of_kind = f"{figures} | {len(texts) - figures - own} | {own}"
        yield f"| {verdict} | {count} | {100 * count / counts.total():.0f} % | {of_kind} |"


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
    for claim in plan.study.claims:
        for cell in plan.cells:
            if claim.is_about(cell.topology, cell.label):
                outcome = outcomes.get((cell, claim.text))
                yield _row(claim, cell, outcome, study)


def _row(claim: Claim, cell: Cell, outcome: ClaimOutcome | None, study: str) -> str:
    text = claim.text if cell.label in claim.text else f"{cell}: {claim.text}"
    if outcome is None:
        return f"| {text} | {claim.published} | | | | not run |"
    means, change, p_value = _parts(outcome)
    link = f"../../reports/examples/{study}/changelog.txt"
    cells = (
        text,
        outcome.published,
        means,
        change,
        p_value,
        f"[{_verdict(outcome)}]({link})",
    )
    return f"| {' | '.join(cells)} |"


def _parts(outcome: ClaimOutcome) -> tuple[str, str, str]:
    """Return the means, the change with its interval, and the p value with its family."""
    runs = re.search(r", (\d+) and (\d+) runs?$", outcome.measured)
    measured = outcome.measured[: runs.start()] if runs else outcome.measured
    means, _, rest = measured.replace(" of geometric means", "").partition(", change ")
    change, _, p_value = rest.partition(", p ")
    if not outcome.verdict:
        means = f"{outcome.expected}: {means}"
    count = f", {runs[1]} and {runs[2]} run{'s' * (runs[2] != '1')}" if runs and rest else ""
    return means, change.replace(" interval)", ")"), f"p {p_value}{count}" if rest else ""


def _verdict(outcome: ClaimOutcome) -> str:
    if not outcome.verdict:
        return "holds" if outcome.holds else "does not hold"
    if outcome.verdict == "cannot be seen":
        return f"{outcome.verdict}: {outcome.reason}"
    of_model = ", modelled" if outcome.kind == "modelled" else ""
    return f"{outcome.verdict_text}{of_model}"
