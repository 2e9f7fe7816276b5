"""A measure from a plug-in folder outside the package."""

from pathlib import Path

import pytest

from numalab.analysis.analyse import analyse
from numalab.analysis.measures import command, migrations
from numalab.analysis.measures.family import explain, register_measure, register_measures
from numalab.cli.study import init
from numalab.errors import UserError
from numalab.recording.recording import Recording
from support.small_traces import Trace

PLUGIN = Path(init.__file__).parent / "lab_folder" / "plugins" / "example.py"


@pytest.mark.usefixtures("without_plugins")
def test_a_plug_in_adds_a_measure_with_one_file(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "most_moves.py").write_text(PLUGIN.read_text())
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    moves = [("hog:7", 0, 1), ("hog:8", 1, 2), ("hog:7", 1, 0)]
    events = trace.table(
        trace.switch(100, 0, "hog:7", "idle"),
        *(trace.migrate(200 + at, *move) for at, move in enumerate(moves)),
    )
    measures = {measure.name: measure for measure in analyse(Recording(events)).measures}
    assert measures["busiest_task_moves"].value == 2
    info = explain("busiest_task_moves")
    assert (info.unit, info.direction) == ("moves", "lower")
    assert info.definition == "The most moves of one task to another CPU."


@pytest.mark.usefixtures("without_plugins")
def test_a_name_is_taken_once() -> None:
    for group in (migrations.GROUP, *command.GROUPS[:-1]):
        with pytest.raises(UserError, match=f"{group.families[0].name!r} already"):
            register_measures("more", group.families, lambda _: ())
    with pytest.raises(UserError, match="'storms' already"):
        register_measure("storms", unit="storms")(lambda _: 1)
