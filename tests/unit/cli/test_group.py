"""Words that are no command."""

import sys

import pytest

from numalab.cli import main as module


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["topology", "shw", "ring-4"], "no command is called 'shw'; did you mean show? (valid: "),
        (["topology", "wrong", "ring4"], "no command is called 'wrong' (valid: list, show, check"),
        (["kernel", "LIST"], "no command is called 'LIST'; did you mean list? (valid: "),
        (["topolgy", "show"], "no command is called 'topolgy'; did you mean topology? (valid: "),
        (["boot", "ring4", "--", "true"], "called 'ring4'; did you mean ring-4? (valid: "),
        (["place", "ring-4", "--pin", "0,1"], "--pin: 2 host CPUs for 8 vCPUs"),
        (["place", "ring-4", "--nodes", "0"], "--nodes: 1 host nodes for 4 guest nodes"),
        (["place", "ring-4", "--cpus", "8000"], "--cpus: the host has none of the CPUs 8000"),
        (["boot", "ring-4", "--pin", "0,1", "true"], "--pin: 2 host CPUs for 8 vCPUs"),
        (["place", "ring4"], "called 'ring4'; did you mean ring-4? (valid: "),
    ],
)
def test_an_unknown_word_gets_a_suggestion_and_the_choices(
    words: list[str],
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["numalab", *words])
    with pytest.raises(SystemExit) as caught:
        module.main()
    assert caught.value.code == 2
    assert hint in capsys.readouterr().err
