"""Commands as another user of this host, in a mount namespace of their own: as in a container."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

# Begins as tests/conftest.py wants it: a CI runner may be a container without these rights.
NO_RIGHTS = "hardware: this host lets nobody become another user"
NO_ENTRY = 12345  # a user id without an entry in /etc/passwd


@contextmanager
def own_folder(uid: int) -> Iterator[Path]:
    """Yield a new folder of a user; pytest's own temporary folders are closed to other users."""
    folder = Path(tempfile.mkdtemp(prefix="numalab-user-"))
    try:
        os.chown(folder, uid, uid)
        yield folder
    finally:
        shutil.rmtree(folder)


def as_user(
    uid: int,
    *words: str | Path,
    env: Mapping[str, str],
    mounts: str = "true",
    before: Sequence[str] = (),
) -> "subprocess.CompletedProcess[str]":
    """Run a command as `uid`, without groups; `env` is all of its environment but PATH.

    `mounts` is a shell script that root runs before, in the mount namespace of the command. The
    user may read and enter every folder, so that a checkout below /root works too. `before` are
    words that root puts before the command, see `limited_memory`.
    """
    rights = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    user = ["setpriv", "--reuid", str(uid), "--regid", str(uid), "--clear-groups", *rights]
    script = f'set -e; {mounts}; exec "$@"'
    argv = [*before, "unshare", "--mount", "sh", "-c", script, "sh", *user, *map(str, words)]
    return subprocess.run(
        argv, env={"PATH": os.environ["PATH"], **env}, cwd="/", capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip


def may_change_user() -> bool:
    """Return whether this process may run commands as other users in other mount namespaces."""
    if os.geteuid() != 0:
        return False
    return as_user(NO_ENTRY, "true", env={}).returncode == 0
