"""`numalab`: finds the command, and is the one place that turns an error into an exit code."""

import importlib
import os
import sys
from importlib.metadata import version
from typing import Annotated, NoReturn

import typer

from lab.cli.output import say
from lab.errors import LabError

OUTPUT_CLOSED = 141  # 128 + SIGPIPE

# Each is a module below lab.cli with either `app` (a group) or `command` (one command).
COMMANDS = {
    "run": "Run studies: build, boot, record, measure, report.",
    "plan": "Say what a study would run and how long it takes.",
    "status": "Say how far a study is, also while it runs.",
    "report": "Print or write the report of results that exist.",
    "query": "SQL over runs, measures and events.",
    "verify": "Do runs again and compare their events, row by row.",
    "export": "Pack results into one file.",
    "import": "Unpack results that somebody else packed.",
    "bisect": "Find the commit or patch that changed a measure.",
    "compare": "Compare two results of a study; for CI.",
    "trace": "Measure any trace.dat, also from bare metal.",
    "measures": "List every measure and what it means.",
    "boot": "Run one command in a guest and print what it prints.",
    "shell": "Open a shell in a guest, on this terminal.",
    "place": "Say where a guest would run on this host, and what that distorts.",
    "host": "The host as hardware: show it, record it.",
    "doctor": "Say what this host has and lacks, and how to mend it.",
    "topology": "Machines: list, show, check, predict, compare, import.",
    "kernel": "Kernels: list, show, build, try a patch.",
    "image": "Root file systems: list, show, build, shell.",
    "workload": "What studies can run: list, show.",
    "cache": "The cache: list, prune.",
}
# `import` is a keyword, which a module cannot be called.
MODULES = {"import": "import_archive"}


def main() -> NoReturn:
    """Run the command line and exit with the code of what happened (docs/errors.md)."""
    debug = "--debug" in sys.argv[1:]
    try:
        _app(_wanted(sys.argv[1:]))(standalone_mode=True)
    except LabError as error:
        if debug:
            raise
        say(f"numalab: {error}")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(OUTPUT_CLOSED)
    sys.exit(0)


def _wanted(arguments: list[str]) -> str | None:
    return next((word for word in arguments if not word.startswith("-")), None)


def _app(wanted: str | None) -> typer.Typer:
    """Build the application, importing only the module of the command that was asked for."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_numalab)
    for name, summary in COMMANDS.items():
        if name != wanted:
            app.command(name, help=summary)(_listed_only)
            continue
        module = importlib.import_module(f"lab.cli.{MODULES.get(name, name)}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, help=summary)
        else:
            app.command(name)(module.command)
    return app


def _listed_only() -> None:
    """Stand in `--help`'s list for a command whose module was not imported."""


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version("numalab"))
        raise typer.Exit


def _numalab(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """A NUMA topology lab for Linux scheduler developers.

    Boots a kernel on virtual machines of any NUMA shape, records what NUMA balancing decided, and
    reports what a patch changed. Try `numalab boot ring-4 -- numactl -H`.
    """
