"""Debian source packages: fetched with apt, unpacked with Debian's own patches applied."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from numalab.errors import UserError
from numalab.files import read_json, replacing, write_json
from numalab.locks import locked
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run
from numalab.source.debian import Fetched, NotFetched, apt_failed, split_package, update_lists
from numalab.source.digest import hash_file
from numalab.source.source import unpack_failed

_RECORD = "source.json"


def fetched_source(text: str) -> Fetched:
    """Return what was fetched of the source package `PACKAGE[/SUITE]`; the .dsc comes first.

    Raises NotFetched.
    """
    folder = _folder(text)
    record = folder / _RECORD
    facts = read_json(record) if record.is_file() else {"files": []}
    files = tuple(folder / str(name) for name in facts["files"])
    if not files or not all(file.is_file() for file in files):
        raise NotFetched(
            f"the source package {text} is not here",
            hint="numalab emulator build fetches it from the mirror that apt uses",
        )
    with suppress(OSError):
        os.utime(folder)  # when it was last used, for `numalab cache prune`
    return Fetched(files, tuple(facts["versions"]), str(facts["digest"]))


def fetch_source_package(text: str, tell: Callable[[str, float | None], None]) -> Fetched:
    """Fetch the source package `PACKAGE[/SUITE]` unless the cache has it.

    apt checks it against the suite's signature. It stays as it is until it is taken out of the
    cache. Raises UserError for a package or suite that the mirror lacks, HostError.
    """
    folder = _folder(text)
    with locked(folder.with_name(f"{folder.name}.lock")):
        try:
            return fetched_source(text)
        except NotFetched:
            pass
        package, suite = split_package(text)
        apt = update_lists(suite, tell, "deb-src")
        tell(f"downloading the source of {package}", None)
        with replacing(folder) as new:
            new.mkdir()
            _download(apt, package, new)
            [dsc] = new.glob("*.dsc")
            files = [dsc, *sorted(one for one in new.iterdir() if one != dsc)]
            digest = hashlib.sha256("".join(map(hash_file, files)).encode()).hexdigest()
            record = {
                "files": [file.name for file in files],
                "versions": [f"{package}={_version(dsc)}"],
                "digest": digest,
            }
            write_json(new / _RECORD, record)
    return fetched_source(text)


def unpack_source(fetched: Fetched, tree: Path) -> Path:
    """Unpack a source package into `tree` unless it is there; return it.

    The folder appears only when it is whole. Raises BuildError for a damaged package, HostError
    when the disk is full.
    """
    if tree.is_dir():
        return tree
    # What apt fetched it has checked; dpkg-source would want the developers' keys.
    argv: list[str | Path] = [find_program("dpkg-source", "dpkg-dev"), "--no-check", "--extract"]
    with replacing(tree) as new:
        try:
            run([*argv, fetched.files[0], new], env={"LC_ALL": "C"})
        except CommandFailed as failed:
            text = failed.completed.stderr
            raise unpack_failed(fetched.versions[0], fetched.files[0], tree, text) from None
    return tree


def _download(apt: list[str], package: str, folder: Path) -> None:
    argv: list[str | Path] = [find_program("apt-get", "apt"), *apt]
    argv += ["--quiet", "--download-only", "source", package]
    try:
        run(argv, cwd=folder, env={"LC_ALL": "C"})
    except CommandFailed as failed:
        text = failed.completed.stderr
        if "Unable to find a source package" in text:
            raise UserError(f"the suite has no source package {package!r}") from None
        raise apt_failed(f"cannot download the source of {package}", text) from None


def _version(dsc: Path) -> str:
    lines = dsc.read_text(encoding="utf-8", errors="replace").splitlines()
    found = (line.partition(":")[2].strip() for line in lines if line.startswith("Version:"))
    return next(found, "")


def _folder(text: str) -> Path:
    package, suite = split_package(text)
    return cache_dir("packages") / f"{package}_{suite or 'host'}-source"
