"""One folder for a CI system to keep: test cases, a summary, problems, and the reports."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from numalab.campaign.carry_out import Failure
from numalab.files import make_dir, write_text
from numalab.report.formats.annotations import Problem, problems, render_code_quality, render_github
from numalab.report.formats.junit import render_junit, render_junit_errors
from numalab.report.formats.markdown import escaped, render_markdown
from numalab.report.model import StudyReport
from numalab.results.layout import Results


def find_problems(
    reports: Sequence[StudyReport], failures: Sequence[Failure]
) -> tuple[Problem, ...]:
    """Return what went wrong, also in studies of which no run finished."""
    found = problems(reports)
    told = {each.title for each in found}
    rest = [
        Problem(failure.study, title, failure.ended.error)
        for failure in failures
        if (title := f"run {failure.ended.run}") not in told
    ]
    return (*found, *rest)


def junit(reports: Sequence[StudyReport], failures: Sequence[Failure]) -> str:
    """Render the test cases; where no run finished, an error for each run."""
    if reports:
        return render_junit(reports)
    return render_junit_errors([(each.ended.run, each.ended.error) for each in failures])


def write_artifacts(
    folder: Path,
    studies: Mapping[str, tuple[Results, Sequence[StudyReport]]],
    failures: Sequence[Failure],
) -> None:
    """Write junit.xml, summary.md, problems.txt, code-quality.json, and a folder for each study.

    Raises HostError when that cannot be written.
    """
    reports = [report for _, found in studies.values() for report in found]
    found = find_problems(reports, failures)
    make_dir(folder)
    write_text(folder / "junit.xml", junit(reports, failures))
    write_text(folder / "summary.md", summary([of for _, of in studies.values()], found))
    write_text(folder / "problems.txt", "".join(f"{each.title}: {each.text}\n" for each in found))
    write_text(folder / "code-quality.json", render_code_quality(found))
    for name, (results, of_study) in studies.items():
        if of_study:
            _copy(results, folder / name)


def summary(studies: Sequence[Sequence[StudyReport]], found: Sequence[Problem]) -> str:
    """Render what a person should see first, as Markdown."""
    told = "".join(f"- {escaped(each.title)}\n" for each in found)
    head = f"**{len(found)} problem{'s' * (len(found) > 1)}**\n\n{told}\n" if found else ""
    bodies = [render_markdown(reports) for reports in studies if reports]
    return head + ("\n".join(bodies) or "No run gave a result.\n")


def _copy(results: Results, target: Path) -> None:
    """Copy the report's files; recordings stay where they are."""
    shutil.rmtree(target, ignore_errors=True)
    make_dir(target)
    for path in (results.html, results.changelog, results.document, results.picture):
        if path.exists():
            shutil.copy2(path, target / path.name)
    cells = results.cell("x").path.parent
    if cells.is_dir():
        shutil.copytree(cells, target / cells.name)


def announce(found: Sequence[Problem], studies: Sequence[Sequence[StudyReport]]) -> str:
    """Return what GitHub Actions is to read from the output, and append to the job's summary.

    Empty elsewhere.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return ""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(summary(studies, found))
    return render_github(found)
