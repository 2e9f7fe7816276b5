"""What the fixtures of tests/guest give, for the tests that take them."""

from typing import Protocol

from lab.machine.machine import Machine, Mode
from lab.machine.run import Outcome
from lab.machine.watch import Limits
from lab.store import RunDir

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
        limits: Limits = LIMITS,
    ) -> tuple[Outcome, RunDir]: ...
