"""`numalab trace` of recordings in which next to nothing happened."""

from pathlib import Path
from typing import Any

import pytest

from numalab.capture import pages
from numalab.report.build.recording import MeasuredRecording, measure_recording
from numalab.run_dir import RunDir
from numalab.topology.load import load_topology


@pytest.fixture(params=[None, "ring-4"])
def topology(request: pytest.FixtureRequest) -> str | None:
    name: str | None = request.param
    return name


def measured(tmp_path: Path, topology: str | None, data: bytes) -> MeasuredRecording:
    (tmp_path / "trace.dat").write_bytes(data)
    machine = load_topology(topology) if topology else None
    return measure_recording(tmp_path / "trace.dat", machine, RunDir(tmp_path / "out"))


def test_a_recording_without_what_a_measure_needs_gives_no_0(
    tmp_path: Path, write: Any, topology: str | None
) -> None:
    empty = write.trace_dat([b"", b""])
    marker = write.trace_dat([write.page(1000, write.item(0, write.marker(5, b"hello")))])
    for data in (empty, marker):
        by_name = measured(tmp_path, topology, data)
        values = {measure.name: measure.value for measure in by_name.analysis.measures}
        assert values.pop("unknown_time") == 0
        assert set(values.values()) == {None}
        assert not by_name.analysis.window.begun


def test_two_switches_show_who_ran_and_no_more(
    tmp_path: Path, write: Any, topology: str | None
) -> None:
    switches = [
        write.item(0, write.switch(7, b"x", 0, 8, b"y")),
        write.item(1000, write.switch(8, b"y", 0, 7, b"x")),
    ]
    by_name = measured(tmp_path, topology, write.trace_dat([write.page(1000, *switches)]))
    values = {measure.name: measure.value for measure in by_name.analysis.measures}
    assert values["task_busy_share_cpu0"] == 100
    assert values["task_migrations"] is None
    assert values["idle_while_overloaded"] is None
    if topology:
        assert values["tasks_final_node0"] == 2
        assert values["task_node_changes"] == 0
    else:
        assert values["task_node_changes"] is None


@pytest.mark.parametrize(
    ("missed", "note"),
    [
        (5, "at least 5 events missing, at 1 place"),
        (1, "at least 1 event missing, at 1 place"),
        (-1, "events are missing, at 1 place; nobody knows how many"),
    ],
)
def test_lost_events_are_told(
    tmp_path: Path, write: Any, topology: str | None, missed: int, note: str
) -> None:
    page = write.page(1000, write.item(0, write.switch(7, b"x", 0, 8, b"y")), missed=missed)
    by_name = measured(tmp_path, topology, write.trace_dat([page]))
    assert (by_name.decoded.gaps, by_name.decoded.lost) == (1, max(missed, 0))
    assert note in by_name.notes


def test_a_long_recording_shows_its_progress_and_an_interrupted_one_leaves_no_events(
    tmp_path: Path, write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = [write.page(1000 * at, write.item(1, write.wakeup(1, b"a", 0))) for at in range(1, 10)]
    (tmp_path / "trace.dat").write_bytes(write.trace_dat([b"".join(steps)]))
    monkeypatch.setattr(pages, "CHUNK_BYTES", 2 * 4096)
    lines: list[tuple[str, float]] = []

    def on_progress(text: str, fraction: float | None) -> None:
        assert fraction is not None
        lines.append((text, fraction))

    directory = RunDir(tmp_path / "out")
    measure_recording(tmp_path / "trace.dat", None, directory, on_progress=on_progress)
    fractions = [fraction for text, fraction in lines if text == "decode"]
    assert fractions == pytest.approx([2 / 9, 4 / 9, 6 / 9, 8 / 9])
    assert directory.events.exists()
    texts = {text for text, _ in lines}
    assert {"find events", "decode"} <= texts

    for last in texts:

        def interrupt(text: str, _: float | None, last: str = last) -> None:
            if text == last:
                raise KeyboardInterrupt

        other = RunDir(tmp_path / "other")
        with pytest.raises(KeyboardInterrupt):
            measure_recording(tmp_path / "trace.dat", None, other, on_progress=interrupt)
        assert not list(other.path.rglob("*"))
