"""The catalogue of runs, and SQL over it."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from errno import EACCES
from pathlib import Path

import polars as pl
import pytest

from numalab.campaign.execute import Schedule, TaskEvent, execute
from numalab.cli.results.query import command
from numalab.errors import UserError
from numalab.files import write_json
from numalab.results import query as catalogue_module
from numalab.results.layout import Results
from numalab.results.query import Catalogue, catalogue, find_results, query
from numalab.results.reader import StoredRun, load_run
from numalab.run_dir import RunDir
from support.fake_executor import MATRIX, fake, ready
from support.one_command import invoke


def unwatched(_: Schedule) -> Callable[[TaskEvent], None]:
    return lambda event: None


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Results of 24 runs."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMALAB_CACHE", str(folder / "cache"))
        study = ready(folder, MATRIX)
        execute([study], 2, unwatched, run=fake)
    return study.results


@pytest.fixture
def results(made: Results, tmp_path: Path) -> Results:
    shutil.copytree(made.path, tmp_path / "reports" / "tried" / "1")
    return Results(tmp_path / "reports" / "tried" / "1")


def ask(results: Results, sql: str) -> list[dict[str, object]]:
    return query([catalogue(results)], sql).to_dicts()


def test_means_by_variant(results: Results) -> None:
    """The fake measures the seed, +10 after."""
    sql = """SELECT variant, avg(value) AS mean FROM measures
             WHERE measure = 'task_migrations' GROUP BY variant ORDER BY variant"""
    assert ask(results, sql) == [
        {"variant": "after", "mean": 12.0},
        {"variant": "before", "mean": 2.0},
    ]


def test_measures_join_runs(results: Results) -> None:
    sql = """SELECT r.kernel, max(m.value) AS most FROM runs r JOIN measures m ON r.run = m.run
             WHERE r.topology = 'ring-2' GROUP BY r.kernel ORDER BY most"""
    assert [row["most"] for row in ask(results, sql)] == [4.0, 14.0]


def test_events_of_all_runs_even_with_other_columns(results: Results) -> None:
    path = results.run("ring-2_few_after_1").events
    table = pl.read_parquet(path).with_columns(pl.lit(7).alias("pid"))
    table.write_parquet(path)
    sql = "SELECT run, count(pid) AS pids, count(*) AS n FROM events GROUP BY run ORDER BY pids"
    rows = ask(results, sql)
    assert len(rows) == 24
    assert rows[-1] == {"run": "ring-2_few_after_1", "pids": 2, "n": 2}


def test_only_what_is_new_is_read(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    first = catalogue(results)
    read: list[str] = []

    def counted(directory: RunDir) -> StoredRun:
        read.append(directory.path.name)
        return load_run(directory)

    monkeypatch.setattr(catalogue_module, "load_run", counted)
    again = catalogue(results)
    assert read == []
    assert again.runs.equals(first.runs)
    directory = results.run("ring-2_few_after_1")
    write_json(directory.manifest, json.loads(directory.manifest.read_text()) | {"seconds": 9.5})
    shutil.rmtree(results.run("ring-2_few_after_2").path)
    changed = catalogue(results)
    assert read == ["ring-2_few_after_1"]
    assert changed.runs.height == 23
    assert changed.runs.filter(pl.col("run") == "ring-2_few_after_1")["seconds"].to_list() == [9.5]
    assert "ring-2_few_after_2" not in changed.measures["run"].to_list()
    newest = directory.manifest.stat().st_mtime_ns
    for file in (directory.measures, directory.added_measures):
        write_json(file, json.loads(directory.measures.read_text())[:1])
        newest += 1
        os.utime(file, ns=(newest, newest))
        read.clear()
        again = catalogue(results)
        assert read == ["ring-2_few_after_1"]
        assert again.measures.filter(pl.col("run") == "ring-2_few_after_1").height == 1


def test_a_broken_catalogue_is_made_anew(results: Results) -> None:
    catalogue(results)
    results.runs_table.write_bytes(b"PAR1 no")
    assert catalogue(results).runs.height == 24
    pl.DataFrame({"run": ["x"]}).write_parquet(results.runs_table)
    assert catalogue(results).runs.height == 24


def test_a_folder_with_results_below_it(results: Results) -> None:
    other = results.path.with_name("2")
    shutil.copytree(results.path, other)
    folders = find_results(results.path.parents[1])
    assert [entry.path for entry in folders] == [results.path, other]
    rows = query(
        [catalogue(entry) for entry in folders], "SELECT DISTINCT results FROM runs"
    ).height
    assert rows == 2
    with pytest.raises(UserError, match="no results here"):
        find_results(results.path.parents[2] / "nothing")


@pytest.mark.parametrize(
    ("link", "target"),
    [("latest", "tried/1"), ("a", "tried/1"), ("tried/0", "1"), ("a", "tried"), ("loop", ".")],
)
def test_results_are_counted_once_whatever_leads_to_them(
    results: Results, link: str, target: str
) -> None:
    reports = results.path.parents[1]
    (reports / link).symlink_to(target, target_is_directory=True)
    assert find_results(reports) == (results,)
    assert len(find_results(reports / link)) == 1


def test_results_that_lie_elsewhere_are_followed(results: Results, tmp_path: Path) -> None:
    folder = tmp_path / "linked"
    folder.mkdir()
    (folder / "b").symlink_to(results.path, target_is_directory=True)
    assert find_results(folder) == (Results(folder / "b"),)


def test_runs_that_may_not_be_read_are_not_none(
    results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(folder: Path) -> Iterator[Path]:
        raise PermissionError(EACCES, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(PermissionError):
        ask(results, "select count(*) from runs")


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELEC x", "SQL"),
        ("SELECT nothing FROM runs", "nothing"),
        ("SELECT * FROM runners", "runners"),
        ("", "SQL"),
        ("DROP TABLE runs", "SQL: only SELECT is possible, not 'DROP TABLE runs'"),
        ("DESCRIBE runs", r"SELECT \* FROM runs, SELECT \* FROM measures, SELECT \* FROM events"),
        ("/**/" * 5000 + "DROP", "SQL: only SELECT is possible"),  # in time that is linear
        ("/* SELECT */ DROP", "SQL: only SELECT is possible"),
    ],
)
def test_what_is_no_query(results: Results, sql: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        ask(results, sql)


@pytest.mark.parametrize(
    "start",
    [
        "(select",
        "-- all\nSELECT",
        "/* all\nruns */ /**/ SELECT",
        "WITH r AS (SELECT * FROM runs) SELECT",
    ],
)
def test_a_select_may_begin_in_other_ways(results: Results, start: str) -> None:
    end = ")" if start.startswith("(") else ""
    assert query([catalogue(results)], f"{start} run FROM runs{end}").height == 24


def test_runs_have_a_column_of_events_also_without_event_tables(results: Results) -> None:
    for path in results.path.glob("runs/*/events.parquet"):
        path.unlink()
    rows = query([catalogue(results)], "SELECT run, events FROM runs")
    assert rows.height == 24
    with pytest.raises(UserError, match="these runs have no event tables"):
        query([catalogue(results)], "SELECT run FROM events")


def test_runs_without_an_event_table_are_counted(results: Results) -> None:
    sql = "SELECT count(*) AS n FROM runs JOIN events ON runs.run = events.run"
    whole = invoke(command, results.path, sql, "--csv")
    assert whole.stderr == ""
    results.run("ring-2_few_after_1").events.unlink()
    done = invoke(command, results.path, sql, "--csv")
    assert done.stderr == "left out: 1 of 24 runs have no event table\n"
    assert int(done.stdout.split()[1]) < int(whole.stdout.split()[1])
    assert invoke(command, results.path, "SELECT events FROM runs").stderr == ""


def test_damaged_results(results: Results) -> None:
    results.run("ring-2_few_after_1").measures.write_text("{")
    with pytest.raises(UserError, match=r"measures\.json"):
        catalogue(results)


def test_results_that_cannot_be_read_leave_others(results: Results) -> None:
    other = Results(results.path.with_name("2"))
    shutil.copytree(results.path, other.path)
    manifest = other.run("ring-2_few_after_1").manifest
    write_json(manifest, json.loads(manifest.read_text()) | {"format": 4})
    sql = "SELECT count(*) AS runs FROM runs"
    done = invoke(command, results.path.parents[1], sql, "--json")
    assert json.loads(done.stdout) == [{"runs": 24}]
    assert "left out: " in done.stderr and "another numalab: format 4" in done.stderr
    with pytest.raises(UserError, match="format 4"):
        invoke(command, other.path, sql)


def test_whole_numbers_are_shown_whole(results: Results) -> None:
    values = ("CAST(9483861 AS DOUBLE) AS a", "CAST(9483861.5 AS DOUBLE) AS b")
    done = invoke(command, results.path, f"SELECT {', '.join(values)} FROM runs LIMIT 1")
    assert done.stdout.splitlines()[2].split() == ["9483861", "9.48386e+06"]


@pytest.mark.parametrize(
    ("value", "json_value", "cell"),
    [
        ("INTERVAL '36 hours'", 129600.0, "129600.0"),
        ("CAST('x\x1b' AS BYTEA)", "x\x1b", r"x\x1b"),
        ("ARRAY_AGG(seed / 0)", [None], "[null]"),
        ("ARRAY_AGG(mode || '\x1b')", ["icount\x1b"], '"[""icount\\u001b""]"'),
        ("ARRAY_AGG(INTERVAL '1 minute')", [60.0], "[60.0]"),
        ("ARRAY_AGG(CAST('2024-01-01' AS DATE))", ["2024-01-01"], '"[""2024-01-01""]"'),
        ("ARRAY_AGG(CAST(seed AS DECIMAL(9, 1)))", [1.0], "[1.0]"),
        ("'=HYPERLINK(1)'", "=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("CAST('@x' AS BYTEA)", "@x", "'@x"),
        ("'-1.5'", "-1.5", "-1.5"),
        ("-1.5", -1.5, "-1.5"),
        ("CAST('2024-01-01' AS TIMESTAMP)", "2024-01-01 00:00:00.000000",
         "2024-01-01T00:00:00.000000"),
        ("NULL", None, ""),
    ],
)  # fmt: skip
def test_what_prints_as_text_has_a_json_and_a_csv_form(
    results: Results, value: str, json_value: object, cell: str
) -> None:
    sql = f"SELECT {value} AS x FROM runs WHERE run = 'ring-2_few_after_1'"
    rows = json.loads(invoke(command, results.path, sql, "--json").stdout)
    assert rows == [{"x": json_value}]
    assert invoke(command, results.path, sql, "--csv").stdout == f"x\n{cell}\n"
    assert "1 rows" in invoke(command, results.path, sql).stdout


def test_a_name_of_a_column_is_no_formula(results: Results) -> None:
    sql = 'SELECT seed AS "=x", mode AS "\x1b" FROM runs LIMIT 1'
    assert invoke(command, results.path, sql, "--csv").stdout == "'=x,\\x1b\n1,icount\n"


def test_ten_thousand_runs(tmp_path: Path) -> None:
    """Not a bound on time, which depends on the machine; `make bench` has that. All are found."""
    results = Results(tmp_path)
    write_json(results.plan, {})
    template = pl.DataFrame(schema=catalogue_module.RUNS)
    names = [f"ring-4_few_after_{seed}" for seed in range(10_000)]
    rows = []
    for seed, name in enumerate(names):
        directory = results.run(name)
        directory.path.mkdir(parents=True)
        directory.manifest.write_text("{}")
        modified = directory.manifest.stat().st_mtime_ns
        values = {"run": name, "seed": seed, "modified_ns": modified, "mode": "icount"}
        rows.append({column: values.get(column) for column in template.columns})
    runs = pl.DataFrame(rows, schema=catalogue_module.RUNS)
    measures = pl.DataFrame(schema=catalogue_module.MEASURES)
    catalogue_module.store(Catalogue(results, runs, measures))
    began = time.monotonic()
    assert ask(results, "SELECT count(*) AS n FROM runs WHERE seed >= 5000") == [{"n": 5000}]
    print(f"10,000 runs: {time.monotonic() - began:.2f} s")
