"""The command line: help, one message for an error, its exit code."""

import io
import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer

from numalab.cli.main import COMMANDS, application
from numalab.cli.output import pass_on
from numalab.locks import locked
from support.example_results import copy_example
from support.forked import numalab

NUMALAB = (sys.executable, "-c", "from numalab.cli.entry import main; main()")


def test_help_lists_every_command() -> None:
    done = numalab("--help")
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)


def test_help_imports_no_slow_library() -> None:
    argv = [NUMALAB[0], "-X", "importtime", *NUMALAB[1:], "--help"]
    lines = subprocess.run(argv, capture_output=True, text=True, check=True).stderr.splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines}
    assert "numalab.cli.main" in modules
    slow = {"importlib.metadata", "jinja2", "libvirt", "numpy", "polars", "pydantic", "rich"}
    assert not modules & slow


def help_texts(command: Any) -> Iterator[str]:
    yield command.get_help(typer.Context(command))
    for subcommand in getattr(command, "commands", {}).values():
        yield from help_texts(subcommand)


@pytest.mark.parametrize(
    "name", [None, *(name for name, (room, _) in COMMANDS.items() if room == "inputs")]
)
def test_lists_of_commands_are_not_cut(name: str | None) -> None:
    text = numalab(*filter(None, [name]), "--help", env={**os.environ, "COLUMNS": "80"}).stdout
    assert not [line for line in text.splitlines()[1:] if line.endswith("...")]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_no_path_that_a_wheel_lacks(name: str) -> None:
    texts = list(help_texts(typer.main.get_command(application(name))))
    assert len(texts) > len(COMMANDS)
    assert not [text for text in texts if "docs/" in text or "tests/" in text]


def test_version() -> None:
    first, *rest = numalab("--version").stdout.splitlines()
    assert first == f"numalab {version('numalab')}"
    assert [line.split()[0] for line in rest] == ["QEMU", "libvirt"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("no-such-command", "no command is called 'no-such-command'"),
        ("--no-such-option", "No such option"),
    ],
)
def test_usage_errors_exit_2_without_a_traceback(word: str, message: str) -> None:
    done = numalab(word)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(
    "words", [("measures",), ("measures", "--json"), ("topology", "show", "ring-4"), ("--help",)]
)
def test_output_that_cannot_be_written_is_the_hosts_failure(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*NUMALAB, *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert done.stderr == "numalab: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("words", [("topology", "show", "ring-4"), ("measures",)])
def test_a_terminal_that_knows_only_ascii(words: tuple[str, ...]) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    argv = [*NUMALAB, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()


def test_a_name_that_is_no_utf_8_is_shown() -> None:
    done = numalab("topology", "show", os.fsdecode(b"a\xff"))
    assert done.returncode == 2
    assert "numalab: no topology is called 'a" in done.stderr


@pytest.mark.parametrize("words", [("topology", "list"), ("report", "x")])
def test_a_current_folder_that_was_removed_is_named(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = 'cd "$0" && rmdir "$0" && exec "$@"'
    env = {name: value for name, value in os.environ.items() if name != "NUMALAB_HOME"}
    argv = ["sh", "-c", script, str(tmp_path / "gone"), *NUMALAB, *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == "numalab: the current folder was removed\n"


def _catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler of a signal (proc_pid_status(5), SigCgt)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


def test_two_signals_at_once_end_it_without_a_traceback() -> None:
    """A second signal that is ignored all of a sudden makes Python print a traceback."""
    for number in range(6):
        process = subprocess.Popen(
            [*NUMALAB, "measures"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None and not _catches(process.pid, signal.SIGTERM):
            time.sleep(0.01)  # a busy host starts Python late
        time.sleep(number / 10)
        for sent in (signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGCONT):
            process.send_signal(sent)
        _, printed = process.communicate()
        assert printed in ("", "numalab: interrupted\n")
        assert process.returncode in (130, 143, 0, -signal.SIGTERM, -signal.SIGINT)


def test_a_signal_during_imports_ends_them_afterwards_and_a_later_one_at_once() -> None:
    program = """
        import os, signal, sys, types
        from numalab.cli import interrupts
        from numalab.cli.entry import main

        def run():
            with interrupts.hold_signals():
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGINT)
                print("goes on", flush=True)
                if "hangs" in sys.argv:
                    interrupts._Received.at -= 30
                    os.kill(os.getpid(), signal.SIGTERM)
                    print("still goes on", flush=True)
            print("ends", flush=True)

        sys.modules["numalab.cli.main"] = types.SimpleNamespace(main=run)
        main()
    """
    for words, times in (((), 1), (("hangs",), 2)):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program), *words],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stdout == "goes on\n"
        assert done.stderr == "numalab: interrupted\n" * times
        assert done.returncode == 128 + signal.SIGTERM


def test_a_later_signal_ends_a_command_that_lost_the_first() -> None:
    """Python ignores an exception in `__del__`."""
    program = """
        import os, signal, sys, types
        from numalab.cli import interrupts
        from numalab.cli.entry import main

        class Ended:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)

        def run():
            sys.unraisablehook = lambda _: None
            Ended()
            os.kill(os.getpid(), signal.SIGINT)
            print("goes on", flush=True)
            interrupts._Received.at -= 30
            os.kill(os.getpid(), signal.SIGINT)
            print("still goes on", flush=True)

        sys.modules["numalab.cli.main"] = types.SimpleNamespace(main=run)
        main()
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout == "goes on\n"
    assert done.stderr == "numalab: interrupted\n" * 2
    assert done.returncode == 128 + signal.SIGTERM


def test_ctrl_c_ends_the_wait_for_a_lock(tmp_path: Path) -> None:
    """The module of the command imports polars, whose handler restarts system calls."""
    program = """
        import sys
        from pathlib import Path
        from numalab.cli.interrupts import handle_signals
        from numalab.cli.main import application
        from numalab.locks import locked
        handle_signals()
        application("patch")
        assert "polars" in sys.modules
        with locked(Path(sys.argv[1]), lambda: print("waits", flush=True)):
            pass
    """
    path = tmp_path / "lock"
    with locked(path):
        words = [sys.executable, "-c", textwrap.dedent(program), str(path)]
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        time.sleep(0.2)  # until it waits for the lock
        process.send_signal(signal.SIGINT)
        try:
            _, printed = process.communicate(timeout=20)
        finally:
            process.kill()
    assert printed.startswith("numalab: interrupted\n")


def test_a_library_that_makes_an_error_of_a_signal_prints_no_traceback() -> None:
    program = """
        import os, signal, sys, types
        from numalab.cli.entry import main

        def run():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt:
                raise ValueError("Error building serializer")

        sys.modules["numalab.cli.main"] = types.SimpleNamespace(main=run)
        main()
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stderr == "numalab: interrupted\n"
    assert done.returncode == 128 + signal.SIGTERM


def test_the_document_of_a_signal_has_its_exit_code() -> None:
    program = """
        import os, signal, sys
        from numalab.cli import main
        from numalab.cli.entry import main as start

        def run():
            os.kill(os.getpid(), signal.SIGTERM)
            return 0

        sys.argv, main._run = ["numalab", "measures", "--json"], run
        start()
    """
    words = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + signal.SIGTERM
    assert done.stdout == "" or json.loads(done.stdout)["exit_code"] == done.returncode


def test_what_a_guest_printed_goes_through_as_it_is_but_not_to_a_terminal() -> None:
    said = b"caf\xc3\xa9\t1\n\x1b]0;owned\x07\x1b[2J\x9b\xff dos\r\nhidden\rshown\n"
    plain = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    pass_on(said, plain)
    plain.seek(0)
    assert plain.buffer.read() == said
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as screen:
        pass_on(said, screen)
        shown = os.read(ours, 4096)
    os.close(ours)
    text = shown.replace(b"\r\n", b"\n").decode()
    assert text == "caf\u00e9\t1\n?]0;owned??[2J\ufffd\ufffd dos\nhidden?shown\n"


def test_a_traceback_is_shown_only_to_who_asks_for_it() -> None:
    for words, shown in (
        (("topology", "show", "none"), False),
        (("--debug", "topology", "show", "none"), True),
        (("boot", "none", "--", "mine", "--debug"), False),  # the guest's own option
    ):
        done = numalab(*words)
        assert ("Traceback" in done.stderr) is shown
        assert "no topology is called 'none'" in done.stderr


def test_the_answer_to_a_query_in_three_forms(tmp_path: Path) -> None:
    results = copy_example(tmp_path / "results")
    asked = ("query", str(results), "SELECT seed, 0.5 AS half, CAST(1 AS DOUBLE) / 0 AS none, "
             "CAST('2026-11-22' AS DATE) AS day FROM runs ORDER BY variant")  # fmt: skip
    row = "1,0.5,inf,2026-11-22\n"
    assert numalab(*asked, "--csv").stdout == f"seed,half,none,day\n{row}{row}"
    rows = json.loads(numalab(*asked, "--json").stdout)
    assert rows == [{"seed": 1, "half": 0.5, "none": None, "day": "2026-11-22"}] * 2
    assert numalab(*asked).stdout.rstrip().endswith("2 rows")


def test_a_query_into_a_pipe_breaks_no_name(tmp_path: Path) -> None:
    results = copy_example(tmp_path / "results")
    names = [f"name_of_column_{number}" for number in range(9)]
    sql = f"SELECT {', '.join(f'seed AS {name}' for name in names)} FROM runs"
    assert numalab("query", str(results), sql).stdout.splitlines()[0].split() == names


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("boot", "rign-4", "--json", "--", "true"), 2, "did you mean ring-4"),
        (("plan", "nothing", "--json"), 2, "no study 'nothing'"),
        (("boot", "ring-4", "--bogus", "--json", "--", "true"), 2, "stderr"),
    ],
)
def test_an_error_is_one_json_document(words: tuple[str, ...], code: int, message: str) -> None:
    done = numalab(*words)
    assert done.returncode == code
    document = json.loads(done.stdout)
    assert document["exit_code"] == code
    assert message in document["error"]
    assert done.stderr


def test_words_for_the_guest_ask_for_no_document() -> None:
    assert not numalab("boot", "rign-4", "--", "lscpu", "--json").stdout


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("failed to spawn a thread: Resource temporarily unavailable", 3, "starts no more threads"),
        ("index out of bounds", 70, "internal error: RuntimeError: index out of bounds"),
    ],
)
def test_a_panic_of_a_library_in_rust_is_one_message(text: str, code: int, message: str) -> None:
    """It is no Exception, and the host's lack of threads no fault of numalab's."""
    script = (
        "from numalab.cli import main\n"
        "class PanicException(BaseException): ...\n"
        f"def panic(words): raise PanicException({text!r})\n"
        "main.application = panic\nmain.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert message in done.stderr and "Traceback" not in done.stderr
