"""Patches applied by git to an index: files and modes without a file tree.

`git apply --cached` (git-apply(1)) changes an index and objects. A link that a patch creates is an
entry there, and nothing can be read or written through it.
"""

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from numalab.errors import UserError
from numalab.process import CommandFailed, find_program, run
from numalab.source.plain_files import SourceFile

PLAIN, EXECUTABLE = "100644", "100755"
MAX_CPU_SECONDS = 60  # of one git process: it searches the whole file for every hunk
_MAX_BYTES = 512 << 20  # of all files


@dataclass(frozen=True)
class IndexEntry:
    """A file of an index: git's mode, such as 100644, and the id of its bytes."""

    mode: str
    id: str


class PatchIndex:
    """An index and a store of objects in a scratch folder."""

    def __init__(self, scratch: Path, max_bytes: int = _MAX_BYTES) -> None:
        self._scratch, self._max_bytes = scratch, max_bytes
        (scratch / "empty").mkdir()
        self._git(["init", "--quiet", "--template="])

    def put(self, files: Mapping[str, SourceFile]) -> None:
        """Add files by their names, which are UTF-8."""
        paths = []
        for number, file in enumerate(files.values()):
            paths.append(self._scratch / f"file-{number}")
            paths[-1].write_bytes(file.text.encode("utf-8", "surrogateescape"))
        words = ["hash-object", "-w", "--no-filters", "--stdin-paths"]
        ids = self._git(words, stdin="".join(f"{path}\n" for path in paths)).split()
        for path in paths:
            path.unlink()
        entries = (
            f"{EXECUTABLE if file.executable else PLAIN} {name_id}\t{name}\0"
            for (name, file), name_id in zip(files.items(), ids, strict=True)
        )
        self._git(["update-index", "-z", "--index-info"], stdin="".join(entries))

    def apply(self, texts: Iterable[str]) -> str | None:
        """Apply patches one after the other, all or none; return why git refuses them, or None."""
        names = []
        for number, text in enumerate(texts):
            names.append(f"../patch-{number}")
            path = self._scratch / f"patch-{number}"
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        try:
            self._git(["apply", "--cached", "--whitespace=nowarn", *names])
        except CommandFailed as failed:
            if failed.completed.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
                return f"git takes more than {MAX_CPU_SECONDS} s of CPU time"
            return failed.completed.stderr.strip()
        return None

    def entries(self) -> Mapping[str, IndexEntry]:
        """Return all files by their names."""
        lines = self._git(["ls-files", "-z", "--stage"]).split("\0")[:-1]
        rows = (line.partition("\t") for line in lines)
        return {name: IndexEntry(*facts.split()[:2]) for facts, _, name in rows}

    def read(self, entries: Mapping[str, IndexEntry]) -> Mapping[str, SourceFile]:
        """Return the files of some entries. Raises UserError where they are too large."""
        ids = sorted({entry.id for entry in entries.values()})
        lines = "".join(f"{name}\n" for name in ids)
        words = ["cat-file", "--buffer"]
        sizes = self._git([*words, "--batch-check=%(objectsize)"], stdin=lines).split()
        size = dict(zip(ids, map(int, sizes), strict=True))
        if (total := sum(size.values())) > self._max_bytes:
            raise UserError(f"the patched files have {total} bytes (at most {self._max_bytes})")
        data = self._git([*words, "--batch"], stdin=lines).encode("utf-8", "surrogateescape")
        texts, at = {}, 0
        for name in ids:
            at = data.index(b"\n", at) + 1  # after the line with id, kind and size
            texts[name] = data[at : at + size[name]].decode("utf-8", "surrogateescape")
            at += size[name] + 1
        return {
            name: SourceFile(texts[entry.id], entry.mode == EXECUTABLE)
            for name, entry in entries.items()
        }

    def diff(self, old: Mapping[str, SourceFile], new: Mapping[str, SourceFile]) -> str:
        """Return the diff of two sets of files without context; it has the renames, "" for none."""
        trees = []
        for files in (old, new):
            self._git(["read-tree", "--empty"])
            self.put(files)
            trees.append(self._git(["write-tree"]).strip())
        words = ["diff-tree", "-r", "--patch", "--unified=0", "--find-renames", "--text"]
        return self._git([*words, "--no-ext-diff", "--no-textconv", *trees])

    def _git(self, words: list[str], stdin: str | None = None) -> str:
        scratch = self._scratch
        argv: list[str | Path] = [find_program("prlimit", "util-linux"), f"--cpu={MAX_CPU_SECONDS}"]
        argv += [find_program("git", "git"), *words]
        # Not in a repository above the folder, and without settings.
        env = {
            "GIT_DIR": str(scratch / "repository"),
            "GIT_WORK_TREE": str(scratch / "empty"),
            "GIT_INDEX_FILE": str(scratch / "index"),
            "GIT_OBJECT_DIRECTORY": str(scratch / "repository" / "objects"),
            "GIT_CONFIG_GLOBAL": str(scratch / "no-settings"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": "0",
            "GIT_CONFIG_PARAMETERS": "",
            "LC_ALL": "C",
        }
        done = run(argv, cwd=scratch / "empty", env=env, stdin=stdin, errors="surrogateescape")
        return done.stdout
