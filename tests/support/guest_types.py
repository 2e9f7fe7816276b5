"""What the fixtures of tests/guest give, for the tests that take them."""

from collections.abc import Mapping
from typing import Protocol

from numalab.guest.run import Outcome
from numalab.guest.watch import Limits
from numalab.machine.model import Machine, Mode
from numalab.run_dir import RunDir

# A guest on a busy host is slow; a test that waits for silence sets its own limits.
LIMITS = Limits(boot=120, silence=120, total=400)


class MakeMachine(Protocol):
    """Make a machine of the test's kernel and image."""

    def __call__(
        self, topology: str = "ring-2", mode: Mode = "icount", seed: int = 7
    ) -> Machine: ...


class Boot(Protocol):
    """Boot a machine, run a command in it, and return the outcome and its files."""

    def __call__(
        self,
        *argv: str,
        machine: Machine | None = None,
        events: tuple[str, ...] = (),
        files: Mapping[str, bytes] | None = None,
        limits: Limits = LIMITS,
    ) -> tuple[Outcome, RunDir]: ...
