"""A Dask scheduler and workers as processes of this host, for tests."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
DEADLINE = 120.0  # seconds; a state that never comes fails the test


class Processes:
    """A scheduler and the workers that were started of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.started: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start("dask_scheduler", "--port", "0", "--host", "127.0.0.1")
        until(self._is_written)

    def _is_written(self) -> bool:
        """Say whether the scheduler's file is whole: Dask opens it before it writes."""
        with suppress(OSError, ValueError):
            return "address" in json.loads(self.file.read_text())
        return False

    @property
    def address(self) -> str:
        """Where the scheduler answers."""
        return str(json.loads(self.file.read_text())["address"])

    def worker(self, **env: str) -> "subprocess.Popen[bytes]":
        """Start a worker that takes one run at a time."""
        words = ("--nthreads", "1", "--no-nanny", "--local-directory", str(self.folder))
        return self._start("dask_worker", *words, **env)

    def _start(self, module: str, *words: str, **env: str) -> "subprocess.Popen[bytes]":
        log = (self.folder / f"{module}-{len(self.started)}.log").open("wb")
        command = [sys.executable, "-m", f"distributed.cli.{module}"]
        process = subprocess.Popen(
            [*command, "--scheduler-file", str(self.file), "--no-dashboard", *words],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'lab'}:{ROOT / 'tests'}", **env},
            stdout=log,
            stderr=log,
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """Kill what is left of them."""
        for process in self.started:
            process.kill()
            process.wait()


def until(condition: Callable[[], object], seconds: float = DEADLINE) -> None:
    """Wait for a state."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
