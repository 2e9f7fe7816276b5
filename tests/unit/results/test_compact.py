"""The compact form of results: written, read like whole results, and refused when hostile."""

import io
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import zstandard
from typer.testing import CliRunner

from numalab.cli.main import application
from numalab.cli.results import export as export_command
from numalab.errors import HostError, UserError
from numalab.places import project_dir
from numalab.reach.merge import merged
from numalab.reach.model import CodeChange, LineReach, LineState, RunReach
from numalab.report.build.study import gather
from numalab.report.formats.changelog import render_changelog
from numalab.report.formats.perfetto import PerfettoFormat
from numalab.report.page.cell_page import render_html
from numalab.results.archive import export_compact, export_results, import_results
from numalab.results.compact import COLUMNS
from numalab.results.compare import compare_results
from numalab.results.layout import Results
from numalab.results.query import catalogue, query
from numalab.results.reader import load_plan, load_runs
from numalab.results.status import State, read_progress
from numalab.results.stored import StoredMeasure
from support.example_results import RUNS, copy_example
from support.unfinished_results import copy_with_cells, leave, planned_runs

WHOLE = Results(project_dir() / "reports" / "examples" / "group-construction")
POST = Results(project_dir() / "reports" / "examples" / "group-construction-post")
RUN = RUNS[0]


@pytest.fixture
def compact(tmp_path: Path) -> Results:
    results = Results(tmp_path / "compact")
    assert export_compact(WHOLE, results) == 6
    return results


def test_it_holds_the_plan_and_all_manifests_and_measures(compact: Results) -> None:
    plan, runs = load_runs(compact)
    whole_plan, whole = load_runs(WHOLE)
    assert plan == whole_plan
    assert [run.manifest for run in runs] == [run.manifest for run in whole]
    for run, stored in zip(runs, whole, strict=True):
        values = {m.name: StoredMeasure.of(m).model_dump() for m in run.measures.values()}
        of_file = {row["name"]: row for row in json.loads(stored.directory.measures.read_text())}
        # Which part of a CPU time is the kernel's cannot be seen in mode icount.
        for name in ("user_time", "system_time"):
            assert of_file[name]["value"] > 0 and values[name]["value"] is None
            of_file[name]["value"] = None
        assert (list(values), values) == (list(of_file), of_file)


def test_the_same_results_give_the_same_bytes(compact: Results, tmp_path: Path) -> None:
    again = Results(tmp_path / "again")
    export_compact(compact, again)
    assert again.compact.read_bytes() == compact.compact.read_bytes()


def test_its_report_has_the_same_figures_and_names_the_command_for_the_rest(
    compact: Results,
) -> None:
    study = gather(compact)
    assert render_changelog(study) == render_changelog(gather(WHOLE))
    (report,) = study
    command = f"numalab verify {compact.path} --output FOLDER"
    assert (report.recreate, report.timelines, report.sched_domains, report.findings) == (
        command, (), (), ()
    )  # fmt: skip
    (whole,) = gather(WHOLE)
    left_out = {"sched_domains": (), "timelines": (), "findings": (), "recreate": command}
    assert report == replace(whole, **left_out)  # type: ignore[arg-type]
    assert command in render_html(report)


def test_the_terminal_names_the_command(compact: Results) -> None:
    printed = CliRunner().invoke(application("report"), ["report", str(compact.path)]).output
    assert "--output FOLDER" in " ".join(printed.split())


def test_a_trace_for_perfetto_names_the_command(compact: Results) -> None:
    with pytest.raises(UserError, match=r"numalab verify .*, if .* has sched:sched_switch"):
        PerfettoFormat().write(gather(compact), compact)


def test_the_command_writes_the_table_and_the_changelog(tmp_path: Path) -> None:
    target = Results(tmp_path / "compact")
    words = ["export", "--compact", str(WHOLE.path), str(target.path)]
    assert CliRunner().invoke(application("export"), words).exit_code == 0
    assert sorted(target.path.iterdir()) == [target.changelog, target.compact]
    assert target.changelog.read_text() == WHOLE.changelog.read_text()
    with pytest.raises(UserError, match="exists already"):
        export_compact(WHOLE, target)


def test_an_interrupt_while_the_changelog_is_written_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is left would refuse the repetition."""

    def interrupted(path: Path, text: str) -> None:
        raise KeyboardInterrupt

    target = tmp_path / "compact"
    words = ["export", "--compact", str(WHOLE.path), str(target)]
    with monkeypatch.context() as patched:
        patched.setattr(export_command, "write_text", interrupted)
        CliRunner().invoke(application("export"), words)
        assert not target.exists()
    assert CliRunner().invoke(application("export"), words).exit_code == 0


def test_what_is_stored_of_a_patch_goes_with_every_form(tmp_path: Path) -> None:
    stored = Results(copy_example(tmp_path / "stored"))
    stored.verdict.write_text("verdict    REGRESSION\n")
    stored.hunt_reach.write_text(merged([("hunt", ran(0))]).model_dump_json())
    lost = planned_runs(stored.path)[-1]
    leave(stored.path, lost, ".failed", status="lost", cause="guest", reason="it panicked")
    for place, times in ((stored.run(RUN), 5), (stored.failed(lost), 7)):
        place.reach.write_text(ran(times).model_dump_json())
    forms = every_form(stored, tmp_path)
    for results in (stored, *forms):
        study = gather(results)
        assert study.verdict == gather(stored).verdict != ""
        assert study.reach == gather(stored).reach
        assert study.reach is not None and study.reach.patched is not None
        assert (study.reach.patched.runs, study.reach.patched.lines[0].executions) == (3, 12)


def every_form(stored: Results, folder: Path) -> list[Results]:
    """Return results that went through an archive, the compact form, and both."""
    forms = []
    compact, again = Results(folder / "compact"), Results(folder / "again")
    export_compact(stored, compact)
    export_compact(compact, again)
    for number, results in enumerate((stored, again)):
        export_results(results, folder / f"{number}.tar.zst")
        forms.append(import_results(folder / f"{number}.tar.zst", folder / f"imported{number}"))
    return [compact, again, *forms]


def ran(times: int) -> RunReach:
    """Return the reach of a run in which the changed line ran so often."""
    state = LineState.REACHED if times else LineState.NOT_REACHED
    line = LineReach(file="f.c", number=1, kind="added", text="x", state=state, executions=times)
    return RunReach(series="s", kernel="k", side="patched", code=CodeChange.LINES, lines=(line,))


def test_a_compact_form_without_the_counts_of_its_runs_has_no_reach(compact: Results) -> None:
    # An older numalab copied the counts of the hunt alone: they do not say that no run had any.
    compact.hunt_reach.write_text(merged([("hunt", ran(0))]).model_dump_json())
    assert gather(compact).reach is None


def test_a_compact_form_that_cannot_be_written_leaves_no_folder(tmp_path: Path) -> None:
    stored, target = Results(copy_example(tmp_path / "stored")), Results(tmp_path / "compact")
    stored.verdict.symlink_to(stored.plan)
    with pytest.raises(HostError, match=r"cannot write .*compact: "):
        export_compact(stored, target)
    assert not target.path.exists()
    stored.verdict.unlink()
    assert export_compact(stored, target) == 2


def test_status_query_and_compare_read_it(compact: Results) -> None:
    assert {run.state for run in read_progress(compact).runs} == {State.DONE}
    sql = "SELECT run, measure, value FROM measures ORDER BY run, measure"
    assert query([catalogue(compact)], sql).equals(query([catalogue(WHOLE)], sql))
    assert not compact.runs_table.exists()
    versus = compare_results(WHOLE, compact)
    assert versus.whole and not versus.worse


def test_an_archive_of_it(compact: Results, tmp_path: Path) -> None:
    export_results(compact, tmp_path / "a.tar.zst")
    imported = import_results(tmp_path / "a.tar.zst", tmp_path / "imported")
    assert load_runs(imported)[1][0].measures == load_runs(compact)[1][0].measures


def test_an_archive_has_no_compact_form_that_lies_beside_a_plan(
    compact: Results, tmp_path: Path
) -> None:
    results = Results(copy_example(tmp_path / "results"))
    results.compact.write_bytes(compact.compact.read_bytes())
    export_results(results, tmp_path / "a.tar.zst")
    imported = import_results(tmp_path / "a.tar.zst", tmp_path / "imported")
    assert load_runs(imported)[1] and not imported.compact.exists()


def test_runs_without_result_are_left_out(tmp_path: Path) -> None:
    whole, compact = Results(copy_example(tmp_path / "whole")), Results(tmp_path / "compact")
    assert export_compact(whole, compact) == 2
    states = {run.run: run.state for run in read_progress(compact).runs}
    assert [run for run, state in states.items() if state is State.DONE] == sorted(RUNS)[::-1]
    shutil.rmtree(whole.path / "runs")
    with pytest.raises(UserError, match="0 measures"):
        export_compact(whole, Results(tmp_path / "empty"))


@pytest.fixture
def failed(tmp_path: Path) -> Results:
    """Results of five runs: one finished, one failed, one was lost, one interrupted."""
    results = Results(copy_with_cells(tmp_path / "failed", ["hogs", "other"]))
    names = planned_runs(results.path)
    leave(results.path, names[1], ".failed", status="failed", reason="it exited with status 3")
    leave(results.path, names[2], ".failed", status="lost", cause="guest", reason="it panicked")
    leave(results.path, names[3], ".interrupted", status="interrupted", reason="stopped")
    (results.failed(names[1]).out).mkdir()
    (results.failed(names[1]).stdout).write_text("large")
    return results


def reasons(results: Results) -> list[tuple[str, str, str, float | None]]:
    study = gather(results)
    runs = [run for report in study.reports for run in report.runs]
    runs += [run for cell in study.unreported for run in cell.runs]
    return [(run.id, str(run.status), run.reason, run.seconds) for run in runs]


def test_what_failed_is_told_by_every_form_of_the_results(failed: Results, tmp_path: Path) -> None:
    expected = reasons(failed)
    assert [status for _, status, _, _ in expected].count("None") == 2
    assert any(reason == "it panicked" for _, _, reason, _ in expected)
    compact, archive = Results(tmp_path / "compact"), tmp_path / "a.tar.zst"
    assert export_compact(failed, compact) == 1
    again = Results(tmp_path / "again")
    export_compact(compact, again)
    export_results(failed, archive)
    imported = import_results(archive, tmp_path / "imported")
    assert not imported.failed(planned_runs(failed.path)[1]).stdout.exists()
    states = [run.state for run in read_progress(failed).runs]
    for results in (compact, again, imported):
        assert reasons(results) == expected
        assert [run.state for run in read_progress(results).runs] == states
        assert [run.id for run in load_runs(results)[1]] == [planned_runs(failed.path)[0]]


def test_a_failed_run_without_a_manifest_is_not_made_one_that_never_ran(
    failed: Results, tmp_path: Path
) -> None:
    manifest = failed.failed(planned_runs(failed.path)[1]).manifest
    manifest.write_bytes(manifest.read_bytes()[:300])
    with pytest.raises(UserError, match=r"failed/manifest\.json: .* is damaged"):
        export_compact(failed, Results(tmp_path / "compact"))
    manifest.unlink()
    with pytest.raises(UserError, match=r"\.failed: no manifest .* remove this folder"):
        export_compact(failed, Results(tmp_path / "compact"))


def test_the_manifest_of_a_failed_run_is_checked(failed: Results, tmp_path: Path) -> None:
    compact = Results(tmp_path / "compact")
    export_compact(failed, compact)
    table = pl.read_parquet(compact.compact)
    last = pl.int_range(pl.len()) == pl.len() - 1
    text = table["manifest"][-1].replace("interrupted", "gone")
    for reason, column, value in (("no name", "run", None), ("status", "manifest", text)):
        new = pl.when(last).then(pl.lit(value, pl.String)).otherwise(pl.col(column))
        spoiled = table.with_columns(new.alias(column))
        spoiled.write_parquet(compact.compact)
        with pytest.raises(UserError, match=reason):
            gather(compact)


@pytest.mark.parametrize(
    "name",
    ["runs/a.failed/measures.json", "runs/.failed/manifest.json", "a.failed/manifest.json",
     "runs/a.running/manifest.json", "runs/a.failed/out/manifest.json"],
)  # fmt: skip
def test_an_archive_has_no_other_file_of_a_failed_run(tmp_path: Path, name: str) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    archive = tmp_path / "a.tar.zst"
    archive.write_bytes(zstandard.compress(raw.getvalue()))
    with pytest.raises(UserError, match="forbidden name"):
        import_results(archive, tmp_path / "imported")


def cut(column: str, value: object) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda table: table.with_columns(pl.lit(value, COLUMNS[column]).alias(column))


SPOILED: dict[str, Callable[[pl.DataFrame], pl.DataFrame]] = {
    "no plan": cut("plan", None),
    "Field required": cut("plan", "{}"),
    "no name or no manifest": cut("manifest", None),
    "format: ": cut("manifest", "{}"),
    "is of the run": lambda table: table.with_columns(run=pl.col("run") + "x"),
    "rows of a run are not together": lambda table: pl.concat([table, table]),
    "other columns": lambda table: table.drop("source"),
    "direction": cut("direction", "up"),
    "0.name": cut("measure", None),
    "out of all bounds": cut("value", float("inf")),
    "not a valid SourceKind": cut("source", "hearsay"),
    "0.unit": cut("unit", None),
}


@pytest.mark.parametrize("reason", SPOILED)
def test_a_damaged_table_is_one_message(compact: Results, reason: str) -> None:
    table = pl.read_parquet(compact.compact)
    if reason == "out of all bounds":
        table = table.with_columns(integer=pl.lit(None, pl.Int64))
    SPOILED[reason](table).write_parquet(compact.compact)
    with pytest.raises(UserError, match=reason) as caught:
        load_runs(compact)
    assert str(compact.compact) in str(caught.value)


def test_another_format_is_refused(compact: Results) -> None:
    table = pl.read_parquet(compact.compact)
    older = pl.col("manifest").str.replace('"format": 5', '"format": 4', literal=True)
    table.with_columns(older).write_parquet(compact.compact)
    with pytest.raises(UserError, match="format 4, this one reads 5"):
        load_runs(compact)
    assert load_plan(compact).study == "group-construction"


def test_the_examples_take_few_bytes() -> None:
    examples = project_dir() / "reports" / "examples"
    assert sum(path.stat().st_size for path in examples.rglob("*") if path.is_file()) < 8 << 20
    assert POST.is_compact and not WHOLE.is_compact
