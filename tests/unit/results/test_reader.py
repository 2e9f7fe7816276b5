"""Stored results as values: those of numalab, hostile ones, and damaged ones."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pydantic import ValidationError

from numalab.errors import UserError
from numalab.locks import locked
from numalab.places import project_dir
from numalab.report.build.study import gather
from numalab.results.archive import export_compact
from numalab.results.layout import Results
from numalab.results.manifest import EXECUTION, VARIED, Manifest, RunStatus
from numalab.results.plan import (
    BudgetRemark,
    Cell,
    Decided,
    RepetitionsRemark,
    StopReason,
    StoredPlan,
    TimeOverRemark,
    planned_run,
)
from numalab.results.reader import (
    load_all_events,
    load_domains,
    load_findings,
    load_manifest,
    load_plan,
    load_run,
    load_runs,
    load_study,
    load_timeline,
    load_unfinished,
)
from numalab.results.status import State, read_progress
from numalab.results.stored import is_plain
from numalab.run_dir import RunDir
from support.stored_run import stored_manifest

EXAMPLES = sorted(path.parent for path in project_dir().glob("reports/examples/*/changelog.txt"))
RUN = "ring-4_bound-hogs_after_1"


@pytest.fixture
def copied(tmp_path: Path) -> Results:
    """Return results as they are committed."""
    shutil.copytree(EXAMPLES[0].with_name("group-construction"), tmp_path / "results")
    return Results(tmp_path / "results")


def edit(path: Path, change: Callable[[Any], object]) -> None:
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_committed_run_is_read(path: Path) -> None:
    plan, runs = load_runs(Results(path))
    assert {run.id for run in runs} <= {run.id for run in plan.runs}
    assert all(run.manifest.status is RunStatus.OK for run in runs)
    assert all(run.measures for run in runs)


def test_reading_a_manifest_gives_what_was_written(copied: Results) -> None:
    for directory in copied.finished().values():
        stored = json.loads(directory.manifest.read_text())
        assert load_manifest(directory).table() == stored


@pytest.mark.parametrize("number", [1, 4, 6, 99])
def test_another_format_is_refused(copied: Results, number: int) -> None:
    edit(copied.plan, lambda plan: plan.update(format=number))
    edit(copied.run(RUN).manifest, lambda run: run.update(format=number))
    message = f"written by another numalab: format {number}, this one reads 5"
    with pytest.raises(UserError, match=message):
        load_plan(copied)
    with pytest.raises(UserError, match=message):
        load_manifest(copied.run(RUN))


def test_remarks_are_stored_as_what_they_say() -> None:
    remarks = (
        BudgetRemark(chosen=4, planned=24, seconds=12.0),
        TimeOverRemark(left=1),
        TimeOverRemark(left=0),
        RepetitionsRemark(
            measure="m",
            level=0.05,
            looks=4,
            precision=5.0,
            most=6,
            decided=(Decided(cell="ring-4, few", why=tuple(StopReason), runs=6),),
        ),
    )
    plan = StoredPlan(
        study="s", digest="d", path="s.toml", preset="", file={}, runs=(), remarks=remarks
    )
    assert StoredPlan.model_validate_json(plan.model_dump_json()) == plan
    assert [str(remark) for remark in remarks] == [
        "4 of 24 runs were estimated to fit into a budget of 12.0 s; each cell comes once before it"
        " is repeated",
        "the time was over before 1 run more could be done",
        "the time was over before all cells were decided",
        "repetitions are added until m shows a difference (p < 0.05 / 4, for 4 looks at most),"
        " or its 95 % interval lies within +-5 % of the mean before, or each variant has 6"
        " runs; ring-4, few: a difference was shown; its interval is about 0;"
        " all runs gave the same value; it could not be measured;"
        " numalab or a plug-in defined it otherwise between the runs; there is one variant;"
        " there are 6 runs of each variant",
    ]


def test_only_what_is_known_is_written() -> None:
    started = stored_manifest()
    assert "seconds" not in started.table()
    ended = started.but(seconds=1.5)
    assert ended.table()["seconds"] == 1.5
    assert Manifest.model_validate_json(json.dumps(ended.table())) == ended


def test_which_input_differs() -> None:
    run = stored_manifest()
    assert run.differs_from(run.but(seed=2, run="other")) == ""
    changed = run.but(tunables={**run.tunables, "kernel.numa_balancing": 0})
    assert run.differs_from(changed) == 'tunables ({}, {"kernel.numa_balancing": 0})'
    assert run.differs_from(run.but(tunables={"kernel.numa_balancing": 0}), but=VARIED) == ""
    assert run.differs_from(run.but(pages="2M")) == "pages (memfd, 2M)"
    image = run.image.model_copy(update={"digest": "x" * 99})
    assert run.differs_from(run.but(image=image)).endswith(f', {{"digest": "{"x" * 32}"}})')
    by_its_folder = run.image.model_copy(update={"digest": run.image.digest[:32]})
    assert run.differs_from(run.but(image=by_its_folder)) == ""


@pytest.mark.parametrize("key", EXECUTION)
def test_what_an_older_numalab_did_not_store_differs_from_nothing(key: str) -> None:
    timed = load_study(Results(EXAMPLES[0].with_name("what-balancing-gains")))[1][0].manifest
    timed = timed.but(metrics="0" * 32)
    stored = {name: value for name, value in timed.table().items() if name != key}
    older = Manifest.model_validate_json(json.dumps(stored))
    assert older.differs_from(timed) == timed.differs_from(older) == ""
    assert timed.differs_from(timed.but(**{key: None})).startswith(f"{EXECUTION[key]} (")


def test_the_name_of_a_run_is_made_of_its_cell() -> None:
    run = planned_run(Cell("ring-4", "few"), "after", 3)
    assert (run.id, run.cell) == ("ring-4_few_after_3", Cell("ring-4", "few"))


EVIL = [
    "../evil",
    "/etc",
    "a/b",
    ".",
    "..",
    "",
    "a\n",
    ".hidden",
    "a\x1b[31m",
    "x.running",
    "é" * 9,
]


@pytest.mark.parametrize("name", EVIL)
def test_no_name_of_a_stranger_leaves_its_folder(copied: Results, name: str) -> None:
    assert not is_plain(name)
    for place in (copied.run, copied.running, copied.failed, copied.interrupted, copied.cell):
        with pytest.raises(UserError, match="not a plain name"):
            place(name)
    for key in ("id", "topology", "workload", "variant"):
        edit(copied.plan, lambda plan, key=key: plan["runs"][0].update({key: name}))  # type: ignore[misc]
        with pytest.raises(UserError, match=r"plan\.json"):
            load_plan(copied)
    for path in (("run",), ("topology",), ("variant",), ("workload", "label")):
        directory = copied.run(RUN)
        before = directory.manifest.read_text()

        def rename(run: dict[str, Any], path: tuple[str, ...] = path) -> None:
            for key in path[:-1]:
                run = run[key]
            run[path[-1]] = name

        edit(directory.manifest, rename)
        with pytest.raises(UserError, match=r"manifest\.json"):
            load_run(directory)
        directory.manifest.write_text(before)


def test_a_run_in_another_ones_folder_is_damage(copied: Results) -> None:
    edit(copied.run(RUN).manifest, lambda run: run.update(run="ring-4_bound-hogs_after_2"))
    with pytest.raises(UserError, match="it is of the run ring-4_bound-hogs_after_2"):
        load_runs(copied)


@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "1e400", "9" * 5000, "NaN"])
@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("manifest.json", "seed"),
        ("manifest.json", "seconds"),
        ("manifest.json", "events"),
        ("measures.json", "value"),
        ("plan.json", "seed"),
    ],
)
def test_a_number_that_is_out_of_all_bounds(
    copied: Results, file: str, key: str, number: str
) -> None:
    path = copied.plan if file == "plan.json" else copied.run(RUN).path / file
    text = path.read_text()
    path.write_text(re.sub(rf'("{key}": )[0-9.]+', rf"\g<1>{number}", text))
    assert path.read_text() != text
    with pytest.raises(UserError, match=str(path)):
        load_runs(copied)


SPOILED = {
    "no column of numbers cpu": [pl.lit("x").alias("cpu")],
    "no column of numbers time_ns": [pl.col("time_ns").cast(pl.Float64)],
    "no column of texts event": [pl.lit(1).alias("event")],
}


@pytest.mark.parametrize("reason", SPOILED)
def test_events_of_other_columns_are_damage(copied: Results, reason: str) -> None:
    directory = copied.run(RUN)
    table = pl.read_parquet(directory.events)
    table.with_columns(SPOILED[reason]).write_parquet(directory.events)
    directory.timeline.unlink()
    with pytest.raises(UserError, match=reason):
        load_timeline(directory, [])


def test_events_may_lack_what_was_not_recorded(copied: Results) -> None:
    directory = copied.run(RUN)
    pl.read_parquet(directory.events).drop("next_pid", "next_comm").write_parquet(directory.events)
    directory.timeline.unlink()
    assert load_timeline(directory, []) is not None


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"matrices": 7}', "\udce4", "[" * 10_000])
def test_a_damaged_analysis(copied: Results, text: str) -> None:
    directory = copied.run(RUN)
    directory.analysis.write_text(text, encoding="utf-8", errors="surrogateescape")
    with pytest.raises(UserError, match=r"analysis\.json: a file of these results is damaged"):
        load_findings(directory)


@pytest.mark.parametrize("number", ["1" * 400, "-9223372036854775808", "1e308", "1e999", "NaN"])
def test_an_analysis_of_numbers_that_no_sum_has_room_for(copied: Results, number: str) -> None:
    directory = copied.run(RUN)
    text = directory.analysis.read_text()
    for key in ("moves", "length_ms"):
        directory.analysis.write_text(
            re.sub(rf'"{key}":[\d.]+', f'"{key}":{number}', text, count=1)
        )
        with pytest.raises(UserError, match="out of all bounds"):
            load_findings(directory)


def test_a_bug_of_ours_is_not_damage(copied: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("numalab.report.build.study.load_findings", buggy)
    from numalab.report.build.study import gather  # noqa: PLC0415 - after the bug

    with pytest.raises(KeyError, match="ours"):
        gather(copied)


def test_a_key_of_a_newer_numalab_is_passed_over(copied: Results) -> None:
    edit(copied.run(RUN).manifest, lambda run: run.update(quantum_ns=1000))
    assert load_run(copied.run(RUN)).id == RUN


def test_nothing_is_coerced(copied: Results) -> None:
    edit(copied.run(RUN).manifest, lambda run: run.update(seed="1"))
    with pytest.raises(UserError, match=r"damaged \(seed: "):
        load_run(copied.run(RUN))
    with pytest.raises(ValidationError):
        StoredPlan.model_validate_json('{"format": 5}')


def test_two_measures_of_one_name_are_damage(copied: Results) -> None:
    edit(copied.run(RUN).measures, lambda stored: stored.append({**stored[0], "value": 7}))
    with pytest.raises(UserError, match=r"measures\.json: .* is in it twice"):
        load_run(copied.run(RUN))


def test_what_there_is_not(tmp_path: Path) -> None:
    (tmp_path / "README.md").touch()
    with pytest.raises(UserError, match=r"README\.md: not a folder of results"):
        load_plan(Results(tmp_path / "README.md"))
    with pytest.raises(UserError, match=r"manifest\.json: no such file"):
        load_manifest(RunDir(tmp_path))


@pytest.mark.parametrize("kind", ["fifo", "device", "link"])
def test_what_is_no_file_is_not_read(copied: Results, tmp_path: Path, kind: str) -> None:
    """Neither waits for a pipe, nor reads a device or what a link leads to."""
    run = next(iter(copied.finished().values()))
    for path in (run.analysis, run.measures, run.events, run.timeline, run.domains):
        copy = tmp_path / path.name
        if path.exists():
            shutil.move(path, copy)
        match kind:
            case "fifo":
                os.mkfifo(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "link":
                path.symlink_to(copy if copy.exists() else run.manifest)
    reads: tuple[Callable[[], object], ...] = (
        lambda: load_run(run),
        lambda: load_findings(run),
        lambda: load_timeline(run, ()),
        lambda: load_all_events(run),
        lambda: load_domains(run),
    )
    for read in reads:
        with pytest.raises(UserError, match="damaged"):
            read()


@pytest.mark.parametrize("part", ["runs", "run", "out"])
def test_a_folder_of_results_that_is_a_link_is_not_followed(
    copied: Results, tmp_path: Path, part: str
) -> None:
    run = next(iter(copied.finished().values()))
    run.out.mkdir(exist_ok=True)
    folder = {"runs": run.path.parent, "run": run.path, "out": run.out}[part]
    shutil.move(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        load_runs(copied)


def test_a_finished_run_without_its_manifest_is_no_run_that_never_started(
    copied: Results, tmp_path: Path
) -> None:
    """It is a damaged copy: a run gets its final name after its manifest is written."""
    run = next(iter(copied.finished().values()))
    run.manifest.unlink()
    (state,) = (state for state in read_progress(copied).runs if state.run == run.path.name)
    reason = "its manifest cannot be read (a damaged copy?)"
    assert (state.state, state.text) == (State.FAILED, reason)
    (unfinished,) = gather(copied).unfinished
    assert (unfinished.status, unfinished.reason) == ("failed", reason)
    with pytest.raises(UserError, match=r"no manifest .*, or use --resume"):
        export_compact(copied, Results(tmp_path / "compact"))
    assert run.events.exists()


def test_a_run_that_finishes_meanwhile_is_not_one_without_a_result(
    copied: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, *earlier = copied.finished()
    rest = {name: copied.finished()[name] for name in earlier}
    monkeypatch.setattr(Results, "finished", lambda _: rest)
    assert run not in load_unfinished(copied, load_plan(copied))


def test_a_heartbeat_that_is_a_pipe_does_not_keep_status_waiting(copied: Results) -> None:
    run = next(iter(copied.finished()))
    running = copied.running(run)
    copied.run(run).path.rename(running.path)
    os.mkfifo(running.heartbeat)
    with locked(copied.path):
        states = {run.run: run for run in read_progress(copied).runs}
    assert states[run].text == "starting"
