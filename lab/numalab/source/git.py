"""Kernel sources out of git: one tree for a repository, switched from revision to revision.

To switch to another revision, git writes only the files that differ, so `make` compiles little.
The repository itself is only read: an index and the objects of uncommitted changes go to a bare
repository in the cache, which borrows the objects of the other (gitrepository-layout(5),
objects/info/alternates).
"""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from numalab.artifact.digest import digest_of
from numalab.document import read_record
from numalab.errors import HostError, UserError
from numalab.files import free_space, home_expanded, read_bounded, write_json, write_text
from numalab.locks import locked
from numalab.places import cache_dir
from numalab.process import CommandFailed, Completed, find_program, run
from numalab.source.plain_files import NotPlain, SourceFile
from numalab.source.source_tree import forget_series

PREFIX = "git:"
_PLAIN_MODES = ("100644", "100755")
_REPOSITORY_MODE = "160000 "
_NO_SPACE = "No space left"
_NO_OBJECT = "invalid object"
_NO_FILE = "unable to read"
_FULL = 32 << 20  # bytes: what a full disk may still have
_ALL_AT_THE_TOP = "/*"
_STANDARD = "--exclude-standard"
_IGNORE_BYTES = 1 << 16  # its rules are words of a command line
_LONGEST = 300  # characters of a message of git


@dataclass(frozen=True)
class Commit:
    """A commit, by git's ids, and the first line of its message."""

    id: str
    parents: tuple[str, ...]
    subject: str


@dataclass(frozen=True)
class GitTree:
    """A revision of a repository, or a folder as it is now: git's id of the whole tree."""

    folder: Path  # the cache folder of this repository
    tree: str
    revision: str  # a name for results


def split_git(text: str) -> tuple[Path, str]:
    """Split `git:PATH[@REVISION]` into the path and the revision (by default HEAD).

    Both may hold an "@" (`HEAD@{1}`): the path is the shortest folder. Raises UserError.
    """
    rest = text.removeprefix(PREFIX)
    parts = rest.split("@")
    for count in range(1, len(parts) + 1):
        path = home_expanded("@".join(parts[:count]))
        if path.is_dir():
            return path.resolve(), "@".join(parts[count:]) or "HEAD"
    raise UserError(f"{parts[0]!r} is no folder (git:PATH@REVISION)", key=text)


def find_revision(text: str) -> GitTree:
    """Resolve `git:PATH@REVISION`. Raises UserError for no repository or no such revision."""
    path, revision = split_git(text)
    folder = _own_folder(path)
    commit = resolve(path, revision)
    _check_whole(path, commit, revision)
    tree = resolve(path, commit, "tree")
    _own_repository(folder, path)
    named = git(["describe", "--always", "--tags", commit], cwd=path, check=False).stdout.strip()
    return GitTree(folder, tree, named or commit[:12])


def _check_whole(path: Path, commit: str, revision: str) -> None:
    """Raise UserError where a partial clone has not fetched all files of a revision."""
    words = ["config", "--get-regexp", r"^(remote\..*\.promisor|extensions\.partialclone)$"]
    if git(words, cwd=path, check=False).stdout:
        words = ["rev-list", "--objects", "--missing=print", "--no-walk", commit]
        if "\n?" in git(words, cwd=path, check=False).stdout:
            raise partial_clone(path, revision, "git archive")


def partial_clone(path: Path, revision: str, command: str) -> UserError:
    """Return the error for a partial clone without files of a revision that a command fetches."""
    reason = f"is a partial clone, which lacks files of {revision}"
    return UserError(f"{reason}; `{command} {revision} >/dev/null` in it fetches them", file=path)


def resolve(path: Path, revision: str, kind: Literal["commit", "tree", ""] = "") -> str:
    """Return git's id of a revision in the repository at `path`, or of its commit or tree.

    Raises UserError.
    """
    name = f"{revision}^{{{kind}}}" if kind else revision
    done = git(["rev-parse", "--verify", "--end-of-options", name], cwd=path, check=False)
    if done.returncode != 0 or done.stdout.startswith("^"):
        reason = done.stderr.strip().rpartition("\n")[2] or "^ leaves commits out"
        raise UserError(f"git finds no {revision!r}: {reason}", file=path)
    return done.stdout.strip()


def is_tag(path: Path, revision: str) -> bool:
    """Tell whether a revision of the repository at `path` is the name of a tag."""
    words = ["show-ref", "--verify", "--quiet", f"refs/tags/{revision}"]
    return git(words, cwd=path, check=False).returncode == 0


def snapshot(path: Path) -> GitTree:
    """Return a folder in its present state: a work tree with uncommitted changes, or any folder.

    Files that its .gitignore names are left out unless they are tracked or Debian's rule `/*` is
    the only one. Raises UserError, also for a folder that holds another repository, and HostError.
    """
    folder = _own_folder(path)
    inside = git(["rev-parse", "--show-toplevel"], cwd=path, check=False)
    top = inside.stdout.strip() if inside.returncode == 0 else ""
    is_top = bool(top) and Path(top).resolve() == path.resolve()
    with locked(folder / "snapshot.lock"):
        repository = _own_repository(folder, path if is_top else None)
        index = folder / "snapshot.index"
        try:
            try:
                tree = _write_tree(path, repository, index, is_top)
            except CommandFailed as failed:
                if _NO_OBJECT not in failed.completed.stderr:
                    raise
                index.unlink()  # it has files whose objects were the user's until `git gc`
                tree = _write_tree(path, repository, index, is_top)
        except CommandFailed as failed:
            if _is_full(folder, failed):
                raise _unwritten(folder, repository, failed) from None
            raise UserError(f"git cannot read this folder: {_said(failed)}", file=path) from None
        finally:
            (folder / "snapshot.index.lock").unlink(missing_ok=True)
    return GitTree(folder, tree, _describe(path, tree) if is_top else f"files {tree[:12]}")


def _describe(path: Path, tree: str) -> str:
    """Name the commit of a work tree, with `-dirty` if its files differ.

    `git describe --dirty` would run filters that the settings of the repository name.
    """
    head = git(["describe", "--always", "--tags"], cwd=path, check=False)
    if head.returncode != 0:
        return f"files {tree[:12]}"
    return head.stdout.strip() + ("" if resolve(path, "HEAD", "tree") == tree else "-dirty")


def _write_tree(path: Path, repository: Path, index: Path, is_top: bool) -> str:
    """Write the files of a folder to the repository, and return git's id of their tree."""
    environment = {
        "GIT_DIR": str(repository),
        "GIT_WORK_TREE": str(path),
        "GIT_INDEX_FILE": str(index),
    }
    git(["add", "--all", "."], cwd=path, env=environment)
    rules = _rules_but_debians(path)
    ignored = _listed(["--others", *rules], path, environment) if rules else []
    if is_top:
        tracked = _listed(["--cached", "--ignored", _STANDARD], path)
        ignored += [name for name in tracked if os.path.lexists(path / name)]
    files = [name for name in ignored if not (path / name).is_dir() or (path / name).is_symlink()]
    # The index is that of the last snapshot: it may have what is ignored only now.
    late = set(_listed(["--cached", "--ignored", _STANDARD], path, environment))
    if late and rules:
        late.intersection_update(_listed(["--cached", "--ignored", *rules], path, environment))
    for option, names in (("--force-remove", late.difference(files)), ("--add", files)):
        if names:
            words, lines = ["update-index", option, "-z", "--stdin"], "\0".join(names)
            git(words, cwd=path, env=environment, stdin=lines)
    staged = git(["ls-files", "-z", "--stage"], cwd=path, env=environment).stdout.split("\0")
    for entry in staged:
        if entry.startswith(_REPOSITORY_MODE):
            name = entry.partition("\t")[2]
            raise UserError("is a git repository of its own, and is not read", file=path / name)
    return git(["write-tree"], cwd=path, env=environment).stdout.strip()


def _listed(words: list[str], path: Path, environment: dict[str, str] | None = None) -> list[str]:
    """Return the names that `git ls-files` lists."""
    words = ["ls-files", "-z", *words]
    listed = git(words, cwd=path, env=environment, errors="surrogateescape").stdout
    return [name for name in listed.split("\0") if name]


def _rules_but_debians(path: Path) -> list[str]:
    """Return the options of a .gitignore with the rule `/*`, without that rule; else none.

    Debian adds it to the kernel's own, which ignore what a build leaves.
    """
    file = path / ".gitignore"
    if not file.is_file() or file.is_symlink():  # git follows none
        return []
    text = read_bounded(file, _IGNORE_BYTES)
    rules = text.decode("utf-8", "surrogateescape").replace("\0", "").splitlines()
    if _ALL_AT_THE_TOP not in rules:
        return []
    real = (rule for rule in rules if rule.strip() and not rule.startswith("#"))
    kept = [f"!{_ALL_AT_THE_TOP}", *(rule for rule in real if rule != _ALL_AT_THE_TOP)]
    return ["--exclude-per-directory=.gitignore", *(f"--exclude={rule}" for rule in kept)]


def _said(failed: CommandFailed) -> str:
    """Return why git failed: its line about the disk, else its first error, whole."""
    lines = [line.strip() for line in failed.completed.stderr.splitlines() if line.strip()]
    full = [line for line in lines if _NO_SPACE in line]
    errors = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return (full or errors or lines or ["it gave no reason"])[0][:_LONGEST]


def _is_full(folder: Path, failed: CommandFailed) -> bool:
    return _NO_SPACE in _said(failed) or free_space(folder) < _FULL


def _unwritten(folder: Path, path: Path, failed: CommandFailed) -> HostError:
    """Return the error of a git that could not write `path` in the cache folder of a source."""
    reason = _said(failed)
    if _is_full(folder, failed) and _NO_SPACE not in reason:
        reason = f"{_NO_SPACE} on device ({reason})"
    hint = "free 2 GB there, or set NUMALAB_CACHE to another disk"
    return HostError(f"git cannot write {path}: {reason}", hint=hint)


def is_ancestor(path: Path, first: str, last: str) -> bool:
    """Tell whether the commit `first` is `last` or in its history (ids)."""
    return git(["merge-base", "--is-ancestor", first, last], cwd=path, check=False).returncode == 0


def merge_base(path: Path, first: str, last: str) -> str:
    """Return the last commit that two commits (ids) have in common. Raises UserError for none."""
    done = git(["merge-base", first, last], cwd=path, check=False)
    if done.returncode != 0:
        raise UserError(f"{first[:12]} and {last[:12]} have no common commit", file=path)
    return done.stdout.split()[0]


def commits_between(path: Path, first: str, last: str) -> tuple[Commit, ...]:
    """Return the commits of `last` that `first` lacks (ids), parents before their children."""
    words = ["log", "--topo-order", "--reverse", "--no-show-signature", "--format=%H%x09%P%x09%s"]
    lines = git([*words, f"{first}..{last}"], cwd=path).stdout.split("\n")
    rows = (line.split("\t", 2) for line in lines if line)
    return tuple(Commit(name, tuple(parents.split()), subject) for name, parents, subject in rows)


def read_blob(tree: GitTree, name: str) -> str:
    """Return the text of a file of the tree, "" for no file."""
    done = git(["show", f"{tree.tree}:{name}"], env=_reading(tree), check=False)
    return done.stdout if done.returncode == 0 else ""


def read_source_file(tree: GitTree, name: str) -> SourceFile | None:
    """Return a file of the tree, None for no file. Raises NotPlain for a link or a folder."""
    words = ["--literal-pathspecs", "ls-tree", "-z", tree.tree, name]
    mode, kind, blob = (git(words, env=_reading(tree)).stdout.split() or [""] * 4)[:3]
    if not mode:
        return None
    if mode not in _PLAIN_MODES:
        raise NotPlain(name, "a folder" if kind == "tree" else f"a file of mode {mode}")
    done = git(["cat-file", "blob", blob], env=_reading(tree), errors="surrogateescape")
    return SourceFile(done.stdout, mode == "100755")


def check_out(tree: GitTree) -> Path:
    """Check out a revision into the repository's folder of sources, and return it.

    The caller holds the lock of the source. Raises HostError when the disk is full, and for files
    whose objects were the user's until `git gc`: the next snapshot has its own.
    """
    folder = tree.folder
    source, memory, index = folder / "source", folder / "checkout.json", folder / "index"
    present = read_record(memory, str)
    if present is not None and source.is_dir():
        if present == tree.tree:
            return source
        forget_series(source)
    else:
        _start_over(folder, source, index)
    interrupted = source.is_dir() and present is None
    memory.unlink(missing_ok=True)
    source.mkdir(exist_ok=True)
    environment = {
        **_reading(tree),
        "GIT_WORK_TREE": str(source),
        "GIT_INDEX_FILE": str(index),
    }
    try:
        git(["read-tree", "--reset", "-u", tree.tree], cwd=source, env=environment)
        if interrupted:
            git(["clean", "-ffdxq", "-e", "/build-*"], cwd=source, env=environment)
    except CommandFailed as failed:
        if _NO_FILE in failed.completed.stderr:
            (folder / "snapshot.index").unlink(missing_ok=True)  # it has the same files
            reason = f"{source}: git cannot read files that it had before, which `git gc` removes"
            raise HostError(reason, hint="start the command again") from None
        raise _unwritten(folder, source, failed) from None
    write_json(memory, tree.tree)
    return source


def _start_over(folder: Path, source: Path, index: Path) -> None:
    """Prepare the folder for the first time, or after an interruption of git.

    git rewrites all files that differ from the index, so that builds in the tree can stay.
    """
    if not index.is_file():
        shutil.rmtree(source, ignore_errors=True)
    shutil.rmtree(folder / "originals", ignore_errors=True)
    for path in (folder / "added.json", folder / "index.lock"):
        path.unlink(missing_ok=True)


def git(
    words: list[str],
    *,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    check: bool = True,
    errors: str = "replace",
    stdin: str | None = None,
) -> Completed:
    """Run git without its hooks and lists of ignored files, or a git above this process."""
    plain = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    plain["GIT_ALLOW_PROTOCOL"] = ""  # a partial clone would fetch what it lacks
    # Settings of a repository may name programs for hooks and a monitor of files.
    options = ["-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null", "-c", "gc.auto=0"]
    options += ["-c", "core.fsmonitor=false", "-c", "core.excludesFile=/dev/null"]
    options += ["-c", "core.attributesFile=/dev/null", "-c", "diff.noprefix=false"]
    options += ["-c", "diff.orderFile=/dev/null", "-c", "format.useAutoBase=false"]
    argv: list[str | Path] = [find_program("git", "git"), *options, *words]
    environment = {**plain, **(env or {})}
    return run(argv, cwd=cwd, env=environment, stdin=stdin, check=check, errors=errors)


def _reading(tree: GitTree) -> dict[str, str]:
    return {"GIT_DIR": str(tree.folder / "repository.git")}


def _own_folder(path: Path) -> Path:
    return cache_dir("kernel-trees", f"git-{digest_of(str(path.resolve()))[:16]}")


def _own_repository(folder: Path, lender: Path | None) -> Path:
    """Return the bare repository in the cache, which borrows the objects of `lender`.

    Raises HostError when the disk is full.
    """
    repository = folder / "repository.git"
    if not (repository / "objects/info").is_dir():  # the last that git makes
        try:
            git(["init", "--quiet", "--bare", "--template=", str(repository)])
        except CommandFailed as failed:
            raise _unwritten(folder, repository, failed) from None
    if lender is not None:
        objects = git(["rev-parse", "--git-path", "objects"], cwd=lender).stdout.strip()
        alternates = repository / "objects/info/alternates"
        text = f"{(lender / objects).resolve()}\n"
        if not alternates.is_file() or alternates.read_text(encoding="utf-8") != text:
            write_text(alternates, text)
    return repository
