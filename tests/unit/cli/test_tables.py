"""Tables and texts that commands print for people."""

import pytest
from rich.console import Group
from rich.table import Table
from rich.text import Text

from numalab.cli.output import emit


def test_a_rich_text_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("stresses")
    table.add_row(Text("memory\x1b[31m\x07"))
    emit(None, as_json=False, text=Group(Text("a title: \x1b]0;root#\x07 [bold]"), "", table))
    title, empty, _, row = capsys.readouterr().out.splitlines()
    assert (title, empty.strip()) == (r"a title: \x1b]0;root# [bold]", "")
    assert row == r"memory\x1b[31m"
