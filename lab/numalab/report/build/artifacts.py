"""One folder for a CI system to keep: test cases, a summary, problems, and the reports."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from numalab.errors import LabError, UserError
from numalab.files import make_dir, reading, write_text
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
_KEPT = ("index.html", "changelog.txt", "report.json", "picture.png")  # of a report


def check_artifacts(folder: Path, names: Iterable[str], results: Results) -> None:
    """Check that the folders of some studies may take files of reports, in place of those there.

    Raises UserError for one that is or holds `results`, is one of its cells or other results, and
    for a file of its name.
    """
    own = Path(os.path.realpath(results.path))
    for target in (folder / name for name in names):
        place = Path(os.path.realpath(target))
        reason = ""
        with reading(target):
            if place in (own, *own.parents):
                reason = "holds these results"
            elif Results(place).exist or Results(own).cells in place.parents:
                reason = "is a folder of results"
            elif os.path.lexists(target) and not target.is_dir():
                reason = "is there, and is no folder"
        if reason:
            raise UserError(f"{reason}; name another folder", file=target, key="--artifacts")


def _kept(folder: Path) -> Iterator[Path]:
    """Yield the files of a report that are in a folder of results, or in a copy of it."""
    for place in (folder, *sorted(folder.glob("cells/*"))):
        yield from (place / name for name in _KEPT if (place / name).is_file())


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


def write_failure(
    name: str, path: str, error: LabError, junit_file: Path | None, folder: Path | None
) -> None:
    """Write the JUnit file, and those of the folder, of studies that an error ended: why.

    `path` is the study's file, relative to the project; empty if it lies elsewhere, or for several.
    """
    text = str(error)
    if junit_file is not None:
        write_text(junit_file, render_junit_error(name, text))
    if folder is not None:
        title = f"{name} could not be completed"
        faults = [Problem(name, title, text, path)]
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
    """Copy the report's files in place of earlier ones; recordings stay where they are."""
    for old in list(_kept(target)):
        old.unlink()
    for file in _kept(results.path):
        copy = target / file.relative_to(results.path)
        make_dir(copy.parent)
        shutil.copy2(file, copy)
    for folder in (*target.glob("cells/*"), target / "cells"):
        with suppress(OSError):  # not empty
            folder.rmdir()


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
