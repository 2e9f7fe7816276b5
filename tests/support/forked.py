"""Processes that start in milliseconds: forked from one that has imported numalab.

A test that is about a process (its output, its exit code, its environment, its memory) needs one of
its own, but not the second that Python takes to import polars, pydantic and rich. What is about
the start itself, about signals or closed streams starts Python as a user does.
"""

import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

_PRELOADED = (
    "support.memory_peak",
    "numalab.report.build.publish",
    "numalab.report.formats.perfetto",
    "numalab.results.query",
    "rich.console",
    "rich.table",
    "typer",
)
_LARGEST = 1 << 20  # bytes of a request
_lock = threading.Lock()


def numalab(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the command `numalab` in a process of its own; `env` is its whole environment."""
    done = numalab_bytes(*words, cwd=cwd, env=env)
    texts = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, *texts)


def numalab_bytes(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Do what `numalab` does, and return bytes."""
    return run("numalab.cli.entry:main", *map(str, words), cwd=cwd, env=env)


def run(
    function: str,
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    seconds: float = 500.0,
) -> "subprocess.CompletedProcess[bytes]":
    """Call `module:function` in a process of its own, whose arguments are `words`."""
    request = {
        "function": function,
        "argv": list(words),
        "cwd": os.fspath(cwd or Path.cwd()),
        "env": dict(os.environ if env is None else env),
    }
    data = json.dumps(request).encode("ascii")
    assert len(data) < _LARGEST
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, _lock:
        status = _server().ask(data, [out.fileno(), err.fileno()], seconds)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, status, out.read(), err.read())


class _Server:
    """The process that forks; its session ends with this object, or with this process."""

    def __init__(self) -> None:
        self._socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        path = os.pathsep.join(filter(None, sys.path))
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from support.forked import serve; serve({its.fileno()})()"],
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )
        its.close()
        atexit.register(self.end)

    def ask(self, request: bytes, descriptors: list[int], seconds: float) -> int:
        """Return the exit code of the process that does it. Raises TimeoutError."""
        self._socket.settimeout(seconds)
        try:
            socket.send_fds(self._socket, [request], descriptors)
            return int(self._socket.recv(100))
        except BaseException:  # a test that is interrupted leaves its process behind
            self.end()
            raise

    def end(self) -> None:
        """End the server and what it started; the next request starts another one."""
        atexit.unregister(self.end)
        _server.cache_clear()
        self._socket.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@cache
def _server() -> _Server:
    return _Server()


def serve(descriptor: int) -> Callable[[], object]:
    """Fork a process for each request, and return in it what it has to call."""
    for name in _PRELOADED:
        importlib.import_module(name)
    from numalab.cli.main import COMMANDS, application  # noqa: PLC0415

    for name in COMMANDS:
        application(name)
    gc.collect()
    gc.freeze()  # the memory that processes share stays shared
    with socket.socket(fileno=descriptor) as requests:
        while True:
            data, descriptors, _, _ = socket.recv_fds(requests, _LARGEST, 2)
            if not data:
                os._exit(0)
            child = os.fork()
            if child == 0:
                break
            for number in descriptors:
                os.close(number)
            _, status = os.waitpid(child, 0)
            requests.send(str(os.waitstatus_to_exitcode(status)).encode("ascii"))
    return _become(json.loads(data), descriptors)


def _become(request: dict[str, object], descriptors: list[int]) -> Callable[[], object]:
    """Take the streams, folder, environment and arguments of a request; return its function."""
    for number, target in zip(descriptors, (1, 2), strict=True):
        os.dup2(number, target)
        os.close(number)
    argv, env = request["argv"], request["env"]
    assert isinstance(argv, list)
    assert isinstance(env, dict)
    os.chdir(str(request["cwd"]))
    os.environ.clear()
    os.environ.update(env)
    sys.argv[:] = ["numalab", *argv]
    module, _, name = str(request["function"]).partition(":")
    function: Callable[[], object] = getattr(importlib.import_module(module), name)
    return function
