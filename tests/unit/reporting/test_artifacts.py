"""What a CI system is given: test cases, a summary, annotations."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from numalab.campaign.carry_out import Failure
from numalab.campaign.task import Ended
from numalab.report.formats.annotations import Problem, problems, render_code_quality, render_github
from numalab.report.model import ClaimOutcome, StudyReport
from numalab.reporting.artifacts import announce, find_problems, junit, write_artifacts
from numalab.results.layout import Results
from numalab.results.manifest import RunStatus
from support.report_sample import sample_report

LOST = Failure(
    "group-construction", Results(Path("/r")), Ended("ring-4_x_after_1", 2.0, "it hung", 4)
)


def broken() -> StudyReport:
    report = sample_report()
    claims = (ClaimOutcome("hogs, 50% of them: move", "> 3", "0 to 1", False, verdict="opposite"),)
    run = replace(report.runs[0], status=RunStatus.LOST, reason="it panicked\nat once")
    return replace(report, claims=claims, runs=(run, *report.runs[1:]), cell="ring-4, hogs")


def test_problems_are_claims_that_fail_and_runs_without_a_result() -> None:
    first, second = problems([broken()])
    assert first == Problem(
        "group-construction",
        "group-construction, ring-4, hogs: hogs, 50% of them: move",
        "expected > 3, measured 0 to 1 (opposite)",
    )
    assert (second.title, second.text) == ("run before-s1", "it panicked\nat once")
    assert problems([sample_report()]) == ()


def test_github_annotations_are_one_line_each_and_escaped() -> None:
    lines = render_github(problems([broken()])).splitlines()
    assert lines[0] == (
        "::error file=studies/group-construction.toml,title=group-construction%2C ring-4%2C hogs"
        "%3A hogs%2C 50%25 of them%3A move::expected > 3, measured 0 to 1 (opposite)"
    )
    assert lines[1].endswith("title=run before-s1::it panicked%0Aat once")
    nasty = Problem("s", "a\n::set-output name=x::y", "\r\n::warning::\x1b[31m")
    (line,) = render_github([nasty]).splitlines()
    assert line.startswith("::error file=studies/s.toml,title=a%0A%3A%3Aset-output")
    assert "\x1b" not in line


def test_code_quality_has_what_gitlab_asks_for() -> None:
    issues = json.loads(render_code_quality(problems([broken()])))
    assert len({issue["fingerprint"] for issue in issues}) == 2
    for issue in issues:
        assert issue["location"]["path"] == "studies/group-construction.toml"
        assert {"description", "check_name", "severity"} <= issue.keys()


def test_a_failure_is_told_once() -> None:
    assert len(find_problems([broken()], [LOST])) == 3
    same = replace(LOST, ended=replace(LOST.ended, run="before-s1"))
    assert len(find_problems([broken()], [same])) == 2


def test_test_cases_even_when_no_run_finished() -> None:
    suites = ET.fromstring(junit([], [LOST]))
    assert suites.get("errors") == "1"
    (error,) = suites.iter("error")
    assert error.get("message") == "it hung"


def test_one_folder_holds_it_all(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    page = results.cell("ring-4_hogs").html
    page.parent.mkdir(parents=True)
    page.write_text("<p>")
    results.html.write_text("<p>")
    folder = tmp_path / "artifacts"
    studies = {"bugs": (results, [broken()]), "none": (Results(tmp_path / "none"), ())}
    for _ in range(2):
        write_artifacts(folder, studies, [LOST])
    names = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "junit.xml",
        "summary.md",
        "problems.txt",
        "code-quality.json",
        "bugs/index.html",
        "bugs/cells/ring-4_hogs/index.html",
    }
    assert (folder / "summary.md").read_text().startswith("**3 problems**\n\n- group-construction")


def test_github_is_told_only_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = problems([broken()])
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert announce(found, [[broken()]]) == ""
    summary = tmp_path / "summary"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert announce(found, [[broken()]]).count("::error ") == 2
    announce((), [()])
    assert summary.read_text().startswith("**2 problems**")
    assert summary.read_text().endswith("No run gave a result.\n")
