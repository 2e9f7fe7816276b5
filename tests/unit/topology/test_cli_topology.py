"""`numalab topology`, as a user types it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from numalab.cli.inputs.topology import app
from numalab.errors import UserError
from numalab.topology.importers.any_format import read_machine
from numalab.topology.load import load_topology_file

DATA = Path(__file__).parents[2] / "data" / "topology"
GOLDEN_FORMS = ("text", "dot", "xml", "qemu", "vng", "numactl", "toml")


def run(*words: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=stdin)


def test_list() -> None:
    rows = json.loads(run("list", "--json").stdout)
    assert {"ring-4", "opteron-8", "slow-memory-3"} <= {row["name"] for row in rows}
    assert "Four nodes in a ring" in run("list").stdout


@pytest.mark.parametrize("form", GOLDEN_FORMS)
@pytest.mark.parametrize("name", ["ring-4", "slow-memory-3"])
def test_show(golden: Callable[[str, str], None], form: str, name: str) -> None:
    result = run("show", name, "--format", form)
    assert result.exit_code == 0
    golden(f"topology/{name}.{form}", result.stdout)


def test_a_second_level_of_no_size_is_none(tmp_path: Path) -> None:
    file = tmp_path / "two.toml"
    text = 'summary = "x"\nnodes = 2\ncpus = 2\nmemory_mib = 512\nmatrix = [[10,20],[20,10]]\n'
    file.write_text(f"{text}[memory]\nl2_kib = 0\nl2_ns = 10\n")
    shown = run("show", str(file)).stdout
    assert "each CPU: 32 KiB first level, no second level; 2 last-level caches" in shown


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("pairs-4", "  clusters [0-1] [2-3]: 40 apart"),
        ("xeon-max-9462", "  clusters [0,2] [1,3]: 21 to 23 apart"),
        ("no-path", "  clusters [0-1] [2-3]: no path"),
        ("ring-4", ""),
    ],
)
def test_halves_without_a_line_between_them_have_their_distance(
    name: str, text: str, tmp_path: Path
) -> None:
    halves = (DATA.parents[2] / "topologies" / "pairs-4.toml").read_text()
    (tmp_path / "no-path.toml").write_text(halves.replace("40", "255"))
    file = str(tmp_path / "no-path.toml") if name == "no-path" else name
    shown = [
        line for line in run("show", file).stdout.splitlines() if line.startswith("  clusters ")
    ]
    assert shown == [text] * bool(text)


def test_show_json_and_svg() -> None:
    shown = json.loads(run("show", "ring-4", "--json").stdout)
    assert shown["distances"][1] == [20, 10, 20, 30]
    assert shown["nodes"][3] == {"id": 3, "cpus": "6-7", "memory_mib": 768}
    assert run("show", "ring-4", "--format", "svg").stdout.startswith("<svg ")


def test_virtme_ng_needs_memory() -> None:
    error = run("show", "memoryless-4", "--format", "vng").exception
    assert isinstance(error, UserError)
    assert "node 2, which has no memory" in str(error)


def test_predict() -> None:
    result = run("predict", "ring-4", "--json")
    document = json.loads(result.stdout)
    assert document["numa_type"] == "glueless mesh"
    top = document["cpus"][2]["domains"][-1]
    assert top["groups"] == [{"span": "0-5", "mask": "2-3"}, {"span": "0-1,4-7", "mask": "6-7"}]
    assert "SD_OVERLAP" in top["flags"]


@pytest.mark.parametrize(
    ("version", "distances"),
    [("6.12", "distances of nodes with CPUs: 10 21"), ("5.10", "distances: 10 14 21 24")],
)
def test_a_prediction_tells_whose_distances_count(version: str, distances: str) -> None:
    lines = run("predict", "cxl-3", "--kernel-version", version).stdout.splitlines()
    assert lines[1].partition(", ")[2] == distances


def test_predict_one_cpu_before_the_fix() -> None:
    result = run("predict", "ring-4", "--cpu", "2", "--before-group-fix")
    assert result.stdout.count("CPU ") == 1
    assert result.stdout.startswith("ring-4 on Linux 6.12.48 or later with undo-group-construction")
    assert "groups: 2-7, 0-3,6-7" in result.stdout
    assert "hazard: group construction" in result.stdout
    assert "hazard: nodes that are never balanced" in result.stdout
    old = run("predict", "ring-4", "--kernel-version", "4.12", "--before-group-fix").stdout
    assert old.startswith("ring-4 on Linux 4.12 (amd CPUs)")
    assert "hazard: nodes that are never balanced" not in old


@pytest.mark.parametrize(
    ("version", "heading", "note"),
    [
        ("6.12.40", "ring-4 on Linux 6.12.40 (amd CPUs)", False),
        ("6.12", "ring-4 on Linux 6.12.48 or later (amd CPUs)", False),
        ("8.0", "ring-4 on Linux 8.0 (amd CPUs)", True),
    ],
)
def test_a_prediction_names_its_version(version: str, heading: str, note: bool) -> None:
    lines = run("predict", "ring-4", "--kernel-version", version).stdout.splitlines()
    assert lines[0] == heading
    remark = (
        f"Linux {version} is not known to numalab, the newest known version is 7.3: predicted "
        "with the rules of 7.3"
    )
    assert (lines[1] == f"note: {remark}") is note
    document = json.loads(run("predict", "ring-4", "--kernel-version", version, "--json").stdout)
    assert heading == f"ring-4 on Linux {document['kernel']} (amd CPUs)"
    assert document["newest_known"] == "7.3"
    assert document["remark"] == (remark if note else None)


def test_predict_wrong_words() -> None:
    error = run("predict", "ring-4", "--cpu", "8").exception
    assert str(error) == "--cpu: there is no CPU 8; CPUs are 0 to 7"
    error = run("predict", "ring-4", "--kernel-version", "4.3").exception
    assert "kernel 4.3 is older than 4.4, the oldest that is predicted" in str(error)


def test_check_names_everything(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text('summary = ""\nnodes = 0\ncpus = 1\nmemory_mib = "x"\n')
    result = run("check", str(bad), "topologies/ring-8.toml")
    assert result.exit_code == 2
    for key in ("summary", "nodes", "memory_mib"):
        assert f"{bad}: {key}: " in result.stdout
    assert "topologies/ring-8.toml: groups out of their domain" in result.stdout
    assert "topologies/ring-8.toml: ok" in result.stdout


def test_check_is_bounded_and_counts_the_rest(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    rows = [[10] * 9] * 9
    bad.write_text(f'summary = "x"\nnodes = 9\ncpus = 1\nmemory_mib = 64\nmatrix = {rows}\n')
    result = run("check", str(bad), "topologies/ring-4.toml", str(tmp_path / "missing.toml"))
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert [line.startswith(f"{bad}: matrix[") for line in lines] == [True] * 25 + [False] * 4
    assert lines[25] == f"{bad}: and 47 more errors"
    assert lines[27] == "topologies/ring-4.toml: ok"
    assert "missing.toml: cannot read" in lines[28]
    (document,) = json.loads(run("check", str(bad), "--json").stdout)
    assert (len(document["errors"]), document["errors_left_out"]) == (25, 47)


def test_check_json() -> None:
    result = run("check", "topologies/ring-4.toml", "--json")
    assert result.exit_code == 0
    (document,) = json.loads(result.stdout)
    assert document["errors"] == []
    assert document["hazards"][0]["name"] == "group construction"


def test_diff() -> None:
    same = run("diff", "ring-4", "ring-4")
    assert (same.exit_code, same.stdout) == (0, "no difference\n")
    other = run("diff", "ring-4", "mesh-4", "--json")
    assert other.exit_code == 1
    document = json.loads(other.stdout)
    assert (document["a"], document["b"]) == ("ring-4", "mesh-4")
    assert document["differences"][0] == {
        "what": "distance, node 0 to node 2", "a": "30", "b": "20"
    }  # fmt: skip


def test_diff_names_its_columns_and_has_the_units_of_show() -> None:
    lines = run("diff", "ring-4", "slow-memory-3").stdout.splitlines()
    assert lines[0].split() == ["ring-4", "slow-memory-3"]
    column = lines[0].index("slow-memory-3")
    (access,) = (line for line in lines if line.startswith("access, node 0 to node 1"))
    assert access[column:] in run("show", "slow-memory-3").stdout.replace("node 0 to node 1, ", "")
    (packaging,) = (line for line in lines if line.startswith("packaging"))
    assert packaging[column:] in run("show", "slow-memory-3").stdout
    assert " 1 dies" not in "\n".join(lines)


def test_bandwidths_that_look_alike_are_shown_whole(tmp_path: Path) -> None:
    text = (DATA.parents[2] / "topologies" / "slow-memory-3.toml").read_text()
    (tmp_path / "a.toml").write_text(text.replace("104857600", "104857601"))
    lines = run("diff", "slow-memory-3", str(tmp_path / "a.toml")).stdout
    assert "104857600 KiB/s" in lines and "104857601 KiB/s" in lines


def test_one_of_a_thing_is_written_so() -> None:
    text = run("show", "ring-2").stdout
    assert "2 sockets x 1 die x 2 cores x 1 thread" in text


@pytest.mark.parametrize(
    ("name", "form", "loss"),
    [
        ("slow-memory-3", "vng", "latency and bandwidth between nodes (HMAT)"),
        ("slow-memory-3", "numactl", "latency and bandwidth between nodes (HMAT)"),
        ("xeon-8269cy", "qemu", "the table [memory]"),
        *(("backplane-8", form, "links between nodes") for form in ("vng", "numactl", "xml")),
        ("backplane-8", "dot", None),
        ("ring-4", "vng", None),
        ("slow-memory-3", "qemu", None),
        ("slow-memory-3", "xml", None),
        ("memoryless-4", "xml", "no memory on node 2: libvirt gives QEMU a size of 0"),
        ("slow-memory-3", "toml", None),
    ],
)
def test_what_an_export_leaves_out_is_reported(name: str, form: str, loss: str | None) -> None:
    notes = run("show", name, "--format", form).stderr
    assert notes.startswith(f"numalab: left out of {form}: {loss}") if loss else not notes


@pytest.mark.parametrize(
    ("cpus", "cpu_table", "loss"),
    [
        ("2", "", ""),
        ("2", 'llc = "none"', "no last-level cache: this form has no caches"),
        ("2", "sockets = 1", "sockets, dies and threads (1 socket x 1 die x 4 cores x 1 thread)"),
        ("2", "sockets = 4", "sockets, dies and threads (4 sockets x 1 die x 1 core x 1 thread)"),
        ("2", "threads = 2", "sockets, dies and threads (2 sockets x 1 die x 1 core x 2 threads)"),
        ("[3, 1]", "", ""),  # each CPU is a socket, as an import makes of them
        ("[3, 1]", "sockets = 2", "sockets, dies and threads (2 sockets x 1 die x 2 cores x 1 t"),
        ('["0,2", "1,3"]', "", "sockets, dies and threads (4 sockets x 1 die x 1 core x 1 thread)"),
    ],
)
def test_what_the_form_of_numactl_leaves_out_is_what_an_import_changes(
    tmp_path: Path, cpus: str, cpu_table: str, loss: str
) -> None:
    file = tmp_path / "x.toml"
    file.write_text(
        f'summary = "x"\nnodes = 2\ncpus = {cpus}\nmemory_mib = 128\n'
        f"links = [[0, 1]]\ndistances = [10, 20]\n[cpu]\n{cpu_table}\n"
    )
    shown = run("show", str(file), "--format", "numactl")
    start = f"numalab: left out of numactl: {loss}" if loss else ""
    assert shown.stderr.startswith(start) and bool(shown.stderr) == bool(loss)
    made, text = load_topology_file(file), shown.stdout.encode()
    imported = read_machine("-", text, name="x").topology
    same = (made.packaging, made.llc) == (imported.packaging, imported.llc)
    assert same == (not loss)


@pytest.mark.parametrize("name", ["ring4", "rign-4", "RING-4", "ring-4 "])
def test_a_topology_name_is_suggested(name: str) -> None:
    for command in (["show", name], ["predict", name], ["diff", name, "mesh-4"]):
        assert "; did you mean ring-4? (valid: " in str(run(*command).exception)


def test_a_path_is_suggested() -> None:
    error = run("show", "topologies/ring4.toml").exception
    assert str(error).endswith("; did you mean topologies/ring-4.toml?")


def test_import_from_stdin_to_a_file_that_shows(tmp_path: Path) -> None:
    file = tmp_path / "copy.toml"
    text = run("show", "mesh-8", "--format", "numactl").stdout
    result = run("import", "-", "--output", str(file), stdin=text)
    assert result.stdout == f"written: {file}\n"
    assert run("diff", "mesh-8", str(file)).exit_code == 0


def test_import_has_the_map_of_numbers(tmp_path: Path) -> None:
    source, file = str(DATA / "import" / "numactl-sparse.txt"), tmp_path / "sparse.toml"
    result = run("import", source, "--name", "sparse", "-o", str(file), "--json")
    document = json.loads(result.stdout)
    assert document["old_cpus"] == [0, 8, 16, 24, 32, 33, 40, 48]
    assert document["old_nodes"] == [0, 8, 252]
    note = "numbered CPUs anew, without the gaps: CPUs 0-7 were 0,8,16,24,32-33,40,48"
    assert note in document["notes"] and f"numalab: {note}\n" in result.stderr
    assert f"# {note}\n" in file.read_text()
    assert document["topology"]["name"] == "sparse"


def test_a_name_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    source, file = str(DATA / "numactl-4.txt"), tmp_path / "other.toml"
    error = run("import", source, "--name", "mine", "-o", str(file)).exception
    assert f"{file} is called other, not mine" in str(error)
    assert not file.exists()
    for name in ("", "a/b", "a\x1b[2J"):
        assert "--name: not the name" in str(run("import", source, "--name", name).exception)
    result = run("import", source, "-o", str(file), "--json")
    assert json.loads(result.stdout)["topology"]["name"] == "other"


def test_import_notes_go_to_stderr() -> None:
    result = run("import", str(DATA / "import" / "numactl-sparse.txt"))
    assert "numbered CPUs anew" in result.stderr
    assert result.stdout.startswith("# numbered nodes anew: 0 is now 0, 8 is now 1, 252 is now 2\n")
    assert "\nsummary = " in result.stdout


def test_a_shipped_file_is_found_by_path(tmp_path: Path) -> None:
    shutil.copy("topologies/ring-2.toml", tmp_path / "mine.toml")
    assert json.loads(run("show", str(tmp_path / "mine.toml"), "--json").stdout)["name"] == "mine"


def test_schema() -> None:
    schema = json.loads(run("schema").stdout)
    assert schema["title"] == "numalab topology"
    assert schema["properties"]["shape"]
