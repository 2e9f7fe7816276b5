"""Kernel sources: Debian packages, tarballs, folders and git revisions, each unpacked once."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from numalab.artifact.digest import remembered
from numalab.errors import BuildError, HostError, UserError, shown
from numalab.files import home_expanded, replacing
from numalab.places import cache_dir
from numalab.process import CommandFailed, find_program, run
from numalab.progress import Progress
from numalab.source import git
from numalab.source.debian_packages import (
    NotFetched,
    check_unchanged,
    fetch_packages,
    fetched_packages,
    split_package,
)
from numalab.source.own_trees import NoOwnTree, check_release, find_own_tree, is_own_tree

PACKAGES = Path("/usr/src")
ENDINGS = (".tar", ".tar.xz", ".tar.zst", ".tar.gz", ".tar.bz2", ".tgz")


@dataclass(frozen=True)
class Source:
    """A kernel source on this host: a tarball or a git tree.

    `digest` is that of the content; `version` is that of the Makefile, such as "6.12.117"; `origin`
    describes the source in results.
    """

    name: str
    digest: str
    version: str
    origin: str
    tarball: Path | None = None
    tree: git.GitTree | None = None

    @property
    def folder(self) -> Path:
        """The cache folder of the source: its tree, the originals of changed files, builds."""
        if self.tree is not None:
            return self.tree.folder
        return cache_dir("kernel-trees", self.digest[:16])

    @property
    def tree_digest(self) -> str:
        """The digest of a tarball or the name of a repository: they share a tree and its builds."""
        return self.folder.name if self.tree is not None else self.digest


def is_package(text: str) -> bool:
    """Tell whether a source is a Debian package such as `linux-source-6.12/bookworm`."""
    return "/" not in text.partition("/")[2] and text.startswith("linux-source")


def find_source(text: str) -> Source:
    """Find a source: a package, `git:PATH[@REVISION]`, a tarball, a folder, `mainline:RELEASE`.

    /usr/src comes first for a package without a suite. Raises UserError for another text,
    NotFetched for a package that is not in the cache and a release that is not on this host,
    HostError for a missing tool and for a fetched package that changed.
    """
    if is_own_tree(text):
        source = find_source(find_own_tree(text, ENDINGS))
        check_release(text, source.version)
        return replace(source, name=text)
    if text.startswith(git.PREFIX):
        return _git_source(text, git.find_revision(text))
    if is_package(text):
        return _package_source(text)
    path = home_expanded(text)
    if path.is_dir():
        return _git_source(text, git.snapshot(path.resolve()))
    if path.is_file() and path.name.endswith(ENDINGS):
        return _tarball_source(text, path.resolve(), str(path))
    raise UserError(
        f"{text!r} is no kernel source",
        choices=[
            "linux-source-6.12[/SUITE]",
            "git:PATH[@REVISION]",
            "mainline:RELEASE",
            "a folder",
            "a tarball",
        ],
    )


def fetch_source(text: str, tell: Progress) -> Source:
    """Find a source; fetch a Debian package that is not in the cache. Raises NoOwnTree."""
    try:
        return find_source(text)
    except NoOwnTree:
        raise
    except NotFetched:
        fetch_packages(text, tell)
        return find_source(text)


def unpack(source: Source) -> Path:
    """Unpack a source into the cache unless it is there; return the folder of the tree.

    Raises UserError for a tarball without one folder that holds all, BuildError for a damaged one,
    HostError when the disk is full.
    """
    if source.tree is not None:
        return git.check_out(source.tree)
    assert source.tarball is not None
    tree = source.folder / "source"
    if tree.is_dir():
        return tree
    find_program("xz", "xz-utils")
    with replacing(tree) as new:
        whole = new.with_name("whole")
        whole.mkdir()
        try:
            run(
                [find_program("tar", "tar"), "--extract", "--file", source.tarball,
                 "--directory", whole, "--no-same-owner"],
                env={"LC_ALL": "C"},
            )  # fmt: skip
        except CommandFailed as error:
            text = error.completed.stderr
            raise unpack_failed(source.name, source.tarball, source.folder, text) from None
        tops = sorted(whole.iterdir())
        if len(tops) != 1 or tops[0].is_symlink() or not tops[0].is_dir():
            names = ", ".join(shown(top.name) for top in tops[:3])
            reason = f"holds {names}{', ...' * (len(tops) > 3)}; pack one folder that holds all"
            raise UserError(reason, file=source.tarball)
        tops[0].rename(new)
    return tree


def unpack_failed(what: str, archive: Path, folder: Path, stderr: str) -> HostError | BuildError:
    """Return the error of an archive that could not be unpacked."""
    if "No space left on device" in stderr:
        return HostError(
            f"no space left on the disk of {folder} to unpack {what}",
            hint="free 3 GB there, or set NUMALAB_CACHE to another disk",
        )
    last = stderr.strip().splitlines()[-5:]
    return BuildError(f"cannot unpack {archive}", tail="\n".join(last))


def parse_version(makefile: str) -> str:
    """Return the version in a kernel's Makefile, such as "6.12.117"; "" for another Makefile."""
    values: dict[str, str] = dict(
        re.findall(r"^(VERSION|PATCHLEVEL|SUBLEVEL|EXTRAVERSION) *= *(\S*)", makefile[:4096], re.M)
    )
    if "VERSION" not in values:
        return ""
    numbers = [values.get(key, "0") for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
    return ".".join(numbers) + values.get("EXTRAVERSION", "")


def _package_source(text: str) -> Source:
    package, suite = split_package(text)
    for suffix in ("xz", "zst", "gz", "bz2"):
        tarball = PACKAGES / f"{package}.tar.{suffix}"
        if suite is None and tarball.is_file():
            return _tarball_source(text, tarball, str(tarball))
    fetched = fetched_packages(text)
    source = _tarball_source(text, fetched.files[-1], ", ".join(fetched.versions))
    check_unchanged(fetched, {fetched.files[-1]: source.digest})
    return source


def _tarball_source(text: str, tarball: Path, origin: str) -> Source:
    facts = remembered(tarball, _makefile_version)
    return Source(text, facts["sha256"], facts["version"], origin, tarball=tarball)


def _makefile_version(tarball: Path) -> dict[str, str]:
    """Read the version in a tarball without unpacking it. Raises BuildError if it is no kernel."""
    done = run(
        [find_program("tar", "tar"), "--extract", "--to-stdout", "--file", tarball,
         "--occurrence=1", "--wildcards", "--no-wildcards-match-slash",
         "*/Makefile", "./*/Makefile"],
        check=False,
        env={"LC_ALL": "C"},
    )  # fmt: skip
    version = parse_version(done.stdout)
    if not version:
        tail = "\n".join(done.stderr.strip().splitlines()[-5:])
        raise BuildError(f"{tarball} holds no kernel: it has no Makefile of one", tail=tail)
    return {"version": version}


def _git_source(text: str, tree: git.GitTree) -> Source:
    version = parse_version(git.read_blob(tree, "Makefile"))
    if not version:
        reason = f"{text!r} holds no kernel: it has no Makefile of one"
        if (home_expanded(text) / "objects").is_dir():
            reason += f"; git:{text}@REVISION reads a bare repository"
        raise UserError(reason)
    return Source(text, tree.tree, version, f"git {tree.revision}", tree=tree)
