"""`numalab trace`: a recording of NUMA balancing in a ring-4 guest, measured without a study."""

import html
import json
import lzma
import re
import shlex
from pathlib import Path

import polars as pl
import pytest
from typer.testing import Result

from numalab.analysis.analyse import analyse
from numalab.analysis.measures.family import families_of_nodes
from numalab.cli.results.trace import command
from numalab.errors import UserError
from numalab.recording.recording import Recording
from numalab.report.build.recording import read_recorded_machine
from numalab.results.reader import load_findings
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology
from support.one_command import invoke

DATA = Path(__file__).parents[3] / "data"
RING_4 = """\
available: 4 nodes (0-3)
node 0 cpus: 0 1
node 0 size: 512 MB
node 1 cpus: 2 3
node 1 size: 512 MB
node 2 cpus: 4 5
node 2 size: 512 MB
node 3 cpus: 6 7
node 3 size: 512 MB
node distances:
node   0   1   2   3
  0:  10  20  30  20
  1:  20  10  20  30
  2:  30  20  10  20
  3:  20  30  20  10
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "trace.dat"
    path.write_bytes(lzma.decompress((DATA / "capture" / "ring-4-numa.dat.xz").read_bytes()))
    return path


def numalab(*words: object) -> Result:
    return invoke(command, *words)


def measured(*words: object) -> dict[str, float | None]:
    document = json.loads(numalab(*words, "--json").stdout)
    return {row["name"]: row["value"] for row in document["measures"]}


def test_it_gives_the_measures_and_the_table_that_a_study_gives(
    trace: Path, tmp_path: Path
) -> None:
    values = measured(trace, "--topology", "ring-4", "--tasks", "thread *", "--output", tmp_path)
    events = pl.read_parquet(tmp_path / "events.parquet")
    expected = analyse(Recording(events, load_topology("ring-4"), tasks=("thread *",))).measures
    assert values == {row.name: row.value for row in expected}
    assert values["sched_move_numa"]
    stored = json.loads((tmp_path / "measures.json").read_text("utf-8"))
    assert {row["name"]: row["value"] for row in stored} == values
    assert events["node"].null_count() == 0


def test_tasks_that_were_not_recorded_have_no_measures(trace: Path, tmp_path: Path) -> None:
    words = (trace, "--topology", "ring-4", "--output", tmp_path, "--tasks", "no such")
    done = numalab(*words, "--json")
    document = json.loads(done.stdout)
    values = {row["name"]: row["value"] for row in document["measures"]}
    of_tasks = {name: value for name, value in values.items() if name.startswith("task")}
    assert set(of_tasks.values()) == {None}
    assert of_tasks.keys() >= {"task_migrations", "task_busy_share_cpu0", "tasks_final_node3"}
    assert values["sched_move_numa"]
    assert document["notes"][0].startswith("no task is called no such (there are: <idle>, ")
    assert not [note for note in document["notes"] if "never happened" in note]
    stored = json.loads((tmp_path / "measures.json").read_text("utf-8"))
    assert {row["name"]: row["value"] for row in stored} == values
    assert measured(*words, "--tasks", "thread *")["task_migrations"]


def test_numactl_describes_the_same_machine(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "machine.txt").write_text(RING_4)
    assert measured(trace, "--numactl", tmp_path / "machine.txt") == measured(
        trace, "--topology", "ring-4"
    )


def test_without_a_machine_it_says_what_needs_one(trace: Path) -> None:
    plain, on_ring = measured(trace), measured(trace, "--topology", "ring-4")
    assert not [name for name in plain if name.startswith("task_time_share_node")]
    assert plain["task_node_migrations"] is None
    assert plain["task_node_changes"] is None
    without, idle = (run.pop("idle_while_overloaded") for run in (plain, on_ring))
    assert without != idle, "nobody knows what kcompactd0 waits for"
    assert without == pytest.approx(idle, rel=1e-3)
    same = [name for name in plain if name not in families_of_nodes() and "node" not in name]
    assert [plain[name] for name in same] == [on_ring[name] for name in same]
    text = " ".join(numalab(trace).stdout.split())
    assert "the nodes of the CPUs are not known" in text
    assert all(name in text for name in families_of_nodes())


def test_cpus_limit_what_is_measured(trace: Path) -> None:
    values = measured(trace, "--cpus", "2-3")
    busy = [name for name in values if name.startswith("task_busy_share_cpu")]
    assert busy == ["task_busy_share_cpu2", "task_busy_share_cpu3"]


def test_a_recording_without_markers_is_measured_whole(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "unmarked.dat"
    path.write_bytes(trace.read_bytes().replace(b"numalab: begin", b"numalab? begin"))
    document = json.loads(numalab(path, "--json").stdout)
    assert document["window"]["begun"] is False
    assert document["window"]["ended"] is True
    assert document["window"]["start_ns"] == document["recording"]["first_ns"]
    assert sum("no marker numalab: begin;" in note for note in document["notes"]) == 1


def test_an_event_that_never_happened_is_not_0(trace: Path) -> None:
    document = json.loads(numalab(trace, "--json").stdout)
    for measure in document["measures"]:
        if measure["name"].startswith("sched_") and measure["value"] is not None:
            assert document["recording"]["counts"][measure["name"]] >= measure["value"]
    assert 0 not in document["recording"]["counts"].values()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--topology", "mesh-2"], "was recorded on CPUs 0-7, and mesh-2 only has 0-3"),
        (["--topology", "ring-4", "--numactl", "x"], "give one of them"),
        (["--cpus", "7-9"], "--cpus: there are no CPUs 8-9"),
        (["--cpus", "one"], "--cpus: "),
        (["--cpus", ""], "--cpus: names no CPU"),
        (["--cpus", " , "], "--cpus: names no CPU"),
        (["--numactl", "/nonexistent"], "/nonexistent: cannot read"),
    ],
)
def test_wrong_options_are_explained(
    trace: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    with pytest.raises(UserError) as error:
        numalab(trace, *words, "--output", tmp_path / "out")
    assert message in str(error.value)
    assert not (tmp_path / "out" / "events.parquet").exists()


def test_files_that_are_no_recording_are_explained(tmp_path: Path, trace: Path) -> None:
    for name, content in {"empty": b"", "text": b"node 0", "cut": trace.read_bytes()[:500]}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=str(tmp_path / name)):
            numalab(tmp_path / name)
    with pytest.raises(UserError, match="No such file"):
        numalab(tmp_path / "missing")


def test_a_run_of_a_study_is_never_written_over(tmp_path: Path, trace: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(UserError, match="holds a run of a study"):
        numalab(trace, "--output", tmp_path)
    with pytest.raises(UserError, match="is no folder"):
        numalab(trace, "--output", tmp_path / "manifest.json")


@pytest.mark.parametrize("folder", ["", "cells/one", "runs/a_run.failed"])
@pytest.mark.parametrize("results", ["plan.json", "compact.parquet"])
def test_results_of_a_study_are_never_written_over(
    tmp_path: Path, trace: Path, results: str, folder: str
) -> None:
    (tmp_path / results).write_text("{}")
    with pytest.raises(UserError, match="--output names a file of results"):
        numalab(trace, "--topology", "ring-4", "--output", tmp_path / folder)
    assert [path.name for path in tmp_path.iterdir()] == [results]


def test_a_second_recording_leaves_nothing_of_the_first(trace: Path, tmp_path: Path) -> None:
    folder, short = tmp_path / "out", tmp_path / "without-switches.dat"
    short.write_bytes(trace.read_bytes().replace(b"name: sched_switch", b"name: sched_swotch"))
    numalab(trace, "--topology", "ring-4", "--output", folder)
    assert {"index.html", "timeline.parquet"} < {path.name for path in folder.iterdir()}
    numalab(short, "--output", folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        "analysis.json",
        "events.parquet",
        "measures.json",
    ]


def test_a_page_of_somebody_else_stays(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    numalab(trace, "--output", tmp_path)
    assert (tmp_path / "index.html").read_text() == "mine"


def test_cpus_keep_their_own_numbers_gaps_included(trace: Path, tmp_path: Path) -> None:
    """CPUs 2 and 3 are node 1's; here it has two more that were offline, 100 and 101."""
    path = tmp_path / "gaps.txt"
    path.write_text(RING_4.replace("node 1 cpus: 2 3", "node 1 cpus: 2 3 100 101"))
    machine, notes = read_recorded_machine(path)
    assert machine.nodes[1].cpus == (2, 3, 100, 101)
    assert not any("numbered CPUs" in note for note in notes)
    imported, on_ring = measured(trace, "--numactl", path), measured(trace, "--topology", "ring-4")
    of_tasks = [name for name in on_ring if name.startswith("task_") and "cpu" not in name]
    assert [imported[name] for name in of_tasks if not name.endswith("min")] == [
        on_ring[name] for name in of_tasks if not name.endswith("min")
    ]
    for cpus, is_noted in (("2,100-101", True), ("2-3", False)):
        text = " ".join(numalab(trace, "--numactl", path, "--cpus", cpus).stdout.split())
        note = "no events on CPUs 100-101: taken for idle, unless --cpus leaves them out"
        assert (note in text) == is_noted


def test_with_a_folder_there_is_a_page_and_the_findings(trace: Path, tmp_path: Path) -> None:
    output = numalab(trace, "--topology", "ring-4", "--tasks", "thread *", "--output", tmp_path)
    assert "index.html" in output.stdout
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "NUMA balancing decided 21 times" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    findings = load_findings(RunDir(tmp_path))
    assert findings is not None
    assert findings.decisions_in_all == 21
    with pytest.raises(UserError, match="no such file"):
        load_findings(RunDir(tmp_path / "nowhere"))


def test_a_page_says_nothing_of_a_boot(trace: Path, tmp_path: Path) -> None:
    """Nobody knows date, seed and kernel; the machine may be real; there is no report.json."""
    (tmp_path / "machine.txt").write_text(RING_4)
    numalab(trace, "--numactl", tmp_path / "machine.txt", "--output", tmp_path / "out")
    page = html.unescape((tmp_path / "out" / "index.html").read_text("utf-8"))
    shown = re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>|data:[^\"]+", "", page))
    words = " ".join(shown.split())
    assert "numalab trace trace.dat · mode recording (" in words
    assert "machine: 4 nodes, 8 CPUs, 2048 MiB Mode: recording," in words
    assert "nothing is compared. Its figures are in measures.json." in words
    assert (tmp_path / "out" / "measures.json").exists()
    assert not re.search(
        r"virtual|seed|boot|report\.json|Runs|(the|a|every) runs?\b|UTC|Series|QEMU|axis compared",
        words,
    )


def test_nodes_numbered_anew_are_in_every_form(trace: Path, tmp_path: Path) -> None:
    path, note = tmp_path / "machine.txt", "4 is now 2, 5 is now 3"
    gaps = re.sub(r"(?m)^( *(?:node )?)3(?=:| cpus| size)", r"\g<1>5", RING_4)
    gaps = re.sub(r"(?m)^( *(?:node )?)2(?=:| cpus| size)", r"\g<1>4", gaps)
    gaps = gaps.replace("(0-3)", "(0-1,4-5)")
    path.write_text(gaps.replace("0   1   2   3", "0   1   4   5"))
    words = (trace, "--numactl", path, "--output", tmp_path / "out")
    assert note in " ".join(numalab(*words).stdout.split())
    document = json.loads(numalab(*words, "--json").stdout)
    assert document["notes"][0].endswith(note)
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert page.count(note) == 2  # at its top, and in the text for a mail


def test_the_command_of_a_page_gives_it_again(trace: Path, tmp_path: Path) -> None:
    copy, tasks = tmp_path / "a trace.dat", ("--tasks", "thread *", "--tasks", "it's")
    copy.write_bytes(trace.read_bytes())
    (tmp_path / "machine.txt").write_text(RING_4)
    for machine in (("--topology", "ring-4"), ("--numactl", str(tmp_path / "machine.txt"))):
        words = [str(copy), *machine, "--cpus", "0-3", "--output", str(tmp_path), *tasks]
        numalab(*words)
        again = shlex.join(["numalab", "trace", *words])
        assert again in html.unescape((tmp_path / "index.html").read_text("utf-8"))


def test_a_page_says_nothing_of_what_was_not_recorded(trace: Path, tmp_path: Path) -> None:
    short, data = tmp_path / "without.dat", trace.read_bytes()
    for name in (b"sched_swap_numa", b"sched_migrate_task"):
        data = data.replace(b"name: " + name, b"name: x" + name[1:])
    short.write_bytes(data)
    numalab(short, "--topology", "ring-4", "--output", tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "Moves by NUMA balancing" in page
    assert "NUMA balancing decided" not in page
    for title in ("Tasks swapped by NUMA balancing", "Moves of any task between nodes"):
        assert title not in page


def test_without_a_machine_there_is_no_page(trace: Path, tmp_path: Path) -> None:
    document = json.loads(numalab(trace, "--output", tmp_path, "--json").stdout)
    assert document["page"] is None
    assert not (tmp_path / "index.html").exists()
