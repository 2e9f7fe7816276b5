"""The command line itself: help that teaches, one message for an error, its exit code."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from lab.cli.main import COMMANDS


def numalab(*words: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-c", "from lab.cli.entry import main; main()", *words]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_help_lists_every_command() -> None:
    done = numalab("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


def test_version() -> None:
    assert numalab("--version").stdout == version("numalab") + "\n"


@pytest.mark.parametrize("words", [("no-such-command",), ("--no-such-option",)])
def test_usage_errors_exit_2_without_a_traceback(words: tuple[str, ...]) -> None:
    done = numalab(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "No such" in done.stderr
