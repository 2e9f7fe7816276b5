"""What is written beside results: never over one of their files, and only what is theirs."""

from pathlib import Path, PurePath

import pytest

from numalab.cli.results import export, report
from numalab.errors import UserError, shown
from numalab.results.archive import export_results, import_results, pack_folder, unpack_folder
from numalab.results.layout import Results, is_of_results
from support.example_results import copy_example
from support.one_command import invoke

RUN = "runs/ring-4_bound-hogs_after_1"


@pytest.fixture
def stored(tmp_path: Path) -> Results:
    return Results(copy_example(tmp_path / "results"))


@pytest.mark.parametrize(
    "place", ["plan.json", "index.html", f"{RUN}/events.parquet", f"{RUN}/out/dmesg.txt"]
)
def test_a_file_of_results_is_not_overwritten(stored: Results, tmp_path: Path, place: str) -> None:
    target = stored.path / place
    before = target.read_bytes() if target.exists() else None
    linked = tmp_path / "link"
    linked.symlink_to(stored.path)
    for path in (target, linked / place, stored.path / "runs" / ".." / place):
        with pytest.raises(UserError, match=r"TARGET names a file of results"):
            invoke(export.command, stored.path, path)
        with pytest.raises(UserError, match=r"--overview names a file of results"):
            invoke(report.command, stored.path, "--overview", path)
    assert (target.read_bytes() if target.exists() else None) == before


def test_other_files_beside_results_are_written(stored: Results) -> None:
    for name in ("a.tar.zst", "overview.html"):
        assert not is_of_results(PurePath(name))
    assert invoke(export.command, stored.path, stored.path / "a.tar.zst").exit_code == 0
    overview = stored.path / "overview.html"
    assert invoke(report.command, stored.path, "--overview", overview).exit_code == 0
    assert overview.exists()


def test_a_file_that_cannot_be_read_is_named_and_not_the_archive(
    stored: Results, tmp_path: Path
) -> None:
    measures = stored.path / RUN / "measures.json"

    def remove(name: str) -> None:
        if stored.path / name == measures:
            measures.unlink()

    with pytest.raises(UserError, match=r"measures\.json: cannot read: No such file"):
        export_results(stored, tmp_path / "a.tar.zst", remove)
    assert not (tmp_path / "a.tar.zst").exists()


def test_an_archive_has_only_what_numalab_wrote(stored: Results, tmp_path: Path) -> None:
    for name in ("my-notes.txt", "private/key", "old.tar.zst", f"{RUN}/key", "runs/notes"):
        path = stored.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    returned, case = stored.path / RUN / "out/files/result.csv", stored.path / "hunt/case/load.c"
    for path in (returned, case):
        path.parent.mkdir(parents=True)
        path.write_text("1,2")
    names: list[str] = []
    export_results(stored, tmp_path / "a.tar.zst", names.append)
    assert {"plan.json", f"{RUN}/out/files/result.csv", "hunt/case/load.c"} <= set(names)
    imported = import_results(tmp_path / "a.tar.zst", tmp_path / "there")
    assert "mine" not in {
        path.read_text() for path in imported.path.rglob("*") if path.stat().st_size == 4
    }
    names.remove("hunt/case/load.c")  # which is not of a run: it stays in the archive
    assert sorted(names) == sorted(
        str(path.relative_to(imported.path)) for path in imported.path.rglob("*") if path.is_file()
    )


KEPT = (
    *("my result.txt", "häufig.csv", "a(1).txt", "x~y#z", "job.img", "plugins", "a.failed"),
    *("results/ok.txt", "/".join("123456789ab"), "é" * 127),
)
LOST = (
    "images/plot.svg",
    "-x",
    ".hidden",
    "a\x1bb",
    "a\u202eb",
    "b\udcff",
    "link",
    "/".join("zyxwvutsrqponm"),
)


def test_what_a_command_leaves_has_the_names_that_it_chose(stored: Results, tmp_path: Path) -> None:
    folder = min(stored.finished().values(), key=lambda run: run.path).returned
    for name in (*KEPT, *LOST):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name == "link":
            (folder / name).symlink_to("/etc/passwd")
        else:
            (folder / name).write_text(name, errors="surrogateescape")
    run = folder.parent.parent
    place = folder.relative_to(stored.path)
    archive = tmp_path / "a.tar.zst"
    done = invoke(export.command, stored.path, archive)
    for name in LOST:
        assert f"left out: {place}/{shown(name)}: a link, or a path" in done.stderr
    assert done.stderr.count("left out: ") == len(LOST)
    unpack_folder(pack_folder(run), tmp_path / "run")
    imported = import_results(archive, tmp_path / "there")
    for copy in (imported.path / place, tmp_path / "run" / folder.relative_to(run)):
        files = [path for path in copy.rglob("*") if path.is_file()]
        assert {str(path.relative_to(copy)) for path in files} == set(KEPT)
        assert all(path.read_text() == str(path.relative_to(copy)) for path in files)
