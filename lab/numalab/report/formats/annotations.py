"""What went wrong in a study, in the forms that CI systems show beside a change."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from numalab.report import figures
from numalab.report.model import StudyReport


@dataclass(frozen=True)
class Problem:
    """A claim that does not hold, or a run that gave no result; `study` is the name of its file."""

    study: str
    title: str
    text: str


def problems(reports: Sequence[StudyReport]) -> tuple[Problem, ...]:
    """Return what went wrong in some cells, in order."""
    return tuple(_problems(reports))


def _problems(reports: Sequence[StudyReport]) -> Iterator[Problem]:
    for report in reports:
        for claim in report.claims:
            if not claim.holds:
                found = f"expected {claim.expected}, measured {claim.measured}"
                verdict = f" ({claim.verdict_text})" if claim.verdict else ""
                title = f"{report.study}, {report.cell}: {claim.text}"
                yield Problem(report.study, title, found + verdict)
        for run in report.runs:
            if not run.ok:
                yield Problem(report.study, f"run {run.id}", run.ending)


def render_github(found: Sequence[Problem]) -> str:
    """Render workflow commands, a line each, that GitHub Actions shows as annotations.

    Source: "Workflow commands for GitHub Actions", and their escapes in actions/toolkit.
    """
    return "".join(
        f"::error file=studies/{_property(each.study)}.toml,title={_property(each.title)}"
        f"::{_data(each.text)}\n"
        for each in found
    )


def _data(text: str) -> str:
    lines = "\n".join(map(figures.printable, text.splitlines()))
    return lines.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def render_code_quality(found: Sequence[Problem]) -> str:
    """Render GitLab's Code Quality report, which a merge request shows ("Code Quality" in its
    documentation, format of the CodeClimate engine's issues)."""
    issues = [
        {
            "description": f"{figures.printable(each.title)}: {figures.printable(each.text)}",
            "check_name": "numalab",
            "fingerprint": hashlib.sha256(f"{each.study}\n{each.title}".encode()).hexdigest(),
            "severity": "major",
            "location": {"path": f"studies/{each.study}.toml", "lines": {"begin": 1}},
        }
        for each in found
    ]
    return json.dumps(issues, indent=1) + "\n"
