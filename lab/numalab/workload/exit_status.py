"""What the exit status of a command in a guest means for its user."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from signal import Signals

from numalab.errors import shown
from numalab.workload.host_program import NO_FOLDER, Surroundings

TIMED_OUT = 124  # timeout(1)
NOT_FOUND = 127  # sh(1)


def explain_status(words: Sequence[str], around: Surroundings, status: int) -> str:
    """Return what the exit status of a command means for its user; empty for most."""
    if status == TIMED_OUT and around.timeout is not None:
        return f"the command was ended after {around.timeout:g} s of guest time"
    if status == NO_FOLDER and (around.folder or "").startswith("/"):
        return f"the guest has no folder {shown(around.folder)}, or the command ended with {status}"
    if status - 128 in set(Signals):  # sh(1)
        name = Signals(status - 128).name
        return f"exit code {status}: a program was ended by {name}, or chose that code"
    if status != NOT_FOUND or not words or "/" in words[0]:
        return ""
    name = shown(words[0])
    where = f"; ./{name} is the one of this folder" if Path(words[0]).is_file() else ""
    if any(option == "-c" and before.endswith("sh") for before, option in pairwise(words)):
        where = "; files that the text after -c names stay here"
    return f"the guest has no {name}, or no program that it starts{where}; see --package and --add"
