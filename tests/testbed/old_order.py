"""Runs inside the test bed's host: numalab, but its witness looks before it moves threads.

That is the order in which it looked when no dedicated guest on several nodes passed its proof.
"""

from numalab.cli.main import main
from numalab.guest.witness import Witness


def started(self: Witness) -> None:
    self._read()
    self._pin_others()
    self.check()


if __name__ == "__main__":
    Witness.started = started  # type: ignore[method-assign]
    main()
