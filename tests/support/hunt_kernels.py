"""Kernels that processes of a hunt are given instead of real ones; a case is never booted."""

import time
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import HostError


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
