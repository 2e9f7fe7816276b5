"""What is written beside results: never over one of their files, and only what is theirs."""

from pathlib import Path, PurePath

import pytest

from numalab.cli.results import export, report
from numalab.errors import UserError
from numalab.results.archive import export_results, import_results
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
