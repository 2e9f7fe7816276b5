"""Standard streams that are closed, full or without a reader, and errors that nobody expected."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

NUMALAB = f"{sys.executable} -c 'from numalab.cli.entry import main; main()'"
SHOW, NONE, USAGE = "topology show ring-4", "topology show none", "no-such-command"
# Every command that needs no guest, and `--help` of the groups, prints something.
PRINTING = (SHOW, "topology list --json", "measures", "workload list", "kernel list", "--help",
            "kernel --help", "--version")  # fmt: skip


def shell(words: str) -> "subprocess.CompletedProcess[str]":
    line = f"{NUMALAB} {words}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("words", PRINTING)
@pytest.mark.parametrize(
    ("streams", "reason"),
    [(">&-", "Bad file descriptor"), (">/dev/full", "No space left on device"),
     ("<&- >&-", "Bad file descriptor")],
)  # fmt: skip
def test_a_result_that_cannot_be_printed_is_the_hosts_failure(
    words: str, streams: str, reason: str
) -> None:
    done = shell(f"{words} {streams}")
    assert done.stderr == f"numalab: cannot write the output: {reason}\n"
    assert done.returncode == 3


@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&-", "<&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [(SHOW, 0), (NONE, 2), (USAGE, 2), ("--help", 0)])
def test_a_lost_message_leaves_the_result_and_the_exit_code_alone(
    words: str, code: int, streams: str
) -> None:
    done = shell(f"{words} {streams}")
    assert (done.returncode, bool(done.stdout)) == (code, code == 0)


@pytest.mark.parametrize("streams", [">&- 2>&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "code"), [(SHOW, 3), (NONE, 2), (USAGE, 2)])
def test_the_exit_code_says_what_no_stream_can(words: str, code: int, streams: str) -> None:
    assert shell(f"{words} {streams}").returncode == code


@pytest.mark.parametrize("words", PRINTING)
def test_a_reader_that_has_gone(words: str) -> None:
    read, write = os.pipe()
    os.close(read)
    argv = ["bash", "-c", f"{NUMALAB} {words}"]
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_a_document_is_json_in_any_encoding(encoding: str) -> None:
    value = {"caf\xe9 \U0001f600": "\u2192"}
    program = f"""
        from numalab.cli.output import emit
        from numalab.cli.streams import open_streams

        open_streams()
        emit({value!a}, True, "")
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    env = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(words, capture_output=True, env=env, check=True)
    assert json.loads(done.stdout.decode(encoding)) == value


PRINTED = 300_000  # bytes, more than a pipe holds
PRINTS = """
    import sys
    import numalab.cli.main as main
    from numalab.cli.entry import main as entry
    from numalab.cli.output import emit, pass_on

    def printing(standalone_mode):
        text = "0123456789" * 30_000
        {}

    main.application = lambda _wanted: printing
    entry()
"""
WAYS = ("pass_on(text.encode(), sys.stdout)", "emit(text, False, text)", "emit([text], True, '')")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("blocking", [True, False])
def test_a_slow_reader_gets_every_byte(way: str, unbuffered: str, blocking: bool) -> None:
    read, write = os.pipe()
    os.set_blocking(write, blocking)
    words = [sys.executable, "-c", textwrap.dedent(PRINTS).format(way)]
    with subprocess.Popen(
        words,
        stdout=write,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
    ) as command:
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            first = pipe.read(1)
            for _ in range(5):  # a signal in the middle of a write makes it a short one
                command.send_signal(signal.SIGSTOP)
                command.send_signal(signal.SIGCONT)
                time.sleep(0.05)
            size = len(first + pipe.read())
        assert (command.wait(), command.communicate()[1]) == (0, b"")
    assert size >= PRINTED


@pytest.mark.parametrize("way", WAYS)
def test_a_reader_that_leaves_in_the_middle_of_a_write(way: str) -> None:
    words = [sys.executable, "-c", textwrap.dedent(PRINTS).format(way)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as command:
        assert command.stdout is not None
        os.read(command.stdout.fileno(), 1)
        command.stdout.close()
        assert command.wait() == 141


def test_no_file_gets_the_descriptor_of_a_closed_stream(tmp_path: Path) -> None:
    report = tmp_path / "lab"
    done = shell(f"init {report} <&- >&- 2>&-")
    assert done.returncode == 0
    texts = [path.read_bytes() for path in report.rglob("*") if path.is_file()]
    assert texts and not any(b"made " in text and b"numalab:" in text for text in texts)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ("OSError(13, 'Permission denied', 'a\\nb')", 3, "numalab: a\\nb: Permission denied\n"),
        ("OSError(24, 'Too many open files')", 3, "numalab: Too many open files\n"),
        ("MemoryError()", 3, "numalab: this host has too little memory\n"),
        ("KeyError('x\\ny')", 70, "numalab: internal error: KeyError: 'x\\ny'\n  hint: repeat"),
        ("UserError('no', file='a\\n\\x1b[2J')", 2, "numalab: a\\n\\x1b[2J: no\n"),
    ],
)
def test_any_error_is_one_message(error: str, code: int, message: str) -> None:
    program = f"""
        import numalab.cli.main as main
        from numalab.cli.entry import main as entry
        from numalab.errors import UserError

        def raising(_wanted):
            raise {error}

        main.application = raising
        entry()
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr.startswith(message)
    assert done.returncode == code
    shown = subprocess.run([*words, "--debug"], capture_output=True, text=True, check=False)
    assert shown.returncode == code
    assert "Traceback" in shown.stderr and message in shown.stderr
