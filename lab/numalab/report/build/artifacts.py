"""One folder for a CI system to keep: test cases, a summary, problems, and the reports."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from numalab.errors import LabError
from numalab.files import make_dir, write_text
from numalab.report.document import StudyResults
from numalab.report.formats.annotations import (
    Problem,
    problems,
    render_code_quality,
    render_github,
    render_lines,
)
from numalab.report.formats.junit import render_junit_error, render_junit_suites
from numalab.report.formats.markdown import MOST_CHARACTERS, escaped, markdown
from numalab.results.layout import Results

MOST_LINES = 20  # problems that a summary names


def write_artifacts(folder: Path, studies: Mapping[str, tuple[Results, StudyResults]]) -> None:
    """Write junit.xml, summary.md, problems.txt, code-quality.json, and a folder for each study.

    Raises HostError when that cannot be written.
    """
    every = [study for _, study in studies.values()]
    faults = problems(every)
    make_dir(folder)
    write_text(folder / "junit.xml", render_junit_suites(every))
    write_text(folder / "summary.md", summary(every))
    write_text(folder / "problems.txt", render_lines(faults))
    write_text(folder / "code-quality.json", render_code_quality(faults))
    for name, (results, _) in studies.items():
        _copy(results, folder / name)


def write_failure(name: str, error: LabError, junit_file: Path | None, folder: Path | None) -> None:
    """Write the JUnit file, and that of the folder, of a study that could not begin: why."""
    text = str(error)
    if junit_file is not None:
        write_text(junit_file, render_junit_error(name, text))
    if folder is not None:
        title = f"{name} could not begin"
        faults = [Problem(name, title, text)]
        make_dir(folder)
        write_text(folder / "junit.xml", render_junit_error(name, text))
        write_text(folder / "summary.md", f"**1 problem**\n\n- {escaped(title)}\n")
        write_text(folder / "problems.txt", render_lines(faults))
        write_text(folder / "code-quality.json", render_code_quality(faults))


def summary(studies: Sequence[StudyResults]) -> str:
    """Render the problems and the reports as Markdown, of a length that fits into a comment."""
    faults = problems(studies)
    lines = [f"- {escaped(problem.title)}\n" for problem in faults[:MOST_LINES]]
    if len(faults) > MOST_LINES:
        lines.append(f"- and {len(faults) - MOST_LINES} more\n")
    head = (
        f"**{len(faults)} problem{'s' * (len(faults) > 1)}**\n\n{''.join(lines)}\n"
        if faults
        else ""
    )
    room = (MOST_CHARACTERS - len(head)) // max(1, len(studies)) - 1
    return head + "\n".join(markdown(study, room) for study in studies)


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


def announce(studies: Sequence[StudyResults]) -> str:
    """Append to the job's summary in GitHub Actions, and return the annotations to print.

    Elsewhere it returns "".
    """
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return ""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(summary(studies))
    return render_github(problems(studies))
