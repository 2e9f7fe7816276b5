"""Runs inside the test bed's host: carries out what it is told over a serial line.

One JSON object a line, each way. A request has `id`, `argv`, `stdin`, `env`, `user` and `seconds`
(wall time in here, after which the command and all it started is ended). Requests are carried out
beside each other; each is answered when it has ended, with `id`, `status` (minus the signal that
ended it), `stdout`, `stderr` and `cut` (there was more than MOST bytes of one of them). The first
line says `ready`. Python's standard library only, and nothing of numalab.
"""

import json
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import threading
import tty
from pathlib import Path
from typing import Any, BinaryIO

MOST = 1 << 18
LINE = 1 << 20
NOT_RUN = 127
_write = threading.Lock()


def answer(line: BinaryIO, value: dict[str, Any]) -> None:
    """Write one object; a lock keeps lines whole."""
    data = json.dumps(value).encode("ascii") + b"\n"
    with _write:
        while data:
            data = data[line.write(data) :]


def carry_out(line: BinaryIO, request: dict[str, Any]) -> None:
    """Run one command to its end and answer."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            status = _run(request, out, err)
        except (OSError, KeyError, subprocess.SubprocessError) as error:
            err.write(f"cannot run {request['argv'][0]}: {error}".encode())
            status = NOT_RUN
        texts, cut = zip(_text(out), _text(err), strict=True)
    answer(
        line,
        {
            "id": request["id"],
            "status": status,
            "stdout": texts[0],
            "stderr": texts[1],
            "cut": any(cut),
        },
    )


def _run(request: dict[str, Any], out: BinaryIO, err: BinaryIO) -> int:
    user: dict[str, Any] = {}
    env = {**os.environ, **request["env"]}
    if request["user"]:
        entry = pwd.getpwnam(request["user"])
        groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": groups}
        env = {**env, "HOME": entry.pw_dir, "USER": entry.pw_name}
    process = subprocess.Popen(
        request["argv"],
        stdin=subprocess.PIPE,
        stdout=out,
        stderr=err,
        env=env,
        cwd=env["HOME"],
        start_new_session=True,
        **user,
    )
    try:
        process.communicate(request["stdin"].encode(), timeout=request["seconds"])
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode


def _text(file: BinaryIO) -> tuple[str, bool]:
    """Return the end of what was written, and whether there was more."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST))
    return file.read(MOST).decode("utf-8", "replace"), size > MOST


def main(path: str) -> None:
    """Serve until the line is closed."""
    with Path(path).open("r+b", buffering=0) as line:
        tty.setraw(line.fileno())
        answer(line, {"ready": 1})
        with Path(path).open("rb") as reader:
            while text := reader.readline(LINE):
                request = json.loads(text)
                threading.Thread(target=carry_out, args=(line, request), daemon=True).start()


if __name__ == "__main__":
    main(sys.argv[1])
