"""`numalab`: runs a command and turns an error into a message and an exit code."""

import errno
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from numalab.cli.interrupts import hold_signals, interrupt_calls, received_signal
from numalab.cli.output import Documents, emit, say
from numalab.cli.streams import drop_output
from numalab.errors import HostError, LabError, UserError, explain_panic, shown

OUTPUT_CLOSED = 141  # 128 + SIGPIPE
INTERNAL_ERROR = LabError.exit_code
_UNWRITTEN = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

# The package below numalab.cli and the summary of each command. Its module has `app` (a group) or
# `command`.
COMMANDS = {
    "patch": ("study", "Judge a patch: what improves, and what regresses."),
    "run": ("study", "Run studies: build, boot, record, measure and report."),
    "plan": ("study", "List the runs of a study and estimate their time."),
    "status": ("study", "Show the progress of a study."),
    "report": ("results", "Write and print the report of stored results."),
    "query": ("results", "Query runs, measures and events with SQL."),
    "verify": ("results", "Repeat stored runs and compare their events."),
    "export": ("results", "Pack results into one file."),
    "import": ("results", "Unpack an archive of results."),
    "hunt": ("hunt", "Search for cases that violate a scheduler property."),
    "bisect": ("study", "Find the commit or patch that changed a measure."),
    "measure": ("results", "Compute new measures for stored runs."),
    "compare": ("results", "Compare the results of two kernels."),
    "init": ("study", "Create a lab folder with an example study."),
    "trace": ("results", "Measure a trace.dat file."),
    "measures": ("inputs", "List the measures and their definitions."),
    "reach": ("study", "Map the lines of the kernel that loads reach."),
    "boot": ("guest", "Run a command in a guest."),
    "compare-programs": ("guest", "Compare two programs on NUMA machines."),
    "shell": ("guest", "Open a shell in a guest."),
    "place": ("guest", "Predict the placement of a guest on a host."),
    "host": ("guest", "Show or record the hardware of a host."),
    "doctor": ("guest", "Check this host and print fixes for problems."),
    "topology": ("inputs", "List, show, check, predict and import topologies."),
    "kernel": ("inputs", "List, show and build kernels; try a patch."),
    "emulator": ("inputs", "List, show and build emulators."),
    "image": ("inputs", "List, show and build root file systems."),
    "workload": ("inputs", "List and show workloads."),
    "scheduler": ("inputs", "List, build and check schedulers (sched_ext)."),
    "cache": ("inputs", "List and prune the cache."),
}
# `import` is a keyword, and no module has a dash in its name.
MODULES = {"import": "import_archive", "compare-programs": "compare_programs"}


class CommandGroup(TyperGroup):
    """A group of commands that suggests a name for an unknown command."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command. Raises UserError for an unknown one, not while a shell completes."""
        command = super().get_command(ctx, cmd_name)
        if command is None and not ctx.resilient_parsing and not cmd_name.startswith("-"):
            names = self.list_commands(ctx)
            raise UserError(f"no command is called {cmd_name[:80]!r}", choices=names)
        return command


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    # Words after `--` are a command for a guest.
    words = tuple(takewhile(lambda word: word != "--", sys.argv[1:]))
    debug = "--debug" in words
    code = _exit_code(_run, debug=debug)
    if number := received_signal():
        code, _Failure.message = 128 + number, "interrupted"
    if code and "--json" in words:
        _exit_code(lambda: _print_error(code), debug=debug)
    _warn_of_skipped()
    failed = _exit_code(_flush, debug=debug)
    sys.exit(code or failed)


class _Failure:
    """The message of the error that ended this command, if one did."""

    message: str = "see the messages on stderr"


def _print_error(code: int) -> int:
    """Print a document about the error, unless the command has printed its own."""
    if not Documents.printed:
        emit({"error": _Failure.message, "exit_code": code}, True, "")
    return 0


def _warn_of_skipped() -> None:
    """Warn of input files that cannot be read and are left out of a list."""
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
    except Exception as error:  # no command ends with a traceback
        if received_signal():  # pydantic makes a SchemaError of a KeyboardInterrupt
            raise
        if debug:
            traceback.print_exc()
        return _reported(_fault_of_plugin(error) or error)
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":  # of a library in Rust
            raise
        return _reported(explain_panic(panic) or RuntimeError(str(panic)))


def _reported(error: Exception) -> int:
    """Print the message of an error, and return its exit code."""
    code, message = _explained(error)
    say(f"numalab: {message}")
    _Failure.message = message
    return code


def _fault_of_plugin(error: Exception) -> UserError | None:
    """Return an error that names the plug-in which raised `error`; None for any other error."""
    plugins = sys.modules.get("numalab.plugins")  # no plug-in runs unless it is imported
    return plugins.explain_fault(error) if plugins else None


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
            gone = name is None and error.errno == errno.ENOENT and _folder_is_gone()
            reason = "the current folder was removed" if gone else error.strerror or error
            return HostError.exit_code, f"{where}{reason}"
        case MemoryError():
            return HostError.exit_code, "this host has too little memory"
    first = str(error).partition("\n")[0][:300]
    advice = "repeat the command with --debug and report its output"
    return INTERNAL_ERROR, f"internal error: {type(error).__name__}: {first}\n  hint: {advice}"


def _folder_is_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _wanted(arguments: list[str]) -> str | None:
    if completing := os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS"):
        arguments = completing.split()[1:]  # the shell completes a line
    return next((word for word in arguments if not word.startswith("-")), None)


def application(wanted: str | None) -> typer.Typer:
    """Return the application; of its commands, import only the wanted module."""
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
        with hold_signals():
            module = importlib.import_module(f"numalab.cli.{room}.{MODULES.get(name, name)}")
        interrupt_calls()
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, help=summary, cls=CommandGroup)
        else:
            app.command(name)(module.command)
    return app


def _listed_only() -> None:
    """Entry in the list of `--help` for a command whose module is not imported."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # noqa: PLC0415 - only this option needs them

        from numalab.doctor.checks import components  # noqa: PLC0415

        print(f"numalab {version('numalab')}")

        for name, release in components():
            print(f"{name} {release}")
        raise typer.Exit


def _numalab(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the versions of numalab, QEMU and libvirt.",
            is_eager=True,
            callback=_print_version,
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """A NUMA topology lab for Linux scheduler developers.

    Boots a kernel on virtual NUMA machines, records the decisions of the scheduler, and compares
    a patched kernel with its baseline. Start with `numalab boot ring-4 -- numactl -H`.
    """
