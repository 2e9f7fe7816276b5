"""`numalab report` on a copy of the committed example."""

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import Result

import numalab
from numalab.cli.results import report as report_command
from numalab.cli.results.report import command
from numalab.errors import HostError, UserError
from numalab.places import project_dir
from numalab.reach.merge import merged
from numalab.reach.model import (
    BranchReach,
    CodeChange,
    FunctionReach,
    LineReach,
    LineState,
    RunReach,
)
from numalab.report.build.publish import publish
from numalab.report.build.study import gather
from numalab.report.document import StudyResults
from numalab.report.formats.format import FORMATS
from numalab.results.layout import Results
from support.example_results import RUNS, copy_example
from support.one_command import invoke
from support.other_user import NO_RIGHTS, as_user, may_change_user

EXAMPLE = project_dir() / "reports" / "examples" / "group-construction"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "results"))


def report(*words: object) -> Result:
    return invoke(command, *words)


def test_perfetto_traces_lie_beside_the_measures_of_the_runs_drawn(copied: Path) -> None:
    lines = report(copied, "--format", "perfetto").stdout.split()
    assert [Path(line).parent.name for line in lines] == [
        "ring-4_bound-hogs_before_1",
        "ring-4_bound-hogs_after_1",
    ]
    for line in lines:
        assert Path(line).stat().st_size > 10_000
        assert (Path(line).parent / "measures.json").exists()


def test_one_overview_over_two_results(copied: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(copied, tmp_path / "other one"))
    page = tmp_path / "overview.html"
    done = report(copied, other, "--overview", page)
    assert done.stdout.count("page: ") == 2
    text = page.read_text("utf-8")
    assert 'href="results/index.html"' in text
    assert 'href="other%20one/index.html"' in text


def test_a_format_that_is_not_there_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no format is called 'pdf'") as caught:
        report(tmp_path / "nothing", "--format", "pdf")
    assert all(form in str(caught.value) for form in FORMATS.built_in())


def test_several_results_have_no_single_text(copied: Path) -> None:
    with pytest.raises(UserError, match="--format mmtests prints one result"):
        report(copied, copied.with_name("other"), "--format", "mmtests")


def test_results_that_are_named_twice_are_one(copied: Path, tmp_path: Path) -> None:
    link, page = tmp_path / "latest", tmp_path / "overview.html"
    link.symlink_to(copied, target_is_directory=True)
    done = report(link, copied, copied, "--overview", page)
    assert done.stdout.count("page: ") == 1
    assert page.read_text("utf-8").count('href="results/index.html"') == 1
    assert 'href="latest/' not in page.read_text("utf-8")


@pytest.mark.skipif(not may_change_user(), reason=NO_RIGHTS)
def test_results_that_may_not_be_written_are_reported_without_their_files(tmp_path: Path) -> None:
    results = copy_example(tmp_path / "results")
    code = "from numalab.cli.entry import main; main()"
    env = {"PYTHONPATH": str(Path(numalab.__file__).parents[1])}
    mounts = f"mount --bind {results} {results}; mount -o remount,bind,ro {results}"
    for form in ("table", "json"):
        words = (sys.executable, "-c", code, "report", results, "--format", form)
        done = as_user(0, *words, env=env, mounts=mounts)
        assert done.returncode == 0, done.stderr
        assert "warning: the files of the report are not made again: cannot write" in done.stderr
        assert "bound-hogs" in done.stdout
        assert "page: " not in done.stdout
        assert not Results(results).html.exists()
    words = (sys.executable, "-c", code, "report", results, "--format", "html")
    done = as_user(0, *words, env=env, mounts=mounts)
    assert done.returncode == HostError.exit_code, done.stderr


def test_a_page_that_could_not_be_written_is_not_named(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An old page has other figures."""
    other, page = copy_example(tmp_path / "other"), tmp_path / "overview.html"
    report(copied)

    def publish_one(study: StudyResults, results: Results) -> None:
        if results.path == copied:
            raise HostError("cannot write")
        publish(study, results)

    monkeypatch.setattr(report_command, "publish", publish_one)
    nothing_allowed = SimpleNamespace(access=lambda *_: False, W_OK=os.W_OK)
    monkeypatch.setattr(report_command, "os", nothing_allowed)
    done = report(copied, other, "--overview", page)
    assert done.stdout.count("page: ") == 1
    assert f"page: {other}" in done.stdout
    assert 'href="other/index.html"' in page.read_text("utf-8")
    assert "results/index.html" not in page.read_text("utf-8")
    with pytest.raises(HostError, match="cannot write"):
        report(copied, "--format", "html")


def test_a_report_whose_files_cannot_be_written_for_another_reason_fails(copied: Path) -> None:
    Results(copied).changelog.unlink()
    Results(copied).changelog.mkdir()
    with pytest.raises(HostError, match="cannot write"):
        report(copied)


PLUGIN = """
from numalab.api import StudyResults, register_format

@register_format("verdicts")
def verdicts(study: StudyResults) -> str:
    return "".join(f"{report.verdict}\\n" for report in study.reports)
"""


def test_a_plug_in_adds_a_format_with_one_file(
    copied: Path, monkeypatch: pytest.MonkeyPatch, without_plugins: None
) -> None:
    lab = copied.with_name("lab")
    (lab / "plugins").mkdir(parents=True)
    (lab / "plugins" / "verdicts.py").write_text(PLUGIN)
    monkeypatch.setenv("NUMALAB_PATH", str(lab))
    assert report(copied, "--format", "verdicts").stdout.startswith("Seen in every run")


def test_verdict_on_a_patch_comes_first(copied: Path) -> None:
    (copied / "verdict.txt").write_text("verdict    no \x1b[31mchange found\n")
    text = report(copied).stdout
    assert text.startswith("verdict    no ")
    assert "\x1b" not in text
    assert "The tables below test each cell alone" in text


def test_executions_in_a_hunt_are_part_of_the_patch_s_reach(copied: Path) -> None:
    line = LineReach(
        file="f.c",
        number=1,
        kind="added",
        text="x",
        state=LineState.REACHED,
        executions=3,
    )
    hunted = RunReach(series="s", kernel="k", side="patched", code=CodeChange.LINES, lines=(line,))
    results = Results(copied)
    results.hunt_reach.write_text(merged([("hunt", hunted)]).model_dump_json())
    reach = gather(results).reach
    assert reach is not None and reach.patched is not None
    assert reach.patched.lines[0].executions == 3
    assert reach.patched.lines[0].loads == ("hunt",)
    # A file that is cut is no count of 0.
    for path in (results.hunt_reach, results.run(RUNS[0]).reach, results.failed(RUNS[1]).reach):
        path.parent.mkdir(exist_ok=True)
        path.write_text(hunted.model_dump_json()[:100])
        with pytest.raises(UserError, match=f"{path.name}: a file of these results is damaged"):
            gather(results)
        path.unlink()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"executions":3', f'"executions":{10**400}'),
        ('"taken":3', f'"taken":{10**400}'),
        ('"executions":2', f'"executions":{10**400}'),
        ('"runs":1', '"runs":0'),
        ('"cpus":[]', '"cpus":[-1]'),
    ],
)
def test_counts_that_no_run_has_are_damage(copied: Path, old: str, new: str) -> None:
    branch = BranchReach(taken=3, taken_line=1, not_taken=0, not_taken_line=1)
    line = LineReach(
        file="f.c", number=1, kind="added", text="x", state=LineState.REACHED,
        executions=3, branches=(branch,),
    )  # fmt: skip
    function = FunctionReach(name="f", file="f.c", executions=2)
    code = CodeChange.LINES
    reach = RunReach(
        series="s", kernel="k", side="patched", code=code, lines=(line,), functions=(function,)
    )
    path = Results(copied).run(RUNS[0]).reach
    path.write_text(reach.model_dump_json())
    assert gather(Results(copied)).reach is not None
    path.write_text(reach.model_dump_json().replace(old, new, 1))
    with pytest.raises(UserError, match=r"reach\.json: a file of these results is damaged"):
        gather(Results(copied))
