"""Disks as mke2fs makes them of random folders, and what debugfs reads from them."""

import random
from pathlib import Path

from numalab.process import find_program, run
from numalab.qemu.jobdisk import FEATURES


def grow_tree(rng: random.Random, folder: Path, depth: int = 3) -> None:
    """Fill a folder with files of all sizes, with holes, and with folders."""
    for number in range(rng.randrange(1, 9)):
        path = folder / f"{rng.choice('abcXYZ')}{number}{'-long' * rng.randrange(0, 20)}"
        if depth and rng.random() < 0.3:
            path.mkdir()
            grow_tree(rng, path, depth - 1)
            continue
        with path.open("wb") as file:
            for _ in range(rng.choice([0, 1, 1, 2, 6, 40])):
                file.seek(rng.choice([0, 1, 1024, 4096, 70_000]), 1)
                file.write(rng.randbytes(rng.choice([1, 100, 1023, 1024, 5000])))
            if rng.random() < 0.2:
                file.truncate(file.tell() + rng.randrange(100_000))


def make_disk(path: Path, folder: Path, size_mib: int = 8, block_size: int = 1024) -> Path:
    """Make a disk of a folder, with the features of a job disk."""
    mke2fs = find_program("mke2fs", "e2fsprogs")
    with path.open("wb") as file:
        file.truncate(size_mib << 20)
    options = ["-q", "-F", "-t", "ext4", "-O", FEATURES, "-b", str(block_size), "-N", "4096"]
    run([mke2fs, *options, "-E", "lazy_itable_init=0,nodiscard", "-d", folder, path])
    return path


def debugfs(disk: Path, *commands: str, cwd: Path | None = None) -> str:
    """Change a disk, or look at it, as debugfs does; returns what it prints."""
    program = find_program("debugfs", "e2fsprogs")
    lines = "\n".join(commands) + "\n"
    return run([program, "-w", "-f", "-", disk.absolute()], stdin=lines, cwd=cwd).stdout


def rdump(disk: Path, into: Path) -> Path:
    """Take everything out of a disk with debugfs, holes as zeros."""
    into.mkdir()
    debugfs(disk, f"rdump / {into}")
    return into


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files below a folder by path."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}
