"""`numalab run`: what it checks, where results go, and what it ends with; runs are copied."""

import json
import os
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import Result

from numalab.api import Executor, ExecutorRequest, register_executor
from numalab.campaign import schedule
from numalab.campaign.build import BuiltStudy, Setting
from numalab.campaign.execute import Failure
from numalab.campaign.task import Ended
from numalab.cli.study import run as run_command
from numalab.errors import BuildError, HostError, LabError, UserError
from numalab.places import shipped_dir
from numalab.report.build.study import gather
from numalab.report.document import StudyResults
from numalab.results.layout import Results
from numalab.study.model import find_study
from numalab.study.plan import Plan
from support.example_results import RUNS, copy_example
from support.one_command import invoke

STUDY = "group-construction"


class Lab:
    """Puts copies in the place of guests; notes what was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        self.home = home
        self.fails: list[Ended] = []
        self.finishes = True
        self.asked: list[dict[str, Any]] = []
        self.runs: list[int] = []
        self.broken = False
        for name in ("studies", "topologies", "kernel-configs", "workloads", "images"):
            (home / name).symlink_to(shipped_dir() / name)
        monkeypatch.setenv("NUMALAB_HOME", str(home))
        monkeypatch.setenv("NUMALAB_CACHE", str(home / "cache"))
        monkeypatch.setattr(run_command, "connect", lambda _: None)
        monkeypatch.setattr(run_command, "build_study", self._build)
        monkeypatch.setattr(run_command, "execute", self._execute)
        monkeypatch.setattr(run_command, "publish", lambda *_: None)
        monkeypatch.setattr(run_command, "publish_overview", lambda results, page: page.touch())

    def _build(self, plan: Plan, results: Results, mode: str, **_: object) -> BuiltStudy:
        if self.broken:
            raise BuildError("debian-6.12 does not build")
        choice: Any = SimpleNamespace(mode=mode, reason="asked for")
        builds: Any = None
        return BuiltStudy(plan, builds, results, Setting(choice))

    def _execute(self, ready: Sequence[BuiltStudy], jobs: Any, _: Any, **more: Any) -> Any:
        self.asked.append({"jobs": jobs, **more})
        self.runs += [len(study.plan.runs) - len(study.left_out) for study in ready]
        for study in ready:
            shutil.rmtree(study.results.path)
            copy_example(study.results.path)
            if not self.finishes:
                shutil.rmtree(study.results.path / "runs")
        return tuple(Failure(s.plan.name, s.results, end) for s in ready for end in self.fails)

    def results(self) -> list[Path]:
        return sorted((self.home / "reports" / STUDY).glob("*"))


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    home = tmp_path / "home"
    home.mkdir()
    return Lab(monkeypatch, home)


def run(*words: object) -> Result:
    return invoke(run_command.command, *words)


def test_results_go_to_a_folder_of_this_moment_and_are_told(lab: Lab) -> None:
    done = run(STUDY, "--mode", "tcg")
    [folder] = lab.results()
    assert done.exit_code == 0
    assert f"results in {folder}" in done.stderr and "mode tcg: asked for" in done.stderr
    assert "Seen in every finished run: " in done.stdout
    assert f"{STUDY}: 2 of 6 runs finished\n  4 runs not run\n" in done.stderr
    assert f"page: {folder / 'index.html'}" in done.stdout.replace("\n", "")
    run(STUDY)
    assert len(lab.results()) == 2  # also within the same second


def test_an_unknown_executor_is_refused_before_anything_is_built(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_command, "build_study", lambda *_, **__: pytest.fail("was built"))
    with pytest.raises(UserError, match="no executor is called 'threads'"):
        run(STUDY, "--executor", "threads=4")
    assert lab.results() == []


def test_one_document_for_programs(lab: Lab) -> None:
    document = json.loads(run(STUDY, "--json").stdout)
    assert (document["study"], len(document["cells"])) == (STUDY, 1)


def test_a_claim_that_does_not_hold_ends_with_1(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuted(results: Any, errors: Any) -> StudyResults:
        study = gather(results, errors)
        [report] = study.reports
        claims = tuple(replace(claim, holds=False) for claim in report.claims)
        return replace(study, reports=(replace(report, claims=claims),))

    monkeypatch.setattr(run_command, "gather", refuted)
    assert run(STUDY).exit_code == 1


def test_a_failure_ends_with_its_own_code_though_others_gave_results(lab: Lab) -> None:
    lab.fails = [Ended("a", 1.0, "panicked", 4), Ended("b", 1.0, "full", 3)]
    assert run(STUDY).exit_code == 4


def test_where_no_run_finished_each_is_told_and_ci_reads_errors(lab: Lab, tmp_path: Path) -> None:
    lab.fails, lab.finishes = [Ended(RUNS[0], 1.0, "panicked", 4)], False
    junit, kept = tmp_path / "junit.xml", tmp_path / "kept"
    done = run(STUDY, "--junit", junit, "--artifacts", kept)
    assert done.exit_code == 4
    assert done.stderr.endswith(
        f"{STUDY}: 0 of 6 runs finished\n  run {RUNS[0]} failed: panicked\n  5 runs not run\n"
        "      ring-4_bound-hogs_after_1; ring-4_bound-hogs_before_2; and 3 more\n"
        "  2 required claims are not judged, as no run of their cells finished: before: no hog ever"
        " runs on node 3; after: hogs keep every allowed CPU busy\n"
    )
    assert 'errors="1"' in junit.read_text() and "panicked" in junit.read_text()
    assert "panicked" in (kept / "problems.txt").read_text()
    assert "0 of 6 runs finished" in done.stdout


def test_artifacts_in_place_of_results_are_refused_before_anything_is_built(lab: Lab) -> None:
    lab.broken = True
    out = lab.home / "out"
    for words in ((lab.home / "reports",), (out, "--output", out / STUDY)):
        with pytest.raises(UserError, match="holds these results; name another folder"):
            run(STUDY, "--artifacts", *words)
    assert lab.results() == []


def test_ci_reads_why_a_study_could_not_begin(lab: Lab, tmp_path: Path) -> None:
    lab.broken = True
    junit, kept = tmp_path / "junit.xml", tmp_path / "kept"
    file = lab.home / "ci" / "mine.toml"
    file.parent.mkdir()
    shutil.copyfile(find_study(STUDY), file)
    with pytest.raises(BuildError):
        run(file, "--junit", junit, "--artifacts", kept)
    why = "debian-6.12 does not build"
    assert (kept / "problems.txt").read_text() == f"mine could not be completed: {why}\n"
    for file in (junit, kept / "junit.xml"):
        (error,) = ET.parse(file).getroot().iter("error")
        assert error.get("message") == error.text == why
    assert "could not be completed" in (kept / "summary.md").read_text()
    (issue,) = json.loads((kept / "code-quality.json").read_text())
    assert issue["location"]["path"] == "ci/mine.toml"


def test_a_folder_in_which_nothing_could_begin_is_removed(lab: Lab) -> None:
    lab.broken = True
    with pytest.raises(BuildError):
        run(STUDY)
    assert lab.results() == []


def test_resuming_takes_the_newest_results_of_this_very_study(lab: Lab) -> None:
    with pytest.raises(UserError, match="there are no results to go on with"):
        run(STUDY, "--resume")
    parent = lab.home / "reports" / STUDY
    # Another question is the same study; another seed is not. A name may be from --output.
    names = ("2", "1", "3", "4")
    for began, (name, changes) in enumerate(
        zip(names, ({}, {"question": "?"}, {"seeds": [7]}, None), strict=True)
    ):
        plan = copy_example(parent / name) / "plan.json"
        table = json.loads(plan.read_text())
        changed = table | {"file": table["file"] | (changes or {})}
        plan.write_text("{" if changes is None else json.dumps(changed))
        os.utime(plan, (began, began))
    assert f"results in {parent / '1'}" in run(STUDY, "--resume").stderr
    for name in ("1", "2"):
        (parent / name / "plan.json").unlink()
    remedy = "the results 3 differ from the study in seeds, and are kept; start anew"
    with pytest.raises(UserError, match=remedy):
        run(STUDY, "--resume")


def test_several_studies_get_a_folder_each_and_a_page_over_all(lab: Lab, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text((shipped_dir() / "studies" / f"{STUDY}.toml").read_text())
    done = run(STUDY, other, "--output", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        STUDY,
        "index.html",
        "other",
    ]
    assert done.stderr.count("results in ") == 2 and "page: " in done.stderr
    assert len(json.loads(run(STUDY, other, "--output", tmp_path / "more", "--json").stdout)) == 2


def test_two_studies_of_one_name_are_refused_before_anything_is_built(
    lab: Lab, tmp_path: Path
) -> None:
    lab.broken = True
    other = tmp_path / f"{STUDY}.toml"
    other.write_text((shipped_dir() / "studies" / f"{STUDY}.toml").read_text())
    with pytest.raises(UserError, match="two studies have this name"):
        run(STUDY, other)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget", "soon"), "--budget: not a time: 'soon'"),
        (("--until-significant", "no-such"), "--until-significant: no measure is called"),
        (("--preset", "no-such"), "no-such"),
    ],
)
def test_a_wrong_word_is_named_before_anything_is_built(
    words: tuple[str, str], said: str, lab: Lab
) -> None:
    lab.broken = True
    with pytest.raises(UserError, match=said):
        run(STUDY, *words)
    assert not (lab.home / "reports").exists()


def test_what_was_asked_for_reaches_the_runs(lab: Lab) -> None:
    run(
        STUDY, "--jobs", 3, "--fail-fast", "--until-significant", "task_migrations", "--max-runs", 5
    )
    [asked] = lab.asked
    assert (asked["jobs"], asked["fail_fast"], asked["executor"]) == (3, True, None)
    assert (asked["rule"].measure, asked["rule"].most) == ("task_migrations", 5)
    assert asked["deadline"] == float("inf")


def test_a_budget_leaves_the_runs_that_fit_and_a_deadline(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(STUDY)
    monkeypatch.setattr(schedule, "make_tasks", tasks_of)
    monkeypatch.setattr(schedule, "cost_of", lambda task, _: SimpleNamespace(seconds=100.0))
    done = run(STUDY, "--budget", "300s", "--jobs", "1")
    whole, fitting = lab.runs
    assert fitting == 2 < whole
    assert f"{STUDY}: 2 of {whole} runs are done or fit into the budget" in done.stderr
    assert lab.asked[1]["deadline"] < float("inf")


@pytest.mark.usefixtures("without_plugins")
@pytest.mark.parametrize("refused", ["budget", "results", "resume", "executor"])
@pytest.mark.parametrize("several", [False, True])
def test_ci_reads_why_runs_could_not_begin(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, refused: str, *, several: bool
) -> None:
    @register_executor("silent")
    def silent(_: ExecutorRequest) -> Executor:
        raise HostError("no scheduler answers")

    def held(*_: Any, **__: Any) -> None:
        raise UserError("another numalab holds these results")

    junit = lab.home / "junit.xml"
    junit.write_text("<stale/>")
    monkeypatch.setattr(schedule, "make_tasks", tasks_of)
    monkeypatch.setattr(schedule, "cost_of", lambda task, _: SimpleNamespace(seconds=100.0))
    monkeypatch.setattr(run_command, "execute", held)
    words = {
        "budget": ("--budget", "9s", "--jobs", "1"),
        "resume": ("--resume",),
        "executor": ("--executor", "silent"),
    }
    studies = [STUDY]
    if several:
        other = lab.home / "second.toml"
        other.write_text((shipped_dir() / "studies" / f"{STUDY}.toml").read_text())
        studies.append(str(other))
    with pytest.raises(LabError) as raised:
        run(*studies, "--junit", junit, *words.get(refused, ()))
    (error,) = ET.parse(junit).getroot().iter("error")
    assert error.text == str(raised.value)
    names = f"{STUDY}, second" if several and refused != "resume" else STUDY
    assert ET.parse(junit).getroot().get("name") == names
    assert lab.results() == []


def tasks_of(study: BuiltStudy) -> list[Any]:
    return [SimpleNamespace(run=run) for run in study.plan.runs]
