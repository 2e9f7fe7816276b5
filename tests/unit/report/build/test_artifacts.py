"""What a CI system is given: test cases, a summary, annotations."""

import json
import xml.etree.ElementTree as ET
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.errors import UserError
from numalab.report.build.artifacts import announce, check_artifacts, write_artifacts
from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.document import StudyResults, UnreportedCell
from numalab.report.formats.annotations import (
    Problem,
    problems,
    render_code_quality,
    render_github,
    render_lines,
)
from numalab.report.formats.junit import render_junit_suites
from numalab.results.layout import Results
from numalab.results.manifest import RunStatus
from numalab.results.plan import Cell
from support.report_sample import sample_report


def broken() -> StudyResults:
    report = sample_report()
    claims = (ClaimOutcome("hogs, 50% of them: move", "> 3", "0 to 1", False, verdict="refuted"),)
    run = replace(report.runs[0], status=RunStatus.LOST, reason="it panicked\nat once")
    return StudyResults.of(
        replace(report, claims=claims, runs=(run, *report.runs[1:]), cell="ring-4, hogs")
    )


def none_finished() -> StudyResults:
    run = replace(sample_report().runs[0], status=RunStatus.LOST, measures={}, reason="it hung")
    cell = UnreportedCell(Cell("ring-4", "hogs"), (run,))
    return replace(StudyResults.of(sample_report()), reports=(), unreported=(cell,))


def test_problems_are_runs_without_a_result_and_claims_that_fail() -> None:
    first, second = problems([broken()])
    assert (first.title, first.text) == (
        "run before-s1 lost",
        "it panicked\nat once\n5 of 6 runs finished",
    )
    assert second == Problem(
        "group-construction",
        "group-construction, ring-4, hogs: hogs, 50% of them: move",
        "expected > 3, measured 0 to 1 (refuted)",
    )
    assert problems([StudyResults.of(sample_report())]) == ()


def test_github_annotations_are_one_line_each_and_escaped() -> None:
    lines = render_github(problems([broken()])).splitlines()
    assert lines[0].endswith(
        "title=run before-s1 lost::it panicked%0Aat once%0A5 of 6 runs finished"
    )
    assert lines[1] == (
        "::error title=group-construction%2C ring-4%2C hogs"
        "%3A hogs%2C 50%25 of them%3A move::expected > 3, measured 0 to 1 (refuted)"
    )
    elsewhere = replace(broken(), path="ci/mine.toml")
    for line in render_github(problems([elsewhere])).splitlines():
        assert line.startswith("::error file=ci/mine.toml,title=")
    nasty = Problem("s", "a\n::set-output name=x::y", "\r\n::warning::\x1b[31m")
    (line,) = render_github([nasty]).splitlines()
    assert line.startswith("::error title=a%0A%3A%3Aset-output")
    assert "\x1b" not in line


def test_code_quality_has_what_gitlab_asks_for() -> None:
    mine = replace(broken(), path="studies/mine.toml")
    elsewhere = json.loads(render_code_quality(problems([broken()])))
    # The repository may have a file of this name in studies/, but it did not run.
    assert {issue["location"]["path"] for issue in elsewhere} == {"group-construction.toml"}
    issues = json.loads(render_code_quality(problems([mine])))
    assert issues[0]["description"] == (
        "run before-s1 lost: it panicked; at once; 5 of 6 runs finished"
    )
    assert len({issue["fingerprint"] for issue in issues}) == 2
    for issue in issues:
        assert issue["location"]["path"] == "studies/mine.toml"
        assert {"description", "check_name", "severity"} <= issue.keys()


def test_a_problem_is_one_line_whatever_a_guest_wrote() -> None:
    nasty = Problem("s", "run x", "a\nb\x1b[31m")
    assert render_lines([nasty]) == "run x: a; b\\x1b[31m\n"


def test_test_cases_even_when_no_run_finished() -> None:
    suites = ET.fromstring(render_junit_suites([none_finished(), broken()]))
    assert (suites.get("errors"), suites.get("failures")) == ("2", "1")
    messages = [error.get("message") for error in suites.iter("error")]
    assert messages[0] == "it hung"


def test_one_folder_holds_it_all(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    page = results.cell("ring-4_hogs").html
    page.parent.mkdir(parents=True)
    page.write_text("<p>")
    results.html.write_text("<p>")
    folder = tmp_path / "artifacts"
    studies = {
        "bugs": (results, broken()),
        "none": (Results(tmp_path / "none"), none_finished()),
    }
    for _ in range(2):
        check_artifacts(folder, studies, results)
        write_artifacts(folder, studies)
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "junit.xml",
        "summary.md",
        "problems.txt",
        "code-quality.json",
        "bugs/index.html",
        "bugs/cells/ring-4_hogs/index.html",
    }
    assert (folder / "summary.md").read_text().startswith("**3 problems**\n\n- run before-s1 lost")


@pytest.mark.parametrize(
    ("folder", "file", "reason"),
    [
        (".", "elsewhere", "holds these results"),
        ("results", "elsewhere", "holds these results"),
        ("old", "old/mine/plan.json", "is a folder of results"),
        ("old", "old/mine/compact.parquet", "is a folder of results"),
        ("mine/mine/cells", "elsewhere", "is a folder of results"),
        ("kept", "kept/mine", "is there, and is no folder"),
        ("mine/mine", "elsewhere", ""),
        ("mine/mine/ci", "mine/mine/plan.json", ""),
        ("kept", "kept/mine/.DS_Store", ""),
    ],
)
def test_a_folder_of_artifacts_is_no_place_of_results(
    folder: str, file: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    (tmp_path / "results").symlink_to(tmp_path / "mine")
    results = Results(tmp_path / "mine" / "mine")
    refused = pytest.raises(UserError, match=f"--artifacts: {reason}; name another folder")
    with refused if reason else nullcontext():
        check_artifacts(tmp_path / folder, ["mine"], results)


def test_artifacts_replace_only_files_of_earlier_ones(tmp_path: Path) -> None:
    mine, old = (tmp_path / "bugs" / name for name in ("notes.txt", "cells/gone/index.html"))
    old.parent.mkdir(parents=True)
    mine.touch()
    old.touch()
    write_artifacts(tmp_path, {"bugs": (Results(tmp_path / "results"), broken())})
    assert mine.exists() and not old.parent.exists()


def test_github_is_told_only_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert announce([broken()]) == ""
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert announce([broken()]).count("::error ") == 2
    announce([none_finished()])
    assert summary.read_text().startswith("**2 problems**")
    assert "**0 of 1 run finished**" in summary.read_text()
