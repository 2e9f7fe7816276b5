"""A measure from a plug-in folder outside the package."""

from pathlib import Path

import pytest

from numalab.analysis.analyse import analyse
from numalab.analysis.measures import counters, migrations
from numalab.analysis.measures.catalogue import explain
from numalab.analysis.measures.family import register_measure, register_measures
from numalab.errors import UserError
from numalab.recording.recording import Recording
from support.small_traces import Trace

PLUGIN = '''
from numalab.api import Recording, register_measure


@register_measure(
    "task_moves_most", unit="moves", direction="lower", events=["sched_migrate_task"]
)
def task_moves_most(run: Recording) -> int:
    """The most moves of one task to another CPU in the window."""
    moves = run.events("sched_migrate_task")
    return int(moves["event_pid"].value_counts()["count"].max() or 0)
'''


@pytest.mark.usefixtures("without_plugins")
def test_a_plug_in_adds_a_measure_with_one_file(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "most_moves.py").write_text(PLUGIN)
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    moves = [("hog:7", 0, 1), ("hog:8", 1, 2), ("hog:7", 1, 0)]
    events = trace.table(
        trace.switch(100, 0, "hog:7", "idle"),
        *(trace.migrate(200 + at, *move) for at, move in enumerate(moves)),
    )
    measures = {measure.name: measure for measure in analyse(Recording(events)).measures}
    assert measures["task_moves_most"].value == 2
    info = explain("task_moves_most")
    assert (info.unit, info.direction) == ("moves", "lower")
    assert info.definition == "The most moves of one task to another CPU in the window."


@pytest.mark.usefixtures("without_plugins")
def test_a_name_is_taken_once() -> None:
    for group in (migrations.GROUP, *counters.GROUPS):
        with pytest.raises(UserError, match=f"{group.families[0].name!r} already"):
            register_measures("more", group.families, lambda _: ())
    with pytest.raises(UserError, match="'storms' already"):
        register_measure("storms", unit="storms")(lambda _: 1)
