"""A sampled source from a plug-in folder outside the package: planned, sampled, read, drawn."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from numalab.analysis.analyse import analyse
from numalab.campaign import build
from numalab.capture.samples import (
    SampledSource,
    SampledValue,
    parse_added,
    parse_samples,
    register_source,
)
from numalab.capture.spec import load_capture
from numalab.errors import UserError
from numalab.recording.recording import Recording
from numalab.study.plan import plan_study
from numalab.topology.topology import Topology
from numalab.workload.workload_files import build_workload, sampler
from support.small_traces import Trace

DOCS = Path(__file__).parents[3] / "docs" / "how-to" / "write-a-plug-in.md"
STUDY = """
question = "What is left of the nodes' memory?"
topologies = ["ring-4"]
seeds = [1]
[variants.now]
kernel = "debian-6.12"
[[workloads]]
name = "bound-hogs"
[capture]
sample = ["vmstat", "node_memory"]
sample_ms = 100
"""
SAID = """\
@ 1000
node_memory\t/sys/devices/system/node/node0/meminfo\tNode 0 MemFree:   2048 kB
node_memory\t/sys/devices/system/node/node0/meminfo\tNode 0 Other:     7 kB
node_memory\t/sys/devices/system/node/node2/meminfo\tNode 2 MemFree:   1024 kB
@ 2000
node_memory\t/sys/devices/system/node/node0/meminfo\tNode 0 MemFree:   1024 kB
node_memory\t/sys/devices/system/node/node0/meminfo\tNode 0 AnonPages: 512 kB
node_memory\t/sys/devices/system/node/node63/meminfo\tNode 63 MemFree: 1024 kB
"""
COMMAND = """
import os, time
print(os.getpid())
time.sleep(0.5)
try:
    os.wait()
except ChildProcessError:  # it has no child that it did not start
    exit(7)
"""


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_plugins: None) -> Path:
    """A lab folder with the example of the page, which comes before what numalab has."""
    monkeypatch.setenv("NUMALAB_PATH", str(tmp_path))
    (code,) = re.findall(r"```python\n(# plugins/node_memory.*?)```", DOCS.read_text(), re.DOTALL)
    for name, text in {"plugins/node_memory.py": code, "studies/mine.toml": STUDY}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    return tmp_path


def test_it_goes_to_the_guest_with_the_job(lab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_study(lab / "studies/mine.toml")
    (workload,) = plan.workloads.values()
    assert workload.argv[:7] == (
        "/job/files/numalab-sample",
        "/job/out/sampled",
        "100",
        "node_memory",
        "/sys/devices/system/node/node*/meminfo",
        "--",
        "/job/files/bound-hogs",
    )
    assert (plan.capture.sampled, plan.capture.sample_ms) == ("v", 100)
    monkeypatch.setattr(build, "ensure_image", lambda *_, **__: None)
    built = build.build((), plan.recipe, plan.workloads.values())
    assert set(built.files["bound-hogs"]) == {"bound-hogs", "numalab-sample"}


def test_a_study_without_it_is_as_it_was(lab: Path) -> None:
    (lab / "studies/mine.toml").write_text(STUDY.replace(', "node_memory"', ""))
    plan = plan_study(lab / "studies/mine.toml")
    (workload,) = plan.workloads.values()
    assert (workload.argv[0], workload.programs) == ("/job/files/bound-hogs", ())


def test_an_unknown_name_is_told_with_what_there_is(lab: Path) -> None:
    with pytest.raises(UserError, match=r"sample\[0\].*'node_memori'.*vmstat.*, node_memory"):
        load_capture({"sample": ["node_memori"]}, lab)


def test_what_it_says_becomes_series_by_node(
    lab: Path, trace: Trace, three_nodes: Topology
) -> None:
    capture = load_capture({"sample": ["node_memory"]}, lab)
    added = parse_added(SAID, capture.added)
    assert added.rows() == [
        (1000, "node_memory", "MemFree", 0, 2.0),
        (1000, "node_memory", "MemFree", 2, 1.0),
        (2000, "node_memory", "MemFree", 0, 1.0),
        (2000, "node_memory", "AnonPages", 0, 0.5),
        (2000, "node_memory", "MemFree", 63, 1.0),
    ]
    events = trace.table(trace.mark(500, "numalab: begin"), trace.mark(2500, "numalab: end"))
    taken = replace(parse_samples(""), added=added)
    run = analyse(Recording(events, three_nodes, tasks=[], samples=taken))
    findings = [curve for curve in run.findings.series if curve.name.startswith("node_memory")]
    # Node 63 is none of this machine.
    assert [(curve.title, curve.node, curve.at_ms, curve.values) for curve in findings] == [
        ("Memory of the nodes: AnonPages", 0, (0.0015,), (0.5,)),
        ("Memory of the nodes: MemFree", 0, (0.0005, 0.0015), (2.0, 1.0)),
        ("Memory of the nodes: MemFree", 2, (0.0005,), (1.0,)),
    ]


def source(read: Callable[[Mapping[str, str]], Iterable[Any]], **more: Any) -> SampledSource:
    return SampledSource("mine", "Mine", "pages", "/proc/mine", read, **more)


@pytest.mark.parametrize(
    "line",
    [
        "mine\t/proc/mine",  # no text
        "yours\t/proc/mine\t1",
        "mine\t/proc/mine\tno number",
        f"mine\t/proc/mine\t{10**30}",
        "mine\t/proc/mine\tnan",
        "mine\t/proc/mine\tinf",
        f"mine\t/proc/mine\t{'9' * 5000}",
        "mine /proc/mine 1",
        "\0\tmine",
    ],
)
def test_what_a_guest_makes_up_is_left_out(line: str) -> None:
    def read(texts: Mapping[str, str]) -> Iterable[SampledValue]:
        return [SampledValue("value", float(text)) for text in texts.values()]

    added = parse_added(f"@ 5\n{line}\n@ 6\nmine\t/proc/mine\t7\n", [source(read)])
    assert added.rows() == [(6, "mine", "value", None, 7.0)]


def test_names_and_nodes_that_no_page_can_show_are_left_out() -> None:
    values = [SampledValue(name, 1, node) for name in ("ok", "<b>", "") for node in (0, 64, -1)]
    added = parse_added("@ 5\nmine\t/proc/mine\t7\n", [source(lambda _: values)])
    assert added.select("counter", "node").rows() == [("ok", 0)]
    many = [SampledValue(f"c{number}", 1) for number in range(50)]
    assert parse_added("@ 5\nmine\t/proc/mine\t7\n", [source(lambda _: many)]).height == 16


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda _: ["text"], "gave a str, not a SampledValue"),
        (lambda _: [SampledValue("a", "7")], "failed: TypeError: .*is not a text, a number"),  # type: ignore[arg-type]
        (lambda _: 1 / 0, "mine samples failed: ZeroDivisionError"),
    ],
)
def test_a_mistake_of_the_plug_in_is_told_as_one(read: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_added("@ 5\nmine\t/proc/mine\t7\n", [source(read)])


@pytest.mark.parametrize(
    "change",
    [
        {"name": "Mine"},
        {"path": "/etc/passwd"},
        {"path": "/proc/../etc/passwd"},
        {"path": "/sys/a*/b*"},
        {"path": "/proc/a b"},
    ],
)
def test_what_could_not_be_sampled_is_refused(change: dict[str, str]) -> None:
    right: dict[str, Any] = {"name": "mine", "title": "", "unit": "", "path": "/proc/a/b*c/d"}
    SampledSource(**right, read=lambda _: [])
    with pytest.raises(UserError):
        SampledSource(**(right | change), read=lambda _: [])


@pytest.mark.usefixtures("without_plugins")
def test_a_name_is_given_once() -> None:
    register_source("mine", title="", unit="", path="/proc/mine")(lambda _: [])
    for name in ("mine", "vmstat"):
        with pytest.raises(UserError, match=f"'{name}' already"):
            register_source(name, title="", unit="", path="/proc/mine")(lambda _: [])


def _parts(texts: Mapping[str, str]) -> int:
    """Count the records, between which the files have lines without text."""
    return sum(len(text.strip().split("\n\n")) for text in texts.values())


def test_the_sampler_reads_while_the_command_runs(tmp_path: Path) -> None:
    """The program itself, on this host: it becomes the command, and is none of its children."""
    (tmp_path / "empty").mkdir()
    program = tmp_path / "numalab-sample"
    program.write_bytes(build_workload(tmp_path / "empty", sampler())["numalab-sample"])
    program.chmod(0o755)
    texts = {"0": "one\n\ntwo\n", "2": "three", "10": "\nfour\n", "3": "", "x": "no", "4096": "no"}
    for number, text in texts.items():
        (tmp_path / f"file{number}").write_text(text)
    words: list[str | Path] = [
        program,
        tmp_path / "out",
        "10",
        "a",
        tmp_path / "file*",
        "b",
        tmp_path / "none",
        "--",
    ]
    with subprocess.Popen([*words, sys.executable, "-c", COMMAND], stdout=subprocess.PIPE) as done:
        assert done.stdout is not None
        assert int(done.stdout.read()) == done.pid
    assert done.returncode == 7
    moments = (tmp_path / "out").read_text().split("@ ")[1:]
    assert len(moments) > 3
    times = [int(moment.partition("\n")[0]) for moment in moments]
    assert times == sorted(times)
    lines = [line.split("\t") for line in moments[-1].splitlines()[1:]]
    assert [(name, Path(path).name, text) for name, path, text in lines] == [
        ("a", "file0", "one"),
        ("a", "file0", ""),
        ("a", "file0", "two"),
        ("a", "file2", "three"),
        ("a", "file10", ""),
        ("a", "file10", "four"),
    ]
    added = parse_added(
        (tmp_path / "out").read_text(),
        [SampledSource("a", "", "", "/proc/a", lambda texts: [SampledValue("n", _parts(texts))])],
    )
    assert added["value"].unique().to_list() == [4.0]
    assert added.select(pl.col("time_ns").n_unique()).item() == len(moments)
