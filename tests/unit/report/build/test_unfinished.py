"""Runs that failed, were interrupted or never started come first in every form of a report."""

import csv
import io
import json
import random
import re
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from lxml import html as lxml_html
from typer.testing import Result

from numalab.cli.results.report import command
from numalab.cli.study.status import command as status_command
from numalab.errors import UserError
from numalab.guest.proof import Proof
from numalab.locks import locked
from numalab.report.build.publish import publish
from numalab.report.build.runs import LONGEST_REASON, described
from numalab.report.build.study import gather
from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.formats.annotations import problems, render_github, render_lines
from numalab.report.formats.json import report_schema
from numalab.report.formats.junit import render_junit
from numalab.report.unfinished import unfinished_lines
from numalab.results.layout import Results
from numalab.results.manifest import RecordingFacts, RunStatus
from numalab.results.reader import load_runs
from support.example_results import EXAMPLE, RUNS
from support.one_command import invoke
from support.report_sample import HOSTILE
from support.stored_run import stored_manifest
from support.unfinished_results import copy_with_cells, leave, planned_runs

Tree = Any  # of lxml
TEXTS = ("table", "changelog", "mmtests", "threads", "markdown")
PANIC = "the guest's kernel panicked: [{0:5}.{0:06}] Kernel panic - not syncing: Fatal exception"
SCREEN = 25  # lines that a reader sees first


def report(path: Path, form: str = "table") -> Result:
    return invoke(command, path, "--format", form)


def parsed(page: Path) -> Tree:
    return lxml_html.fromstring(page.read_text("utf-8"))


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """Two of 50 runs finished: 39 failed, 2 were interrupted, 7 never started."""
    path = copy_with_cells(tmp_path / "results", [f"hogs-{number}" for number in range(24)])
    names = planned_runs(path)
    for place, name in enumerate(names[2:40]):
        reason = f"{PANIC.format(place)}\n  | its console"
        leave(path, name, ".failed", status="lost", cause="guest", reason=reason)
    leave(path, names[40], ".interrupted", status="interrupted")
    leave(path, names[41], ".failed", status="failed", reason="its disk was full")
    (path / "runs" / f"{names[42]}.running").mkdir()
    return path


@pytest.mark.parametrize("form", TEXTS)
def test_what_failed_comes_first_with_its_cause(mixed: Path, form: str) -> None:
    done = report(mixed, form)
    assert done.exit_code == 0
    first = " ".join("\n".join(done.stdout.splitlines()[:SCREEN]).replace("\\", "").split())
    assert "2 of 50 runs finished, in 1 of 25 cells" in first
    assert "38 runs of 19 cells lost" in first
    assert "Kernel panic - not syncing: Fatal exception" in first
    assert "its disk was full" in first
    assert "7 runs of 4 cells not run" in first


def test_the_overview_shows_failures_before_the_cells(mixed: Path) -> None:
    report(mixed)
    tree = parsed(mixed / "index.html")
    head = tree.xpath("string(//header)")
    assert "1 of 25 cells · 2 of 50 runs finished" in head
    tables = [table.get("id") for table in tree.xpath("//table")]
    assert tables[:3] == ["unfinished-0", "unfinished-0-runs", "cells-0"]
    rows = [row.text_content() for row in tree.xpath("//table[@id='unfinished-0']/tbody/tr")]
    assert "38 runs of 19 cells lost" in rows[0] and "Fatal exception" in rows[0]
    assert len(tree.xpath("//table[@id='unfinished-0-runs']/tbody/tr")) == 48
    assert (mixed / "cells" / "ring-4_bound-hogs" / "index.html").exists()


def test_the_page_of_a_cell_shows_its_failures_first(tmp_path: Path) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    leave(path, RUNS[1], ".failed", status="failed", reason="the guest hung")
    assert "1 of 2 runs finished" in report(path).stdout
    tree = parsed(path / "index.html")
    assert tree.xpath("string((//table)[1]//td[1])") == "the guest hung"
    assert "1 of 2 runs finished" in tree.xpath("string(//header/p)")
    assert "1 of 2 runs finished" in (path / "changelog.txt").read_text()


def test_junit_has_a_case_for_each_run_without_a_result(mixed: Path) -> None:
    root = ET.fromstring(report(mixed, "junit").stdout)
    claims = root.findall(".//failure[@type='claim']")  # `run` exits with 1 for them, too
    assert len(claims) == 24 * 2  # of the cells without a finished run, all required
    assert (root.get("errors"), root.get("failures")) == ("41", str(len(claims)))
    assert root.get("tests") == str(len(list(root.iter("testcase"))))
    assert sum(int(suite.get("skipped", "0")) for suite in root) == 7
    cases = {case.get("name", ""): case for case in root.iter("testcase")}
    assert {f"run {name}" for name in planned_runs(mixed)} <= cases.keys()
    last = next(reversed(planned_runs(mixed)))
    assert cases[f"run {last}"].find("skipped") is not None
    error = cases[f"run {planned_runs(mixed)[2]}"].find("error")
    assert error is not None and "its console" in (error.text or "")


def test_the_document_has_numbers_and_every_run_before_the_cells(mixed: Path) -> None:
    text = report(mixed, "json").stdout
    document = json.loads(text)
    Draft202012Validator(report_schema()).validate(document)
    missing = document["unfinished"]
    assert list(document)[-2:] == ["unfinished", "cells"]
    assert [missing[key] for key in ("runs_planned", "runs_finished")] == [50, 2]
    assert [missing[key] for key in ("cells_planned", "cells_finished")] == [25, 1]
    states = [run["status"] for run in missing["runs"]]
    assert [states.count(s) for s in ("lost", "failed", "interrupted", "not run")] == [38, 1, 2, 7]


def test_a_document_of_results_that_are_whole_says_nothing_of_it(tmp_path: Path) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    assert "unfinished" not in json.loads(report(path, "json").stdout)
    assert "2 of 2 runs finished" in report(path).stdout


def test_csv_has_a_row_for_each_run_without_a_result_first(mixed: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(report(mixed, "csv").stdout)))
    assert [row["run"] for row in rows[:48]] == planned_runs(mixed)[2:]
    assert all(row["measure"] == row["value"] == "" for row in rows[:48])
    assert all(row["measure"] for row in rows[48:])


def test_annotations_are_grouped_by_cause(mixed: Path) -> None:
    lines = render_github(problems([gather(Results(mixed))])).splitlines()
    assert len(lines) == 6
    assert "title=48 required claims are not judged%2C as no run of their cells" in lines[-1]
    assert "title=38 runs of 19 cells lost::" in lines[0]
    assert "Fatal exception" in lines[0] and "2 of 50 runs finished" in lines[0]


@pytest.mark.parametrize("left", [0, 1])
def test_a_budget_says_what_it_left_out_and_which_claims_that_leaves(
    tmp_path: Path, left: int
) -> None:
    """A run that was left out is no problem of CI, but a required claim without runs is."""
    path = copy_with_cells(tmp_path / "results", ["other"])
    plan = json.loads((path / "plan.json").read_text())
    budget = {"kind": "budget", "chosen": 2 + left, "planned": 4, "seconds": 9.0}
    plan["remarks"] = [budget, {"kind": "time over", "left": left}]
    (path / "plan.json").write_text(json.dumps(plan))
    study = gather(Results(path))
    claims = "2 required claims are not judged, as no run of their cells finished"
    lines = unfinished_lines(study)
    assert lines[:2] == [
        "2 of 4 runs finished, in 1 of 2 cells",
        "  2 runs not run: they did not fit into the budget",
    ]
    assert lines[-1].startswith(f"  {claims}: before: no hog ever runs on node 3; after: ")
    assert not study.holds
    (problem,) = problems([study])
    assert problem.title == claims
    assert "2 of 4 runs finished (2 left out)" in invoke(status_command, path).stdout
    # Of runs that another cause left; an older plan lacks those that its budget left out.
    for remarks in ([], [{**budget, "chosen": 4, "planned": 10}]):
        plan["remarks"] = remarks
        (path / "plan.json").write_text(json.dumps(plan))
        assert unfinished_lines(gather(Results(path)))[1] == "  2 runs not run"
        assert "2 of 4 runs finished (2 waiting)" in invoke(status_command, path).stdout


def test_verdicts_do_not_depend_on_cells_without_a_finished_run(tmp_path: Path) -> None:
    """A primary claim about all cells would count once more for each."""
    claim = {"text": "t", "measure": "task_busy_share_min", "direction": "higher",
             "from": "before", "to": "after", "primary": True}  # fmt: skip
    path = Path(shutil.copytree(EXAMPLE, tmp_path / "results"))
    plan = json.loads((path / "plan.json").read_text())
    plan["study"] = "mine"
    plan["file"]["claims"] = [claim]
    outcomes: list[ClaimOutcome] = []
    for label in ("", "other"):
        ids = [(run, run["id"].replace("bound-hogs", label)) for run in plan["runs"] if label]
        plan["runs"] += [{**run, "id": name, "workload": label} for run, name in ids]
        (path / "plan.json").write_text(json.dumps(plan))
        study = gather(Results(path))
        assert [len(cell.claims) for cell in study.unreported] == [1] * len(label[:1])
        outcomes += study.reports[0].claims
    assert outcomes[0] == outcomes[1]
    assert outcomes[0].figures is not None and outcomes[0].figures.size == 1


@pytest.mark.parametrize("form", [*TEXTS, "junit", "csv", "json", "html"])
def test_a_report_where_no_run_finished(tmp_path: Path, form: str) -> None:
    path = copy_with_cells(tmp_path / "results", ["other"])
    for name in planned_runs(path):
        leave(path, name, ".failed", status="failed", reason="the guest did not boot")
    done = report(path, form)
    assert done.exit_code == 1
    assert "the guest did not boot" in done.stdout.replace("&#39;", "'")
    assert re.search(r"0 of [24] runs|\"runs_finished\": 0|4 .*-4|,,,,,$", done.stdout, re.M)
    assert "the guest did not boot" in (path / "index.html").read_text()
    with pytest.raises(UserError, match="no run has finished"):
        report(path, "perfetto")


def test_a_plan_of_which_nothing_ran(tmp_path: Path) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    shutil.rmtree(path / "runs")
    done = report(path)
    assert done.exit_code == 1
    assert "0 of 2 runs finished" in done.stdout and "2 runs not run" in done.stdout


@pytest.mark.parametrize("words", [1, 40])
@pytest.mark.parametrize("kinds", [1, 7, 500])
def test_500_failed_cells_fit_on_a_screen(tmp_path: Path, kinds: int, words: int) -> None:
    """However many reasons there are, and however long; the first figures follow at once."""
    path = copy_with_cells(tmp_path / "results", [f"hogs-{number}" for number in range(500)])
    rng = random.Random(kinds)
    reasons = ["".join(rng.choices("bcghklmnopqrst", k=12)) for _ in range(kinds)]
    for place, name in enumerate(planned_runs(path)[2:]):
        reason = f"{place} {reasons[place % kinds]} " * words
        leave(path, name, ".failed", status="failed", reason=reason)
    lines = report(path).stdout.splitlines()
    assert "2 of 1002 runs finished, in 1 of 501 cells" in lines[0]
    assert any("verdict" in line for line in lines[:SCREEN])
    counted = [int(match[1]) for line in lines[:SCREEN]
               if (match := re.match(r"  (\d+) (more )?runs", line))]  # fmt: skip
    assert sum(counted) + sum(line.startswith("  run ") for line in lines[:SCREEN]) == 1000
    for form in TEXTS[1:]:
        assert len(report(path, form).stdout) < 60_000


@pytest.mark.parametrize("seed", range(4))
def test_every_planned_run_is_counted_once(tmp_path: Path, seed: int) -> None:
    """Whatever became of each run, all forms agree on the numbers."""
    rng = random.Random(seed)
    path = copy_with_cells(tmp_path / "results", [f"hogs-{number}" for number in range(8)])
    names = planned_runs(path)
    missing = rng.sample(names, rng.randint(1, len(names) - 2)) if seed else names
    missing = [name for name in names if name in missing or name not in RUNS]
    counts = {"error": 0, "skipped": 0}
    for name in missing:
        ending = rng.choice(["failed", "lost", "interrupted", "killed", "never"])
        counts["skipped" if ending == "never" else "error"] += 1
        if ending in ("failed", "lost"):
            leave(path, name, ".failed", status=ending, reason=rng.choice(HOSTILE))
        elif ending == "interrupted":
            leave(path, name, ".interrupted", status=ending)
        else:
            shutil.rmtree(path / "runs" / name, ignore_errors=True)
            if ending == "killed":
                (path / "runs" / f"{name}.running").mkdir()
    finished = len(names) - len(missing)
    root = ET.fromstring(report(path, "junit").stdout)
    ends = [root.findall(f".//{kind}[@type='run']") for kind in counts]
    assert list(map(len, ends)) == list(counts.values())
    document = json.loads(report(path, "json").stdout)
    assert document["unfinished"]["runs_finished"] == finished
    assert sorted(run["id"] for run in document["unfinished"]["runs"]) == sorted(missing)
    for form in TEXTS:
        done = report(path, form)
        assert f"{finished} of {len(names)} runs finished" in done.stdout
        assert done.exit_code == (0 if finished else 1)
    assert f": {finished} of {len(names)} runs finished" in invoke(status_command, path).stdout


@pytest.mark.parametrize(
    "text", [*HOSTILE, "=1+1", "::error::x\n::set-output name=a::b", "x" * 10**6]
)
def test_a_reason_of_a_guest_is_bounded_text_in_every_form(tmp_path: Path, text: str) -> None:
    path = copy_with_cells(tmp_path / "results", ["other"])
    for name in planned_runs(path)[1:]:
        leave(path, name, ".failed", status="failed", reason=text)
    for form in (*TEXTS, "csv", "junit"):
        shown = report(path, form).stdout
        assert all(char.isprintable() or char == "\n" for char in shown)
        assert len(shown) < 80_000
    ET.fromstring(report(path, "junit").stdout)
    cells = [row[8] for row in csv.reader(io.StringIO(report(path, "csv").stdout))]
    assert not any(cell.startswith(("=", "+", "-", "@")) for cell in cells)
    rows = [line for line in report(path, "markdown").stdout.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {3, 4, 5, 6, 7}
    for page in (path / "index.html", path / "cells" / "ring-4_bound-hogs" / "index.html"):
        tree = parsed(page)
        assert not tree.xpath("//*[@onmouseover] | //img[@onerror]")
        assert not any("alert" in (script.text or "")[:200] for script in tree.xpath("//script"))
    faults = problems([gather(Results(path))])
    assert len(render_github(faults)) + len(render_lines(faults)) < 40_000
    for line in render_github(faults).splitlines():
        assert line.startswith("::error file=studies/group-construction.toml,title=")
    assert len(render_lines(faults).splitlines()) == len(faults)
    state = invoke(status_command, path).stdout
    assert all(char.isprintable() or char == "\n" for char in state)


def test_a_manifest_that_says_failed_is_in_no_figure(tmp_path: Path) -> None:
    """Also where its folder has the name of a run that finished."""
    path = copy_with_cells(tmp_path / "results", [])
    manifest = path / "runs" / RUNS[1] / "manifest.json"
    table = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**table, "status": "failed", "reason": "it hung"}))
    (cell,) = gather(Results(path))
    assert [(run.id, run.reason) for run in cell.unfinished] == [(RUNS[1], "it hung")]
    assert [variant.name for variant in cell.variants] == ["before"]
    assert "1 of 2 runs finished (1 failed)" in invoke(status_command, path).stdout


def test_a_copy_of_a_run_counts_as_no_repetition(tmp_path: Path) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    extra = RUNS[0].replace("_1", "_9")
    shutil.copytree(path / "runs" / RUNS[0], path / "runs" / extra)
    manifest = path / "runs" / extra / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "run": extra, "seed": 9}))
    for read in (gather, load_runs):
        with pytest.raises(UserError, match=f"{extra} is no run of this study: plan.json has no"):
            read(Results(path))


@pytest.mark.parametrize(
    "change", [{"seed": 7}, {"topology": "mesh-8"}, {"variant": "after"}], ids=str
)
def test_a_run_that_is_not_as_it_was_planned_is_refused(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    manifest = path / "runs" / RUNS[0] / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | change))
    with pytest.raises(UserError, match="is no run of this study"):
        gather(Results(path))


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda left: (left / "manifest.json").write_text("{"), "its manifest cannot be read"),
        (lambda left: (left / "manifest.json").unlink(), "its manifest cannot be read"),
        (lambda left: left.rename(left.with_suffix(".running")), "numalab was killed"),
        (shutil.rmtree, "not run"),
    ],
    ids=["damaged", "absent", "killed", "not run"],
)
def test_a_run_that_left_no_manifest_is_listed(
    tmp_path: Path, spoil: Callable[[Path], object], reason: str
) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    spoil(leave(path, RUNS[1], ".failed", status="failed", reason="it hung"))
    assert [run.ending for run in gather(Results(path)).reports[0].unfinished] == [reason]


def test_a_run_that_is_under_way_is_no_failure(tmp_path: Path) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    leave(path, RUNS[1], ".running")
    with locked(path):
        study = gather(Results(path))
    assert [run.ending for run in study.reports[0].unfinished] == ["still running"]
    assert 'skipped="1"' in render_junit(study)


def test_an_error_of_this_process_is_the_reason_where_a_run_left_none(tmp_path: Path) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    shutil.rmtree(path / "runs" / RUNS[1])
    study = gather(Results(path), {RUNS[1]: "the host is full"})
    publish(study, Results(path))
    assert "the host is full" in (path / "index.html").read_text()
    assert 'errors="1"' in render_junit(study)


def test_a_manifest_without_a_status_is_no_success() -> None:
    about = stored_manifest(status=None, reason="")
    assert described(about).status is RunStatus.FAILED
    assert described(stored_manifest(reason="x" * 10**6)).reason == "x" * LONGEST_REASON


def test_a_run_says_what_it_lacks_but_for_its_placement() -> None:
    """The problems of its recording, and its notes; placement and timing have rows of their own."""
    recording = RecordingFacts(
        events=9, counts={"print": 9}, first_ns=1, last_ns=2, lost=0, gaps=2, unsound=0,
        unreadable=0, problems=("CPU 1: damaged",), notes=("the main buffer",), whole=False,
    )  # fmt: skip
    placed = "all 8 vCPUs share one thread"
    proof = replace(stored_manifest().proof or Proof((), (), ""), note=placed)
    run = described(stored_manifest(trace=recording, proof=proof, notes=(placed, "y" * 10**6)))
    missing = "events are missing, at 2 places; nobody knows how many"
    assert run.notes[:3] == ("CPU 1: damaged", missing, "the main buffer")
    assert [len(note) for note in run.notes[3:]] == [500]
    assert run.provenance.placement == placed


def test_claims_that_fail_are_on_the_first_screen_as_well(tmp_path: Path) -> None:
    """Beside five causes of failures in other cells, each wrapped as far as it can be."""
    path = copy_with_cells(tmp_path / "results", [f"hogs-{number}" for number in range(9)])
    for place, name in enumerate(planned_runs(path)[1:]):
        reason = "ghijklm"[place % 7] * 500
        leave(path, name, ".failed", status="failed", reason=reason)
    lines = report(path).stdout.splitlines()
    broken = "  ring-4, bound-hogs: after: hogs keep every allowed CPU busy: not judged (no run of"
    assert any(line.startswith(broken) for line in lines[:SCREEN])
    assert any(line.startswith("verdict") for line in lines[:SCREEN])
    markdown = report(path, "markdown").stdout.replace("\\", "")
    assert "**Not judged (no run of after has a value): after: hogs" in markdown
    assert "| FAILS: not judged (no run of after has a value)" in markdown.replace("**", "")
    junit = report(path, "junit").stdout
    assert "measured nothing (0 runs): not judged (no run of after has a value)" in junit


def test_a_verdict_counts_the_runs_that_were_planned(tmp_path: Path) -> None:
    path = copy_with_cells(tmp_path / "results", [])
    plan = json.loads((path / "plan.json").read_text())
    plan["runs"].append({**plan["runs"][1], "id": RUNS[1].replace("_1", "_2"), "seed": 2})
    (path / "plan.json").write_text(json.dumps(plan))
    (cell,) = gather(Results(path))
    assert cell.verdict.startswith("Seen in every finished run: ")
    assert cell.verdict.endswith("; 1 run gave no result.")
