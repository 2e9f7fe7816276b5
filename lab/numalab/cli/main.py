"""`numalab`: finds the command, and is the one place that turns an error into an exit code."""

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from itertools import takewhile
from typing import Annotated, NoReturn

import typer

from numalab.cli.group import CommandGroup
from numalab.cli.output import say
from numalab.cli.streams import drop_output
from numalab.errors import HostError, LabError, UserError, shown

OUTPUT_CLOSED = 141  # 128 + SIGPIPE
INTERNAL_ERROR = LabError.exit_code
_UNWRITTEN = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# Each is a module of the room that stands beside it, below numalab.cli, and has either `app` (a
# group) or `command` (one command).
COMMANDS = {
    "run": ("study", "Run studies: build, boot, record, measure, report."),
    "plan": ("study", "Say what a study would run and how long it takes."),
    "status": ("study", "Say how far a study is, also while it runs."),
    "report": ("results", "Print or write the report of results that exist."),
    "query": ("results", "SQL over runs, measures and events."),
    "verify": ("results", "Do runs again and compare their events, row by row."),
    "export": ("results", "Pack results into one file."),
    "import": ("results", "Unpack results that somebody else packed."),
    "hunt": ("hunt", "Look for machines and loads on which a kernel misbehaves."),
    "bisect": ("study", "Find the commit or patch that changed a measure."),
    "measure": ("results", "Compute new measures for stored runs."),
    "compare": ("results", "Compare two results of a study; for CI."),
    "init": ("study", "Make a lab folder of one's own."),
    "trace": ("results", "Measure any trace.dat, also from bare metal."),
    "measures": ("inputs", "List every measure and what it means."),
    "boot": ("guest", "Run one command in a guest and print what it prints."),
    "shell": ("guest", "Open a shell in a guest, on this terminal."),
    "place": ("guest", "Say where a guest would run on this host, and what that distorts."),
    "host": ("guest", "The host as hardware: show it, record it."),
    "doctor": ("guest", "Say what this host has and lacks, and how to fix it."),
    "topology": ("inputs", "Machines: list, show, check, predict, compare, import."),
    "kernel": ("inputs", "Kernels: list, show, build, try a patch."),
    "emulator": ("inputs", "Emulators for mode timed: list, show, build."),
    "image": ("inputs", "Root file systems: list, show, build, shell."),
    "workload": ("inputs", "What studies can run: list, show."),
    "cache": ("inputs", "The cache: list, prune."),
}
# `import` is a keyword, which a module cannot be called.
MODULES = {"import": "import_archive"}


def main() -> NoReturn:
    """Run the command line and exit with the code of what happened."""
    # What comes after `--` is a command for a guest.
    debug = "--debug" in takewhile(lambda word: word != "--", sys.argv[1:])
    code = _exit_code(_run, debug=debug)
    _warn_of_skipped()
    failed = _exit_code(_flush, debug=debug)
    sys.exit(code or failed)


def _warn_of_skipped() -> None:
    """Name the inputs that were left out of what the command listed."""
    if places := sys.modules.get("numalab.places"):
        for error in places.skipped_inputs():
            say(f"warning: left out: {str(error).splitlines()[0]}")


def _exit_code(part: Callable[[], int], *, debug: bool) -> int:
    """Return the exit code of a part of a command; print one message where it fails."""
    try:
        return part()
    except BrokenPipeError:
        drop_output()
        return OUTPUT_CLOSED
    except Exception as error:  # the last resort: no command ends with a traceback
        if debug:
            traceback.print_exc()
        code, message = _explained(error)
        say(f"numalab: {message}")
        return code


def _run() -> int:
    """Run the command and return its exit code."""
    try:
        application(_wanted(sys.argv[1:]))(standalone_mode=True)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # typer exits with 1
            raise end.__context__ from None
        return end.code if isinstance(end.code, int) else 0
    return 0


def _flush() -> int:
    sys.stdout.flush()
    return 0


def _explained(error: Exception) -> tuple[int, str]:
    """Return the exit code and the message of an error."""
    match error:
        case LabError():
            return error.exit_code, str(error)
        case OSError(filename=None) if error.errno in _UNWRITTEN:
            drop_output()
            return HostError.exit_code, f"cannot write the output: {error.strerror}"
        case OSError(errno=errno.ENAMETOOLONG | errno.ELOOP, filename=str()):
            return UserError.exit_code, str(UserError(str(error.strerror), file=error.filename))
        case OSError():
            name = error.filename
            where = f"{shown(os.fsdecode(name))}: " if isinstance(name, str | bytes) else ""
            return HostError.exit_code, f"{where}{error.strerror or error}"
        case MemoryError():
            return HostError.exit_code, "this host has not enough memory"
    first = str(error).partition("\n")[0][:300]
    advice = "run it again with --debug and report what it prints"
    return INTERNAL_ERROR, f"internal error: {type(error).__name__}: {first}\n  hint: {advice}"


def _wanted(arguments: list[str]) -> str | None:
    if completing := os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS"):
        arguments = completing.split()[1:]  # the shell asks how a line may go on
    return next((word for word in arguments if not word.startswith("-")), None)


def application(wanted: str | None) -> typer.Typer:
    """Build the application, importing only the module of the command that was asked for."""
    app = typer.Typer(
        cls=CommandGroup,
        no_args_is_help=True,
        add_completion=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_numalab)
    for name, (room, summary) in COMMANDS.items():
        if name != wanted:
            app.command(name, help=summary)(_listed_only)
            continue
        module = importlib.import_module(f"numalab.cli.{room}.{MODULES.get(name, name)}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, help=summary, cls=CommandGroup)
        else:
            app.command(name)(module.command)
    return app


def _listed_only() -> None:
    """Stand in `--help`'s list for a command whose module was not imported."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"numalab {version('numalab')}")
        from numalab.doctor.checks import components  # noqa: PLC0415 - only this option needs it

        for name, release in components():
            print(f"{name} {release}")
        raise typer.Exit


def _numalab(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions: numalab's, QEMU's, libvirt's.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """A NUMA topology lab for Linux scheduler developers.

    Boots a kernel on virtual machines of any NUMA shape, records what NUMA balancing decided, and
    reports what a patch changed. Try `numalab boot ring-4 -- numactl -H`.
    """
