"""Hostile guests: what they leave on their disks and say on their consoles. No boot is needed.

Each case makes a disk of a random folder with mke2fs, spoils it in some of the ways below, and has
numalab take the results out and read the consoles.
"""

import random
import string
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from numalab.errors import WorkloadFailed
from numalab.files import left_by_guest
from numalab.guest.console import LARGEST_FILE, LONGEST_LINE, Follower, excerpt, parse_beat
from numalab.guest.watch import Limits, Watchdog
from numalab.qemu.collect import Bounds, read_job_disk
from support.ext4_disks import contents, debugfs, grow_tree, make_disk

CASES, FEW = 200, 12
_BLOCK = 1024
_BOUNDS = Bounds(total=64 << 20, largest=32 << 20, entries=300, depth=4)
_NAMES = [
    b"x\ndebugfs: ls -l -p y", b"../../../escaped", b"x\n/12/100644/0/0/y/1/", b"\x1b[2J\x1b]0;x\7",
    b"-rf", b"..", "\u202egpj.exe".encode(), "x\u200b".encode(), "\x9b2J".encode(),
    b".", b"a\0b", b"\xff\xfe", b"/etc/passwd", b"CON:", b" ", b"", b"%s%n",
]  # fmt: skip

Disk = bytearray


def case(seed: int, scratch: Path) -> str:
    """Spoil a disk and consoles, take out what there is, and look at what came of it."""
    rng = random.Random(seed)
    sound = _sound_disk(rng, scratch)
    data = bytearray(sound.read_bytes())
    whole = {f"{path}": text for path, text in contents(scratch / "source" / "out").items()}
    for spoil in rng.sample(_WAYS, rng.choice([0, 1, 1, 2, 3])):
        spoil(rng, data)
    spoilt = scratch / "guest" / "job.img"
    spoilt.parent.mkdir()
    spoilt.write_bytes(data)
    outside = {path for path in scratch.rglob("*") if path.is_file()}
    collected = read_job_disk(spoilt, scratch / "guest" / "out", bounds=_BOUNDS)
    taken = contents(scratch / "guest" / "out")
    assert {name: len(text) for name, text in taken.items()} == collected.files
    assert sum(collected.files.values()) <= _BOUNDS.total
    assert all(size <= _BOUNDS.largest for size in collected.files.values())
    assert len(collected.files) <= _BOUNDS.entries >= len(collected.left_out) - _BOUNDS.entries
    assert all(why.isprintable() for why in (*collected.left_out, *collected.files))
    assert not any(part[0] in "-." for name in collected.files for part in name.split("/"))
    new = {path for path in scratch.rglob("*") if path.is_file()} - outside
    assert new == {scratch / "guest" / "out" / name for name in collected.files}
    assert not any(path.is_symlink() for path in (scratch / "guest").rglob("*"))
    with suppress(WorkloadFailed):
        left_by_guest(scratch / "guest" / "out" / "exit-status")
    _consoles(rng, scratch / "guest")
    if data == sound.read_bytes():
        plain = {name: text for name, text in whole.items() if name.count("/") < _BOUNDS.depth}
        assert collected.files.keys() == plain.keys() and taken == plain
        return "sound"
    if not collected.files and whole:
        return "nothing left"
    return "all taken" if len(taken) == len(whole) else "part taken"


def _sound_disk(rng: random.Random, scratch: Path) -> Path:
    """Make a disk whose files have plain names, or those that a command may choose."""
    out = scratch / "source" / "out"
    (out / "files").mkdir(parents=True)
    grow_tree(rng, out)
    for name in ("b0 c.txt", "_d=1.csv", "é[1],2", "x" * 255):
        (out / "files" / name).write_bytes(rng.randbytes(rng.randrange(3000)))
    (out / "exit-status").write_bytes(b"0\n")
    disk = make_disk(scratch / "sound.img", scratch / "source", 8, _BLOCK)
    if rng.random() < 0.3:
        debugfs(disk, "symlink /out/link /etc/passwd", "cd /out", "mknod device b 8 0")
    return disk


def _flip_metadata(rng: random.Random, disk: Disk) -> None:
    """Flip bytes where superblock, groups, inodes and directories lie."""
    for _ in range(rng.choice([1, 10, 300])):
        disk[rng.randrange(1024, 1_200_000)] ^= 1 << rng.randrange(8)


def _flip_anything(rng: random.Random, disk: Disk) -> None:
    for _ in range(rng.choice([100, 10_000])):
        disk[rng.randrange(len(disk))] = rng.randrange(256)


def _superblock(rng: random.Random, disk: Disk) -> None:
    at = 1024 + rng.choice([0, 4, 20, 24, 32, 40, 56, 84, 88, 96, 100, 254])
    disk[at : at + 4] = _number(rng)


def _groups(rng: random.Random, disk: Disk) -> None:
    disk[2048 + 8 : 2048 + 12] = _number(rng)  # where the first inodes are


def _inodes(rng: random.Random, disk: Disk) -> None:
    """Give inodes other sizes, kinds, flags, and extents that lead anywhere."""
    table = int.from_bytes(disk[2048 + 8 : 2048 + 12], "little") * _BLOCK
    for _ in range(rng.choice([1, 5, 40])):
        inode = table + rng.randrange(1, 60) * 256
        at, size = rng.choice([(0, 2), (4, 4), (32, 4), (108, 4), (40, 12), (52, 12), (64, 12)])
        if size == 12:
            words = [rng.choice([0, 1, 2, 5]).to_bytes(4, "little"), _number(rng), bytes(4)]
            disk[inode + at : inode + at + 12] = b"".join(words)
        else:
            disk[inode + at : inode + at + size] = _number(rng)[:size]


def _names(rng: random.Random, disk: Disk) -> None:
    """Write names into directories that no kernel would."""
    for _ in range(rng.randrange(1, 6)):
        name = rng.choice(_NAMES)
        at = disk.find(rng.choice(string.ascii_letters[:3]).encode() + b"0", 1 << 14)
        if at > 8:
            disk[at - 2] = len(name) & 0xFF
            disk[at : at + len(name)] = name


def _records(rng: random.Random, disk: Disk) -> None:
    """Give directory entries other lengths and inodes, a folder's own among them."""
    start = disk.find(b".\0\0\0", 1 << 14)
    for _ in range(8):
        if start > 8:
            at = start - 8 + rng.choice([0, 4, 5, 6, 12, 16])
            disk[at : at + 2] = rng.choice([2, 11, 12, 13, 0, 3, 4092, 0xFFFF]).to_bytes(
                2, "little"
            )
            start = disk.find(b".\0\0\0", start + 4)


def _wipe(rng: random.Random, disk: Disk) -> None:
    """Overwrite a stretch, or cut the disk short."""
    start, size = rng.randrange(len(disk)), rng.choice([1 << 10, 1 << 16, 1 << 22])
    if rng.random() < 0.2:
        del disk[start:]
    else:
        disk[start : start + size] = bytes(len(disk[start : start + size]))


def _shuffle(rng: random.Random, disk: Disk) -> None:
    """Copy blocks over others."""
    for _ in range(rng.choice([1, 20])):
        first, other = (rng.randrange(1, 1200) * _BLOCK for _ in range(2))
        disk[first : first + _BLOCK] = disk[other : other + _BLOCK]


_WAYS: list[Callable[[random.Random, Disk], None]] = [
    _flip_metadata, _flip_anything, _superblock, _groups, _inodes, _inodes, _names, _names,
    _records, _wipe, _shuffle,
]  # fmt: skip


def _number(rng: random.Random) -> bytes:
    """Make a number that is small, large, or somewhere on the disk."""
    large = [1 << 15, 1 << 31, (1 << 32) - 1, 1 << 16, 0x41ED, 0xA1FF, 0x81A4]
    return rng.choice([rng.randrange(8), rng.randrange(8192), rng.choice(large)]).to_bytes(
        4, "little"
    )


def _consoles(rng: random.Random, folder: Path) -> None:
    """Read consoles full of anything, and keep a terminal from it."""
    watchdog, now = Watchdog(Limits(), 0.0), 0.0
    for name in ("console.log", "heartbeat.jsonl"):
        follower = Follower(folder / name)
        for _ in range(rng.randrange(1, 6)):
            with (folder / name).open("ab") as file:
                file.write(_said(rng))
            now += 1.0
            for line in [*follower.lines(), *follower.rest()]:
                assert len(line) <= LONGEST_LINE
                watchdog.console(line, now)
                with suppress(ValueError):
                    watchdog.beat(parse_beat(line), now)
        assert (folder / name).stat().st_size <= LARGEST_FILE + (1 << 20)
    shown = (excerpt(watchdog.kept), watchdog.panic, watchdog.message, *watchdog.troubles)
    assert all(char.isprintable() or char in "\t\n" for text in shown for char in text)
    watchdog.verdict(now)


def _said(rng: random.Random) -> bytes:
    """Say something: noise, control characters, half of a beat, a beat that is none, a panic."""
    beats = [
        '{"phase": "workload", "uptime": 1.5}', '{"phase": "done", "uptime": 1e308, "status": 0}',
        '{"phase": "boot", "uptime": NaN}', '{"phase": ["boot"], "uptime": -1}', "[" * 3000,
        '{"phase": "done", "uptime": 2, "status": 256}', '{"uptime": ' + "9" * 5000 + "}",
        '{"phase": "setup", "uptime": 3, "message": "\x1b]0;owned\x07\\u001b[2J"}',
    ]  # fmt: skip
    whole = rng.choice(beats).encode()
    return rng.choice([
        rng.randbytes(rng.choice([10, 5000, 200_000])), whole + b"\n", whole[: len(whole) // 2],
        b"x" * (LONGEST_LINE + 5), b"[    1.0] Kernel panic - not syncing: \x1b[31m\x9b2J\n",
        b"[    1.0] BUG: \xff\xfe \x1b]52;c;!\x07\n", b"\n" * 10_000,
    ])  # fmt: skip
