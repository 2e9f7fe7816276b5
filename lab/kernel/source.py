"""Kernel sources: Debian's source packages, found, named by digest and unpacked once."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from lab.errors import BuildError, HostError
from lab.process import CommandFailed, find_program, run
from lab.store import cache_dir, read_json, replacing, write_json

PACKAGES = Path("/usr/src")


@dataclass(frozen=True)
class Source:
    """A source tarball and the SHA-256 of its bytes."""

    name: str
    tarball: Path
    digest: str


def find_source(name: str) -> Source:
    """Find the tarball that the Debian package `name` installs.

    Raises HostError with the command that installs it.
    """
    for suffix in ("xz", "zst", "gz", "bz2"):
        tarball = PACKAGES / f"{name}.tar.{suffix}"
        if tarball.is_file():
            return Source(name, tarball, _digest(tarball))
    raise HostError(
        f"the kernel source {PACKAGES / name}.tar.xz is not there", mend=f"apt-get install {name}"
    )


def tree_dir(source: Source) -> Path:
    """Return the cache folder of a source: its tree, the originals of changed files, builds."""
    return cache_dir("kernel-trees", source.digest[:16])


def unpack(source: Source) -> Path:
    """Unpack a source into the cache unless it is there, and return the folder of the tree.

    The folder appears only when it is whole. Raises BuildError for a damaged tarball, HostError
    when the disk is full.
    """
    tree = tree_dir(source) / "source"
    if tree.is_dir():
        return tree
    find_program("xz", "xz-utils")
    with replacing(tree) as new:
        new.mkdir()
        try:
            run(
                [find_program("tar", "tar"), "--extract", "--file", source.tarball,
                 "--directory", new, "--strip-components=1", "--no-same-owner"],
                env={"LC_ALL": "C"},
            )  # fmt: skip
        except CommandFailed as error:
            raise unpack_failed(source, error.completed.stderr) from None
        if not (new / "Makefile").is_file():
            raise BuildError(f"{source.tarball} holds no kernel: there is no Makefile in it")
    return tree


def unpack_failed(source: Source, stderr: str) -> HostError | BuildError:
    """Say why tar could not unpack `source`."""
    if "No space left on device" in stderr:
        return HostError(
            f"no space left on the disk of {tree_dir(source)} to unpack {source.name}",
            mend="free 3 GB there, or set NUMALAB_CACHE to another disk",
        )
    return BuildError(
        f"cannot unpack {source.tarball}", tail="\n".join(stderr.strip().splitlines()[-5:])
    )


def source_version(tree: Path) -> str:
    """Return the version that the tree's Makefile gives, such as "6.12.117"."""
    text = (tree / "Makefile").read_text(encoding="utf-8", errors="replace")[:4096]
    found: dict[str, str] = dict(
        re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *= *(\S*)", text, re.M)
    )
    numbers = [found.get(key, "0") for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
    return ".".join(numbers) + found.get("EXTRAVERSION", "")


def _digest(tarball: Path) -> str:
    """Hash the tarball, or remember the hash while size, inode and times stay the same."""
    stat = tarball.stat()
    now = [stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns]
    memory = cache_dir("kernel-trees") / f"{tarball.name}.digest.json"
    if memory.is_file():
        known = read_json(memory)
        if isinstance(known, dict) and known.get("stat") == now:
            return str(known["sha256"])
    with tarball.open("rb") as file:
        digest: str = hashlib.file_digest(file, "sha256").hexdigest()
    write_json(memory, {"file": str(tarball), "stat": now, "sha256": digest})
    return digest
