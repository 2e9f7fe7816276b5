"""Commands whose streams, disks or user are not as usual: closed, full, read-only, unknown.

A command with a broken output ends with one documented code; nothing is half written.
"""

import os
import random
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from fuzz.command_tree import commands, takes_json
from fuzz.commands import Box, Word
from fuzz.exit_codes import prepare, random_words, valid_words

CASES, FEW = 2000, 8
NOBODY = 54_321  # a user id that no passwd file has
# Mounts something over a folder for one command (mount_namespaces(7)), then starts it.
MOUNT = 'mount -t tmpfs -o "$1" none "$2" && shift 2 && exec "$@"'
STREAMS = ["as usual", "closed", "full", "broken pipe", "read only"]
DISKS = {"full": "size=4k,nr_inodes=2", "small": "size=64k", "no files": "nr_inodes=3",
         "read only": "ro"}  # fmt: skip


def case(seed: int, scratch: Path) -> str:
    """Run one command in odd surroundings."""
    rng = random.Random(seed)
    box = Box(scratch)
    prepare(box)
    name = sorted(commands())[seed % len(commands())]
    words: list[Word] = [*name.split(), *valid_words(name)]
    if rng.random() < 0.3:
        words = [*name.split(), *random_words(rng, name)]
    if rng.random() < 0.1:
        words = [rng.choice(["--version", "--help", "-h"])]
    elif "--json" not in words and rng.random() < 0.3 and takes_json(name):
        words.append("--json")
    odd = rng.choice(["streams", "streams", "disk", "user", "both"])
    env, user = {}, None
    if odd in ("user", "both") and os.geteuid() == 0:
        user = _give_away(rng, box, scratch)
        env = rng.choice([{}, {"HOME": ""}, {"HOME": "/nonexistent"}, {"HOME": "/root"}])
        if rng.random() < 0.3:
            env["NUMALAB_CACHE"] = rng.choice(["", "/nonexistent/cache", "/proc/1", "/dev/null/x"])
    wrap: list[str] = []
    disk = "as usual"
    if odd == "disk" and os.geteuid() == 0:
        disk = rng.choice(sorted(DISKS))
        folder = rng.choice([box.cache, box.cache, box.tmp, box.work / "results", box.work])
        # What is mounted over the working folder is seen through its name only.
        wrap = ["unshare", "--mount", "/bin/sh", "-c", MOUNT, "sh", DISKS[disk], str(folder)]
    with ExitStack() as stack:
        streams = [rng.choice(STREAMS) if odd in ("streams", "both") else "as usual"
                   for _ in range(3)]  # fmt: skip
        opened = [_stream(stack, number, kind) for number, kind in enumerate(streams)]
        closed = [number for number, kind in enumerate(streams) if kind == "closed"]
        ended = box.run(
            *words, env=env, user=user, wrap=wrap, closed=closed,
            stdin=opened[0] or -3, stdout=opened[1], stderr=opened[2],
        )  # fmt: skip
    box.check(ended, mute=streams[2] != "as usual")
    return f"{odd}: exit code {ended.code}"


def _give_away(rng: random.Random, box: Box, scratch: Path) -> int:
    """Let a user that has no name use the box; return its number."""
    scratch.chmod(0o755)
    for path in [box.cache, box.tmp, box.work, scratch / "home", *box.work.rglob("*")]:
        if rng.random() < 0.95:
            os.chown(path, NOBODY, NOBODY)
    return NOBODY


def _stream(stack: ExitStack, number: int, kind: str) -> IO[Any] | None:
    """Open what a standard stream is to be; None for one as usual, or closed in the child."""
    if kind == "full":
        return stack.enter_context(Path("/dev/full").open("r+b", buffering=0))
    if kind == "read only":
        mode = "wb" if number == 0 else "rb"
        return stack.enter_context(Path("/dev/null").open(mode))
    if kind == "broken pipe":
        reader, writer = os.pipe()
        ends = [stack.enter_context(os.fdopen(reader, "rb", 0)), os.fdopen(writer, "wb", 0)]
        stack.enter_context(ends[1])
        ends[number == 0].close()
        return ends[number != 0]
    return None
