"""The entry point of `numalab`: it handles signals before any other import."""

import os
import sys
from typing import NoReturn

from numalab.cli.interrupts import handle_signals, received_signal


def main() -> NoReturn:
    """Run the command line; exit with 128 + the signal's number when one ended it."""
    handle_signals()
    os.umask(0o077)  # what numalab writes is for this user only
    try:
        from numalab.cli.streams import open_streams  # noqa: PLC0415 - the handlers come first

        open_streams()
        from numalab.cli.main import main as run  # noqa: PLC0415

        run()
    except BaseException as end:
        # Some libraries, such as pydantic, turn a KeyboardInterrupt into an error of their own.
        if number := received_signal():
            sys.exit(128 + number)
        if isinstance(end, KeyboardInterrupt):
            sys.exit(130)
        raise
