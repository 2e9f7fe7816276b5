"""What the exit status of a command in a guest means for its user."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from numalab.errors import shown
from numalab.process import signal_name
from numalab.workload.host_program import NO_FOLDER, Surroundings

TIMED_OUT = 124  # timeout(1)
NOT_FOUND = 127  # sh(1)
_LAST_SIGNAL = 64  # signal(7)


def explain_status(words: Sequence[str], around: Surroundings, status: int) -> str:
    """Return what the exit status of a command means for its user; empty for most."""
    if status == TIMED_OUT and around.timeout is not None:
        end = "a program that ignores SIGTERM ends 5 s later, by SIGKILL"
        return f"the command was ended after {around.timeout:g} s of guest time; {end}"
    if status == NO_FOLDER and (around.folder or "").startswith("/"):
        return f"the guest has no folder {shown(around.folder)}, or the command ended with {status}"
    if ended := ended_by(status):
        return f"exit code {status}: a program was {ended}"
    if status != NOT_FOUND or not words or "/" in words[0]:
        return ""
    name = shown(words[0])
    where = f"; ./{name} is the one of this folder" if Path(words[0]).is_file() else ""
    if any(option == "-c" and before.endswith("sh") for before, option in pairwise(words)):
        where = "; files that the text after -c names stay here"
    return f"the guest has no {name}, or no program that it starts{where}; see --package and --add"


def ended_by(status: int) -> str:
    """Return which signal a shell's status stands for (128 plus its number, sh(1)); else ""."""
    if not 1 <= status - 128 <= _LAST_SIGNAL:
        return ""
    return f"ended by {signal_name(status - 128)}, or it chose that status"  # as perf(1) does 129
