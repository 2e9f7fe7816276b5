"""docs/reference/measures.md: its tables are those of the registry, and its plug-in works."""

import re
from pathlib import Path

import pytest

from numalab.analysis.analyse import analyse_run
from numalab.analysis.measures import catalogue, migrations
from numalab.analysis.measures.catalogue import BUILT_IN
from numalab.analysis.measures.family import MeasureGroup
from numalab.errors import UserError
from numalab.plugins import Registry
from support.measures_page import render_tables, tables_of
from support.small_traces import Trace

PAGE = Path(__file__).parents[3] / "docs/reference/measures.md"


def test_the_tables_are_those_of_the_registry(request: pytest.FixtureRequest) -> None:
    page = PAGE.read_text(encoding="utf-8")
    rendered = render_tables(page, BUILT_IN)
    if request.config.getoption("--regenerate"):
        PAGE.write_text(rendered, encoding="utf-8")
    assert rendered == PAGE.read_text(encoding="utf-8")


def test_every_group_with_measures_has_a_table() -> None:
    named = tables_of(PAGE.read_text(encoding="utf-8"))
    assert sorted(named) == sorted(group.name for group in BUILT_IN if group.families)
    with pytest.raises(KeyError, match="no such group"):
        render_tables("<!-- measures: no such group -->\n<!-- end -->", BUILT_IN)


def test_a_plug_in_adds_a_measure_with_one_file(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of the page, as it stands there."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    registry = Registry[MeasureGroup]("group of measures")
    for group in BUILT_IN:
        registry.add(group.name, group)
    monkeypatch.setattr(catalogue, "_REGISTRY", registry)
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "most_moves.py").write_text(code)
    monkeypatch.setenv("NUMALAB_HOME", str(tmp_path))
    moves = [("hog:7", 0, 1), ("hog:8", 1, 2), ("hog:7", 1, 0)]
    events = trace.table(
        trace.switch(100, 0, "hog:7", "idle"),
        *(trace.migrate(200 + at, *move) for at, move in enumerate(moves)),
    )
    found = {each.name: each for each in analyse_run(events, None, tasks=[]).measures}
    assert found["task_moves_most"].value == 2
    assert catalogue.explain("task_moves_most").unit == "moves"
    with pytest.raises(UserError, match="'task_migrations' already"):
        catalogue.register(MeasureGroup("more", migrations.GROUP.families, lambda _: ()))
