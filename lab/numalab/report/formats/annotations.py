"""The problems of a study as annotations that CI systems show beside a change."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from numalab.report import formatting
from numalab.report.document import NO_TIME, NOT_RUN, StudyResults
from numalab.report.unfinished import causes_of, finished_text, not_judged_lines


@dataclass(frozen=True)
class Problem:
    """A claim that does not hold, runs that gave no result, or a regression.

    `file` is that beside which it is shown, relative to the repository; empty where the repository
    lacks the study's file. `line` is 0 for no line.
    """

    study: str
    title: str
    text: str
    file: str = ""
    line: int = 0


def problems(studies: Sequence[StudyResults]) -> tuple[Problem, ...]:
    """Return the problems of some studies: runs without a result by cause, then claims.

    GitHub shows ten annotations of a step, so runs that failed alike are one problem.
    """
    return tuple(_problems(studies))


def _problems(studies: Sequence[StudyResults]) -> Iterator[Problem]:
    for study in studies:
        for cause in causes_of(study):
            if (cause.status, cause.text) == (NOT_RUN, NO_TIME):  # as the user asked
                continue
            reason = cause.runs[0].reason.strip() if len(cause.runs) == 1 else cause.text
            places = f"{cause.places}\n" if len(cause.runs) > 1 else ""
            text = f"{places}{reason or cause.status}\n{finished_text(study)}"
            yield Problem(study.study, cause.title, text, study.path)
        for line in not_judged_lines(study):
            title, _, text = line.partition(": ")
            yield Problem(study.study, title, text, study.path)
    for path, report in ((study.path, report) for study in studies for report in study.reports):
        for claim in report.claims:
            if not claim.holds:
                text = f"expected {claim.expected}, measured {claim.measured}"
                verdict = f" ({claim.verdict_text})" if claim.verdict_text else ""
                title = f"{report.study}, {report.cell}: {claim.text}"
                yield Problem(report.study, title, text + verdict, path)


def render_github(problems: Sequence[Problem]) -> str:
    """Render workflow commands, a line each, that GitHub Actions shows as annotations.

    Source: "Workflow commands for GitHub Actions", and their escapes in actions/toolkit.
    """
    return "".join(
        f"::error {f'file={_property(problem.file)},' if problem.file else ''}"
        f"{f'line={problem.line},' if problem.line else ''}"
        f"title={_property(problem.title)}::{_data(problem.text)}\n"
        for problem in problems
    )


def render_lines(problems: Sequence[Problem]) -> str:
    """Render a line for each problem."""
    return "".join(f"{_described(fault)}\n" for fault in problems)


def _described(problem: Problem) -> str:
    return f"{_one_line(problem.title)}: {_one_line(problem.text)}"


def _one_line(text: str) -> str:
    return formatting.printable("; ".join(text.splitlines()))


def _data(text: str) -> str:
    lines = "\n".join(map(formatting.printable, text.splitlines()))
    return lines.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _identity(problem: Problem) -> bytes:
    return "\n".join((problem.study, problem.title, problem.text)).encode("utf-8", "replace")


def render_code_quality(problems: Sequence[Problem]) -> str:
    """Render GitLab's Code Quality report, which a merge request shows ("Code Quality" in its
    documentation, format of the CodeClimate engine's issues)."""
    issues = [
        {
            "description": _described(problem),
            "check_name": "numalab",
            "fingerprint": hashlib.sha256(_identity(problem)).hexdigest(),
            "severity": "major",
            # GitLab needs a path, also where the repository has no such file.
            "location": {
                "path": problem.file or f"{problem.study}.toml",
                "lines": {"begin": problem.line or 1},
            },
        }
        for problem in problems
    ]
    return json.dumps(issues, indent=1) + "\n"
