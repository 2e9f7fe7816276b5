"""Debian source packages: fetched with apt, unpacked with Debian's own patches applied."""

from collections.abc import Callable
from pathlib import Path

from numalab.errors import UserError
from numalab.files import replacing
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run
from numalab.progress import Progress
from numalab.source.debian_packages import (
    Fetched,
    apt_failed,
    check_unchanged,
    fetch_once,
    read_fetched,
    split_package,
    update_lists,
)
from numalab.source.kernel_source import unpack_failed


def fetched_source(text: str) -> Fetched:
    """Return the fetched files of the source package `PACKAGE[/SUITE]`, the .dsc first.

    Raises NotFetched.
    """
    return read_fetched(_record(text), f"the source package {text}", "numalab emulator build")


def download_source(apt: list[str], package: str, folder: Path) -> None:
    """Download a source package into `folder`; `apt` are words for apt-get."""
    argv: list[str | Path] = [find_program("apt-get", "apt"), *apt]
    argv += ["--quiet", "--download-only", "source", package]
    try:
        run(argv, cwd=folder, env={"LC_ALL": "C"})
    except CommandFailed as failed:
        text = failed.completed.stderr
        if "Unable to find a source package" in text:
            raise UserError(f"the suite has no source package {package!r}") from None
        raise apt_failed(f"cannot download the source of {package}", text) from None


def fetch_source_package(
    text: str, tell: Progress, download: Callable[[list[str], str, Path], None] = download_source
) -> Fetched:
    """Fetch the source package `PACKAGE[/SUITE]` unless the cache has it.

    apt checks it against the suite's signature. Raises UserError for a package or suite that the
    mirror lacks, HostError.
    """
    package, suite = split_package(text)

    def make(folder: Path) -> tuple[list[Path], list[str]]:
        apt = update_lists(suite, tell, "deb-src")
        tell(f"downloading the source of {package}", None)
        download(apt, package, folder)
        [dsc] = folder.glob("*.dsc")
        files = [dsc, *sorted(path for path in folder.iterdir() if path != dsc)]
        return files, [f"{package}={_version(dsc)}"]

    return fetch_once(lambda: fetched_source(text), _record(text), make)


def unpack_source(fetched: Fetched, tree: Path) -> Path:
    """Unpack a source package into `tree` unless it is there; return it.

    The folder appears only when it is whole. Raises HostError for a package that changed in the
    cache and for a full disk, BuildError for a package that dpkg-source cannot unpack.
    """
    if tree.is_dir():
        return tree
    check_unchanged(fetched)
    # apt has verified the files by the suite's signature; dpkg-source would need the keys of all
    # developers.
    argv: list[str | Path] = [find_program("dpkg-source", "dpkg-dev"), "--no-check", "--extract"]
    with replacing(tree) as new:
        try:
            run([*argv, fetched.files[0], new], env={"LC_ALL": "C"})
        except CommandFailed as failed:
            text = failed.completed.stderr
            raise unpack_failed(fetched.versions[0], fetched.files[0], tree, text) from None
    return tree


def _version(dsc: Path) -> str:
    lines = dsc.read_text(encoding="utf-8", errors="replace").splitlines()
    versions = (line.partition(":")[2].strip() for line in lines if line.startswith("Version:"))
    return next(versions, "")


def _record(text: str) -> Path:
    package, suite = split_package(text)
    return cache_dir("packages") / f"{package}_{suite or 'host'}-source" / "source.json"
