"""Kernels that processes of a hunt are given instead of real ones; a case is never booted."""

import atexit
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError


def refuse(job: object, _report: object) -> str:
    """Raise what an executor may."""
    raise TypeError(job)


def as_text(job: object, _report: object) -> str:
    """Execute a job: return its representation."""
    return repr(job)


@dataclass(frozen=True)
class NoKernel:
    """A kernel that this host cannot boot."""

    @property
    def name(self) -> str:
        raise HostError("no such kernel")


@dataclass(frozen=True)
class EndlessKernel:
    """A kernel whose boot does not end by itself; it writes into `folder` what it came to."""

    folder: Path

    @property
    def name(self) -> str:
        (self.folder / "began").touch()
        try:
            time.sleep(120)
        except KeyboardInterrupt:
            (self.folder / "interrupted").touch()
            raise
        raise HostError("nobody ended it")


@dataclass(frozen=True)
class SlowEndKernel:
    """A kernel whose process takes a second to end, and says in `folder` when it begins to."""

    folder: Path

    @property
    def name(self) -> str:
        def end() -> None:
            (self.folder / "ending").touch()
            time.sleep(1)

        atexit.register(end)
        raise HostError("no such kernel")


@dataclass(frozen=True)
class DeafKernel:
    """A kernel whose boot does not end by itself, nor with the first SIGTERM."""

    @property
    def name(self) -> str:
        usual = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda *_: signal.signal(signal.SIGTERM, usual))
        time.sleep(120)
        raise HostError("nobody ended it")
