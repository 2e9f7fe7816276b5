"""Doing runs again, and results as one file, also from somebody who means harm."""

import io
import re
import tarfile
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard

from numalab.campaign import build as build_module
from numalab.campaign.build import BuiltStudy
from numalab.campaign.execute import Schedule, TaskEvent, execute
from numalab.campaign.verify import Verification, compare_runs, verify
from numalab.cli.results import verify as verify_command
from numalab.errors import HostError, UserError
from numalab.files import read_json, write_json
from numalab.report.build.publish import publish
from numalab.report.build.study import gather
from numalab.results.archive import export_results, import_results
from numalab.results.layout import Results
from numalab.results.plan import StoredPlan
from numalab.results.reader import load_run
from support.example_results import RUNS, copy_example
from support.fake_executor import MATRIX, fake, ready
from support.one_command import invoke

SMALL = MATRIX.replace('["ring-4", "ring-2"]', '["ring-2"]').replace("[1, 2, 3]", "[1]")


def unwatched(_: Schedule) -> Callable[[TaskEvent], None]:
    return lambda event: None


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuiltStudy:
    """A study that has run, whose kernels and image need not be built again."""
    monkeypatch.setenv("NUMALAB_CACHE", str(tmp_path / "cache"))
    study = ready(tmp_path, SMALL)
    execute([study], 2, unwatched, run=fake)
    monkeypatch.setattr(build_module, "build_plan", lambda *_: study.builds)
    return study


def again(study: BuiltStudy, *runs: str) -> tuple[Verification, ...]:
    return verify(
        study.results, runs, jobs=1, on_progress=None, on_schedule=unwatched, run=fake
    )  # fmt: skip


def test_the_same_events_again(study: BuiltStudy) -> None:
    before = sorted(path.name for path in study.results.path.rglob("*"))
    reruns = again(study)
    assert [rerun.run for rerun in reruns] == [run.id for run in study.plan.runs]
    assert all(rerun.identical and rerun.differs == () for rerun in reruns)
    assert sorted(path.name for path in study.results.path.rglob("*")) == before


def test_what_differs_is_named(study: BuiltStudy) -> None:
    directory = study.results.run("ring-2_few_after_1")
    events = pl.read_parquet(directory.events)
    events.with_columns(pl.lit("sched_stick_numa").alias("event")).write_parquet(directory.events)
    record = read_json(directory.manifest)
    write_json(directory.manifest, {**record, "versions": {"qemu": "8.0.0"}})
    measures = read_json(directory.measures)
    write_json(directory.measures, [{**measures[0], "value": 99}, measures[1]])
    (rerun,) = again(study, "ring-2_few_after_1")
    assert not rerun.identical
    assert rerun.differs == ("QEMU: 8.0.0, now 7.2.0",)
    assert rerun.events == (
        "2 events, now 2; the first that differs is number 1:"
        " event 'sched_stick_numa', now 'sched_switch'"
    )
    assert rerun.measures == ("task_migrations",)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("tasks", lambda run: run["workload"].update(tasks=["x*"])),
        ("parameters", lambda run: run["workload"]["parameters"].update(x=99)),
        ("allowed CPUs", lambda run: run["workload"].update(allowed_cpus=[0])),
        ("pages", lambda run: run.update(pages="2M")),
        ("metrics of the workload", lambda run: run.update(metrics="0")),
        ("scheduler", lambda run: run.update(scheduler={
            "name": "s", "origin": "kernel", "version": "", "arguments": [], "files": {}})),
        ("", lambda run: run.pop("metrics")),
    ],
)  # fmt: skip
def test_every_input_that_differs_is_named(
    study: BuiltStudy, name: str, change: Callable[[dict[str, Any]], object]
) -> None:
    file = study.results.run("ring-2_few_after_1").manifest
    record = read_json(file)
    change(record)
    write_json(file, record)
    (rerun,) = again(study, "ring-2_few_after_1")
    assert [text.partition(": ")[0] for text in rerun.differs] == [name] * bool(name)


@pytest.mark.parametrize(
    "change", [{"unit": "apples"}, {"direction": "lower"}, {"definition": "Another.", "value": 7}]
)
def test_a_measure_that_means_something_else_is_listed_and_not_compared(
    study: BuiltStudy, change: dict[str, Any]
) -> None:
    file = study.results.run("ring-2_few_after_1").measures
    measures = read_json(file)
    write_json(file, [{**measures[0], **change}])
    (rerun,) = again(study, "ring-2_few_after_1")
    assert rerun.identical and rerun.measures == ()
    assert rerun.redefined == (measures[0]["name"],)
    assert rerun.not_stored == (measures[1]["name"],)


def test_what_only_the_repetition_has_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rerun = Verification(
        "r", "icount", not_stored=("a", "b", "c"), redefined=("d", "e"), other_findings=True
    )
    monkeypatch.setattr(verify_command, "connect", lambda _: None)
    monkeypatch.setattr(verify_command, "verify", lambda *_, **__: (rerun,))
    done = invoke(verify_command.command, "results")
    assert done.exit_code == 0
    assert "only the repetition has 3 more measures; --json names them" in done.stdout
    assert "not compared, another numalab defined them otherwise: d, e" in done.stdout
    assert "analysis.json differs; this decides nothing" in done.stdout


def test_of_a_copy_nothing_is_verified(tmp_path: Path) -> None:
    stored, copy = (Results(copy_example(tmp_path / name)) for name in ("stored", "copy"))
    first, second = (load_run(results.run(RUNS[0])) for results in (stored, copy))
    copied = compare_runs(first, {first.id: second}, {})
    assert (copied.identical, copied.error) == (
        False,
        "the output has a copy of it, and no repetition",
    )
    later = replace(second, manifest=second.manifest.but(started="2099-01-01T00:00:00+00:00"))
    repeated = compare_runs(first, {first.id: later}, {})
    assert repeated.identical and not repeated.other_findings
    other_run = stored.run(RUNS[1]).analysis
    stored.run(RUNS[0]).analysis.write_bytes(other_run.read_bytes())
    assert compare_runs(first, {first.id: later}, {}).other_findings


def test_an_image_that_was_used_by_its_folder_is_the_same(study: BuiltStudy) -> None:
    file = study.results.run("ring-2_few_after_1").manifest
    record = read_json(file)
    image = {**record["image"], "digest": record["image"]["digest"][:32]}
    write_json(file, {**record, "image": image})
    (rerun,) = again(study, "ring-2_few_after_1")
    assert rerun.identical and rerun.differs == ()


def test_a_measure_of_a_plugin_that_this_lab_lacks_is_no_difference(study: BuiltStudy) -> None:
    file = study.results.run("ring-2_few_after_1").measures
    measures = read_json(file)
    write_json(file, [*measures, {**measures[0], "name": "busiest_task_moves"}])
    (rerun,) = again(study, "ring-2_few_after_1")
    assert rerun.identical and rerun.not_measured == ("busiest_task_moves",)


def test_fewer_and_other_columns(study: BuiltStudy) -> None:
    first, second = (study.results.run(f"ring-2_few_{name}_1") for name in ("before", "after"))
    pl.read_parquet(first.events).head(1).write_parquet(first.events)
    pl.read_parquet(second.events).drop("event").write_parquet(second.events)
    reruns = again(study, "ring-2_few_before_1", "ring-2_few_after_1")
    assert [rerun.events for rerun in reruns] == ["1 events, now 2", "other columns: event"]


def test_a_run_that_cannot_be_done_again(
    study: BuiltStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*words: object, **options: object) -> tuple[object, ...]:
        return ()

    monkeypatch.setattr("numalab.campaign.verify.execute", broken)
    (rerun,) = again(study, "ring-2_few_after_1")
    assert (rerun.identical, rerun.error) == (False, "it was not done again")
    with pytest.raises(UserError, match=r"--run: no run 'x' \(valid: ring-2_few_before_1"):
        again(study, "x")


@pytest.mark.parametrize("differences", [[], ["node 1 has no memory"]])
def test_runs_whose_machine_was_another_are_done_again(
    study: BuiltStudy, monkeypatch: pytest.MonkeyPatch, differences: list[str]
) -> None:
    allowed: list[bool] = []

    def note(studies: Sequence[BuiltStudy], *_words: object, **_more: object) -> tuple[()]:
        allowed.extend(built.setting.allow_mismatch for built in studies)
        return ()

    record = study.results.run("ring-2_few_after_1").manifest
    write_json(record, {**read_json(record), "topology_differences": differences})
    monkeypatch.setattr("numalab.campaign.verify.execute", note)
    again(study)
    assert allowed == [bool(differences)]


def test_results_survive_the_way(study: BuiltStudy, tmp_path: Path) -> None:
    archive, twin = tmp_path / "a.tar.zst", tmp_path / "b.tar.zst"
    running = study.results.running("ring-2_many_after_1")
    running.path.mkdir()
    running.job_disk.write_text("x")
    study.results.run("ring-2_few_after_1").job_disk.write_text("x")
    (study.results.path / "link").symlink_to("/etc/passwd")
    count = export_results(study.results, archive)
    assert export_results(study.results, twin) == count
    assert archive.read_bytes() == twin.read_bytes()
    imported = import_results(archive, tmp_path / "there" / "results")
    names = {str(p.relative_to(imported.path)) for p in imported.path.rglob("*") if p.is_file()}
    assert len(names) == count
    assert "runs/ring-2_few_after_1/events.parquet" in names
    assert not any("job.img" in name or "running" in name or "link" in name for name in names)
    assert set(imported.finished()) == set(study.results.finished())
    with pytest.raises(UserError, match="is there already"):
        import_results(archive, imported.path)


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    path.write_bytes(zstandard.compress(raw.getvalue()))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


STORED = StoredPlan(study="s", digest="0", path="s.toml", preset="", file={}, runs=())
PLAN = (member("plan.json"), STORED.model_dump_json().encode())


@pytest.mark.parametrize(
    ("info", "message"),
    [
        (member("../evil"), "forbidden name"),
        (member("/etc/evil"), "forbidden name"),
        (member("runs/../../evil"), "forbidden name"),
        (member("runs/.hidden"), "forbidden name"),
        (member("runs/a.running/manifest.json"), "forbidden name"),
        (member("runs/a\x1b[31m"), "forbidden name"),
        (member("a/" * 20 + "b"), "forbidden name"),
        (member("plugins/evil.py"), "forbidden name"),
        (member("runs/a/out/kernel-configs/kernels.toml"), "forbidden name"),
        (member("runs/a/out/files/images/base/recipe.toml"), "forbidden name"),
        (member("runs/a/out/files/../../evil"), "forbidden name"),
        (member("runs/a/out/files/-rf"), "forbidden name"),
        (member("runs/a/out/files/a\x9b"), "forbidden name"),
        (member("runs/a/out/files/a\u202eb"), "forbidden name"),
        (member(f"runs/a/out/files/{'é' * 128}"), "forbidden name"),
        (member("runs/a b/out/files/c"), "forbidden name"),
        (member("runs/a/out/a b"), "forbidden name"),
        (member("link", tarfile.SYMTYPE, "/etc/passwd"), "a member that is no file"),
        (member("link", tarfile.LNKTYPE, "/etc/passwd"), "a member that is no file"),
        (member("device", tarfile.CHRTYPE), "a member that is no file"),
        (member("folder", tarfile.DIRTYPE), "a member that is no file"),
    ],
)
def test_an_archive_cannot_write_elsewhere(
    tmp_path: Path, info: tarfile.TarInfo, message: str
) -> None:
    archive = packed(tmp_path / "evil.tar.zst", PLAN, (info, b""))
    with pytest.raises(UserError, match=message) as caught:
        import_results(archive, tmp_path / "target" / "results")
    assert str(archive) in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert list((tmp_path / "target").iterdir()) == []


def test_what_is_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "target"
    archive = tmp_path / "a.tar.zst"
    with pytest.raises(UserError, match="cannot read: No such file"):
        import_results(archive, target)
    archive.write_bytes(b"not zstd")
    with pytest.raises(UserError, match="not an archive of results"):
        import_results(archive, target)
    whole = packed(archive, PLAN, (member("runs/x"), b"y" * 100_000)).read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="not an archive of results"):
        import_results(archive, target)
    with pytest.raises(UserError, match=r"^[^:]*\.zst: these are no results "):
        import_results(packed(archive, (member("x"), b"y")), target)
    with pytest.raises(UserError, match="format 9"):
        import_results(packed(archive, (member("plan.json"), b'{"format": 9}')), target)
    monkeypatch.setattr("numalab.results.archive.MOST_FILES", 1)
    with pytest.raises(UserError, match="more than 1 files"):
        import_results(packed(archive, PLAN, (member("x"), b"y")), target)
    monkeypatch.setattr("numalab.results.archive.LARGEST_FILE", 10)
    with pytest.raises(UserError, match="too large"):
        import_results(packed(archive, PLAN), target)
    with pytest.raises(UserError, match="these are no results"):
        export_results(Results(tmp_path), archive)
    assert not target.exists()


def test_a_damaged_archive_is_refused(study: BuiltStudy, tmp_path: Path) -> None:
    """A flipped bit may leave the compressed data valid: only the checksum shows it."""
    archive = tmp_path / "a.tar.zst"
    export_results(study.results, archive)
    whole = archive.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    for damaged in (bytes(flipped), whole + b"x" * 900, whole + whole):
        archive.write_bytes(damaged)
        with pytest.raises(UserError, match="not an archive of results"):
            import_results(archive, tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_pages_of_a_stranger_are_left_out(study: BuiltStudy, tmp_path: Path) -> None:
    archive, pages = tmp_path / "a.tar.zst", ("index.html", "changelog.txt", "report.json",
        "picture.png", "cells/ring-2_few/index.html", "cells/x/picture.png", "more.html",
        "runs", "overview/index.html")  # fmt: skip
    foreign = [(member(name), b"<script>alert(1)</script>") for name in pages]
    imported = import_results(packed(archive, *foreign, PLAN, (member("runs/a/x"), b"x")),
                           tmp_path / "there")  # fmt: skip
    files = {str(p.relative_to(imported.path)) for p in imported.path.rglob("*") if p.is_file()}
    assert files == {"plan.json", "runs/a/x"}


def test_a_report_is_the_same_here_and_there(tmp_path: Path) -> None:
    results = Results(copy_example(tmp_path / "here" / "results"))
    publish(gather(results), results)
    export_results(results, tmp_path / "a.tar.zst")
    imported = import_results(tmp_path / "a.tar.zst", tmp_path / "there" / "results")
    assert not imported.html.exists()
    publish(gather(imported), imported)
    for name in ("index.html", "changelog.txt", "report.json", "picture.png"):
        assert (imported.path / name).read_bytes() == (results.path / name).read_bytes(), name


def test_two_files_of_one_name(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.zst", PLAN, PLAN)
    with pytest.raises(UserError, match="holds a file twice"):
        import_results(archive, tmp_path / "target")


def test_a_plan_and_a_compact_form(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.zst", PLAN, (member("compact.parquet"), b"x"))
    why = r"a\.tar\.zst: holds plan.json and compact.parquet, of which only the first would be read"
    with pytest.raises(UserError, match=why):
        import_results(archive, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("names", [("a", "a/b"), ("a/b", "a"), ("a/b/c", "a/b"), ("a", "a/b/c")])
def test_a_file_that_is_a_folder(tmp_path: Path, names: tuple[str, str]) -> None:
    members = [(member(f"runs/{name}"), b"x") for name in names]
    archive = packed(tmp_path / "a.tar.zst", PLAN, *members)
    with pytest.raises(UserError, match="holds a file that is a folder"):
        import_results(archive, tmp_path / "target")
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_an_extended_header_takes_no_memory(tmp_path: Path, kind: bytes) -> None:
    """3 GiB of zeros are 100 KiB when packed; tarfile would read them whole."""
    info = member("x", kind)
    info.size = 3 << 30
    archive, zeros = tmp_path / "a.tar.zst", bytes(1 << 24)
    with archive.open("wb") as raw, zstandard.ZstdCompressor().stream_writer(raw) as packing:
        packing.write(info.tobuf(tarfile.GNU_FORMAT))
        for _ in range(4):
            packing.write(zeros)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match="a header of 3221225472 bytes"):
            import_results(archive, tmp_path / "target")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_long_name_of_an_honest_archive_is_only_refused(tmp_path: Path) -> None:
    archive = packed(tmp_path / "a.tar.zst", PLAN, (member("x" * 300), b"y"))
    with pytest.raises(UserError, match="forbidden name"):
        import_results(archive, tmp_path / "target")


def test_an_archive_larger_than_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numalab.results.archive.free_space", lambda _: 100)
    archive = packed(tmp_path / "a.tar.zst", PLAN, (member("x"), b"y" * 200))
    target = tmp_path / "target"
    message = f"{target} has no space for the files of {archive}"
    with pytest.raises(HostError, match=f"^{re.escape(message)}$"):
        import_results(archive, target)
    assert not target.exists()


def test_names_that_no_result_has_are_left_out(study: BuiltStudy, tmp_path: Path) -> None:
    (study.results.path / "caf\udce9").write_text("x")
    (study.results.path / "a\nb").write_text("x")
    export_results(study.results, tmp_path / "a.tar.zst")
    imported = import_results(tmp_path / "a.tar.zst", tmp_path / "there")
    assert {path.name for path in imported.path.iterdir()} == {"plan.json", "runs"}


def test_doing_a_strangers_runs_again_leaves_other_folders_alone(study: BuiltStudy) -> None:
    """A run's name was put into the path of a folder that is removed."""
    mine = study.results.path.parent / "mine.running"
    mine.mkdir()
    plan = read_json(study.results.plan)
    plan["runs"][0]["id"] = "../../../mine"
    write_json(study.results.plan, plan)
    with pytest.raises(UserError, match="not a plain name"):
        again(study)
    assert mine.is_dir()
