"""The harness of the fuzzers: what a child must not do is seen, and what it may do is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz import commands
from fuzz.command_tree import commands as every_command
from fuzz.commands import SECRET, Box, documented_codes
from numalab.cli.main import COMMANDS

TRAP = "../outside/secret.txt"


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Box]:
    yield Box(tmp_path)
    commands.end_processes(tmp_path, 0.0)


def judged(box: Box, code: str, **more: object) -> int:
    return box.check(box.run(program=("-P", "-c", code), **more))  # type: ignore[arg-type]


def test_a_command_that_keeps_the_rules_passes(box: Box) -> None:
    assert judged(box, "open('mine', 'w').write('x')") == 0
    assert judged(box, "import sys; print('no such file', file=sys.stderr); sys.exit(2)") == 2
    assert judged(box, "print('as on a terminal')", terminal=True) == 0


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("1 / 0", "not one message"),
        ("import os; print('x'); os._exit(77)", "exit code 77"),
        ("raise SystemExit(2)", "no message"),
        ("import sys; sys.stderr.write('x' * 10**6); sys.exit(2)", "bytes on stderr"),
        ("import sys; print('\\x1b[2J', file=sys.stderr)", "control characters"),
        (f"print(open('{TRAP}').read())", "a secret was printed"),
        (f"open('copy', 'w').write(open('{TRAP}').read())", "a secret was copied"),
        ("open('../outside/ran', 'w')", "hostile code ran"),
        (f"open('{TRAP}', 'a').write('x')", "something outside has changed"),
        ("open('../new', 'w')", "something outside has changed"),
        ("import os; open(os.environ['TMPDIR'] + '/x', 'w')", "temporary files are left"),
        ("import time; x = b'x' * (3 << 30); time.sleep(60)", "more than 2048 MiB"),
        ("import os, time; os.fork() or (os.setsid(), time.sleep(600))", "processes are left"),
    ],
)
def test_what_breaks_a_rule_is_seen(box: Box, code: str, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        judged(box, code)


def test_a_command_that_waits_for_ever_is_ended(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "ASLEEP", 2.0)
    with pytest.raises(AssertionError, match="asleep"):
        judged(box, "import os; os.mkfifo('pipe'); open('pipe')")


def test_control_characters_on_a_terminal_are_seen(box: Box) -> None:
    with pytest.raises(AssertionError, match="control characters"):
        judged(box, "print('\\x9b31m')", terminal=True)


def test_the_secret_is_in_no_file_of_the_project() -> None:
    assert SECRET not in Path(commands.__file__).read_text()


def test_every_command_and_every_code_is_known() -> None:
    assert {name.split()[0] for name in every_command()} == {*COMMANDS}
    assert documented_codes() == {*range(10), 70, 129, 130, 141, 143}
