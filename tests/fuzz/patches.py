"""Patches of a stranger: links, renames, copies, modes, names that lead out, broken headers.

A series is made by git of random changes, then spoiled, and applied to a small tree, in a child or
by `kernel refresh`. Nothing outside the tree is read or written, and what is accepted gives the
files that git gives.
"""

import os
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

from fuzz.commands import SECRET, Box, Ended
from numalab.errors import LabError
from numalab.source.series import load_series
from numalab.source.source_tree import switch_tree

CASES, FEW = 2000, 5
PROGRAM = ("-P", "-c", "from fuzz.patches import main; main()")
MAKEFILE = "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 1\n"
KERNELS = """fragments = ["guest"]
[kernel.tiny]
summary = "a tree of a few files"
source = "./tiny.tar"
"""
_IDENTITY = {"GIT_AUTHOR_NAME": "x", "GIT_AUTHOR_EMAIL": "x@x", "GIT_COMMITTER_NAME": "x",
             "GIT_COMMITTER_EMAIL": "x@x", "GIT_CONFIG_GLOBAL": os.devnull,
             "GIT_CONFIG_NOSYSTEM": "1"}  # fmt: skip
NAMES = [
    "../outside/f.c", "../../outside/secret.txt", "../../../outside/f.c", "/etc/passwd",
    "a/../../x", ".git/config", ".git/hooks/post-checkout", "dir/../../outside/f.c", "./f.c",
    "dir//f.c", "dir", "\x1b[2J", "-rf", "x" * 300, "\\303\\251", "originals/f.c", "../added.json",
    "../originals/f.c",
    ".GIT/config", "link/f.c", "link/secret.txt", "dir/link/f.c", "f.c/x", "",
]  # fmt: skip


def case(seed: int, scratch: Path) -> str:
    """Make a series, and apply it."""
    rng = random.Random(seed)
    box = Box(scratch)
    tree = _tree(box.work / "kernel" / "source", box)
    reference = scratch / "work" / "reference"
    shutil.copytree(tree, reference, symlinks=True)
    _git(reference, "init", "-q")
    _git(reference, "add", "-A")
    _git(reference, "commit", "-q", "-m", "base")
    texts = _series(rng, reference, box)
    plain = rng.random() < 0.2
    if not plain:
        for _ in range(rng.choice([1, 1, 1, 2, 4])):
            rng.choice(_WAYS)(rng, texts, box)
    series = _write(rng, box.work / "series", texts)
    _git(reference, "checkout", "-q", "-f", "base")
    _git(reference, "clean", "-qfdx")
    before = _contents(tree)
    if series.is_dir() and rng.random() < 0.2:
        lab = {"NUMALAB_PATH": str(box.work / "lab")}
        ended = box.run("kernel", "refresh", series, "--base", "tiny", env=lab)
        return f"refresh: exit code {box.check(ended)}"
    ended = box.run(tree, series, program=PROGRAM)
    box.check(ended)
    assert SECRET not in "".join(_contents(tree).values())
    if ended.code:
        assert not plain, f"a sound series was refused\n{ended}"
        assert _contents(tree) == before, f"refused, but the tree has changed\n{ended}"
        return "refused"
    _compare(reference, texts, tree, ended)
    back = box.run(tree, program=PROGRAM)
    assert box.check(back) == 0
    assert _contents(tree) == before, f"not the source again\n{ended}"
    return "plain, accepted" if plain else "accepted"


def main() -> None:
    """Make a tree its source plus a series, as a build does."""
    tree, *series = map(Path, sys.argv[1:])
    try:
        switch_tree(tree, [load_series(path) for path in series])
    except LabError as error:
        text = "".join(char if char.isprintable() or char == "\n" else "?" for char in str(error))
        print(f"numalab: {text}", file=sys.stderr)
        sys.exit(error.exit_code)


def _tree(path: Path, box: Box) -> Path:
    """Make a source with a folder, a program, a file that is no UTF-8, and a link within it."""
    (path / "dir" / "deep").mkdir(parents=True)
    (path / "Makefile").write_text(MAKEFILE)
    for name in ("f.c", "dir/f.c", "dir/deep/g.c", "h.c"):
        (path / name).write_text("".join(f"{name} line {n}\n" for n in range(20)))
    (path / "run.sh").write_text("#!/bin/sh\necho x\n")
    (path / "run.sh").chmod(0o755)
    (path / "latin.c").write_bytes(b"\xff\xfe a\n" * 5)
    (path / "inner").symlink_to("dir")
    # Folders of the lab for `kernel refresh`, whose source is the same tree.
    configs = box.work / "lab" / "kernel-configs"
    configs.mkdir(parents=True)
    (configs / "kernels.toml").write_text(KERNELS)
    with tarfile.open(box.work / "lab" / "tiny.tar", "w") as archive:
        archive.add(path, "linux")
    return path


def _git(repository: Path, *words: str, check: bool = True) -> "subprocess.CompletedProcess[bytes]":
    line = ["git", "-C", str(repository), *words]
    done = subprocess.run(line, check=False, capture_output=True, env={**os.environ, **_IDENTITY})
    assert not check or done.returncode == 0, f"{line}: {done.stderr.decode()}"
    return done


def _series(rng: random.Random, repository: Path, box: Box) -> list[bytes]:
    """Return patches that git made of random changes; the repository ends at the last one."""
    _git(repository, "branch", "base")
    texts = []
    for number in range(rng.choice([1, 2, 3])):
        for _ in range(rng.choice([1, 2])):
            rng.choice(_CHANGES)(rng, repository, number)
        _git(repository, "add", "-A")
        _git(repository, "commit", "-q", "--allow-empty", "-m", f"change {number}")
        options = rng.choice([["-M"], ["-M", "-C"], ["--no-renames"], ["--no-renames", "-p"]])
        made = _git(repository, "format-patch", "-1", "--stdout", *options).stdout
        if b"diff --git" in made:
            texts.append(made)
    if not texts:
        texts.append(b"--- a/f.c\n+++ b/f.c\n@@ -1 +1 @@\n-f.c line 0\n+new\n")
        (repository / "f.c").write_text("new\n")
    return texts


def _edit(rng: random.Random, repository: Path, number: int) -> None:
    path = repository / rng.choice(["f.c", "dir/f.c", "dir/deep/g.c", "h.c", "latin.c"])
    if path.is_file():
        lines = path.read_bytes().splitlines(keepends=True)
        lines[rng.randrange(len(lines) + 1) :][:1] = []
        lines.insert(rng.randrange(len(lines) + 1), f"new {number}\n".encode())
        path.write_bytes(b"".join(lines))


def _add(rng: random.Random, repository: Path, number: int) -> None:
    path = repository / rng.choice(["new.c", f"sub{number}/new.c", "dir/new.c"])
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"added {number}\n" * rng.choice([1, 5]))


def _remove(rng: random.Random, repository: Path, _number: int) -> None:
    (repository / rng.choice(["h.c", "dir/deep/g.c"])).unlink(missing_ok=True)


# What a series of a kernel consists of; renames and modes come by git's options and by `_spoil`.
_CHANGES: list[Callable[[random.Random, Path, int], None]] = [_edit, _edit, _edit, _add, _remove]


def _link_then_write(rng: random.Random, texts: list[bytes], box: Box) -> None:
    """Make a link, or a folder into one, and touch a file behind it; in one patch or in two."""
    name = rng.choice(["dir", "dir", "dir/deep", "dir/deep", "link", "sub0", "f.c", "a"])
    depth = "../" * rng.choice([1, 2, 3, 4])
    inside = [f"{depth}outside", f"{depth}work/series", "/", "..", "dir"]
    target = rng.choice([str(box.outside), str(box.outside), *inside])
    removed = b""
    if name == "dir" and rng.random() < 0.4:
        removed = b"".join(_deleted(file, f"{file} line") for file in ("dir/f.c", "dir/deep/g.c"))
    inner = rng.choice(["f.c", "secret.txt", "ran", "new.c"])
    old = "public" if inner == "f.c" and rng.random() < 0.7 else ""
    if rng.random() < 0.6:  # a file that the source has, and a folder for which nothing was touched
        pairs = [("dir", "f.c"), ("dir", "deep/g.c"), ("dir/deep", "g.c")]
        (name, inner), removed = rng.choice(pairs), b""
        old = rng.choice([f"{name}/{inner} line 0", f"{name}/{inner} line 0", old])
    link = (
        f"diff --git a/{name} b/{name}\nnew file mode 120000\n--- /dev/null\n+++ b/{name}\n"
        f"@@ -0,0 +1 @@\n+{target}\n\\ No newline at end of file\n"
    ).encode()
    path = f"{name}/{inner}"
    write = (
        f"diff --git a/{path} b/{path}\n"
        + ("" if old else "new file mode 100644\n")
        + (f"--- a/{path}\n" if old else "--- /dev/null\n")
        + f"+++ b/{path}\n@@ -{'1' if old else '0,0'} +1 @@\n"
        + (f"-{old}\n" if old else "")
        + "+overwritten\n"
    ).encode()
    copy = (
        f"diff --git a/{path} b/stolen.c\nsimilarity index 100%\n"
        f"{rng.choice(['copy', 'rename'])} from {path}\n"
        f"{rng.choice(['copy', 'rename'])} to stolen.c\n"
    ).encode()
    second = rng.choice([write, write, write, write, copy])
    steps = rng.choice(
        [[removed + link, second], [removed + link + second], [removed, link, second]]
    )
    at = rng.choice([0, len(texts)])
    texts[at:at] = [b"Subject: [PATCH] x\n\n---\n" + step for step in steps if step]


def _deleted(name: str, line: str) -> bytes:
    lines = "".join(f"-{line} {n}\n" for n in range(20))
    head = f"diff --git a/{name} b/{name}\ndeleted file mode 100644\n--- a/{name}\n+++ /dev/null\n"
    return f"{head}@@ -1,20 +0,0 @@\n{lines}".encode()


def _spoil_name(rng: random.Random, texts: list[bytes], _box: Box) -> None:
    """Have headers name other files: all of them, or only some."""
    at = rng.randrange(len(texts))
    old = rng.choice([b"f.c", b"dir/f.c", b"dir/", b"new.c", b"h.c", b"a/", b"b/"])
    new = rng.choice(NAMES).encode()
    texts[at] = texts[at].replace(old, new, rng.choice([-1, 1, 2]))


def _spoil_header(rng: random.Random, texts: list[bytes], box: Box) -> None:
    """Add, double or drop header lines: modes, renames, copies, binary patches."""
    at = rng.randrange(len(texts))
    name = rng.choice(NAMES)
    new = rng.choice([
        "old mode 100644\nnew mode 120000\n", "old mode 100644\nnew mode 100755\n",
        "new file mode 120000\n", "new file mode 160000\n", "deleted file mode 120000\n",
        f"rename from f.c\nrename to {name}\n", f"copy from {name}\ncopy to stolen.c\n",
        f"rename from {name}\nrename to stolen.c\n", f"--- a/{name}\n", f"+++ b/{name}\n",
        "GIT binary patch\nliteral 5\nMcmZQzU|?WiU|;|M00jU5\n\n",
        "Binary files a/f.c and b/f.c differ\n",
        f"diff --git a/{name} b/{name}\n", f"Index: {name}\n", "@@ -1,9999999999 +1 @@\n",
        "@@ -0,0 +1,1 @@\n+x\n", f"diff --git a/f.c b/f.c\n--- {box.outside}/f.c\n+++ b/f.c\n",
        "similarity index 100%\n", "index 0000000..1111111 120000\n", "\0", "From x Mon Sep 17\n",
    ]).encode()  # fmt: skip
    lines = texts[at].splitlines(keepends=True)
    headers = [
        n for n, line in enumerate(lines) if line[:4] in (b"diff", b"--- ", b"+++ ", b"inde")
    ]
    place = rng.choice(headers or [0]) + rng.choice([0, 1])
    lines[place : place + rng.choice([0, 0, 1])] = [new]
    texts[at] = b"".join(lines)


def _spoil_bytes(rng: random.Random, texts: list[bytes], _box: Box) -> None:
    at = rng.randrange(len(texts))
    data = bytearray(texts[at])
    for _ in range(rng.choice([1, 1, 20])):
        data[rng.randrange(len(data))] = rng.choice([rng.randrange(256), 10, 13, 0])
    if rng.random() < 0.3:
        del data[rng.randrange(len(data)) :]
    texts[at] = bytes(data) or b"\n"


def _reorder(rng: random.Random, texts: list[bytes], _box: Box) -> None:
    rng.shuffle(texts)
    texts.append(rng.choice(texts))


_WAYS: list[Callable[[random.Random, list[bytes], Box], None]] = [
    _link_then_write, _link_then_write, _link_then_write, _spoil_name, _spoil_name, _spoil_header,
    _spoil_header, _spoil_bytes, _reorder,
]  # fmt: skip


def _write(rng: random.Random, folder: Path, texts: list[bytes]) -> Path:
    """Write a series: in quilt's layout, as a folder, or as a mailbox."""
    folder.mkdir()
    kind = rng.choice(["quilt", "folder", "mailbox"])
    if kind == "mailbox":
        mails = (t if t.startswith(b"From ") else b"From x Mon Sep 17\n" + t for t in texts)
        path = folder / "all.mbox"
        path.write_bytes(b"\n".join(mails))
        return path
    for number, text in enumerate(texts):
        (folder / f"{number:04}.patch").write_bytes(text)
    if kind == "quilt":
        names = [f"{number:04}.patch\n" for number in range(len(texts))]
        (folder / "series").write_text("".join(names))
    return folder


def _contents(tree: Path) -> dict[str, str]:
    """Return the files of a tree with their text, and links with where they lead."""
    contents = {}
    for base, folders, names in os.walk(tree):
        folders[:] = [name for name in folders if name != ".git"]
        for name in [*folders, *names]:
            path = Path(base) / name
            key = str(path.relative_to(tree))
            if path.is_symlink():
                contents[key] = f"link to {path.readlink()}"
            elif path.is_file():
                contents[key] = path.read_bytes().decode("latin-1")
    return contents


def _compare(reference: Path, texts: list[bytes], tree: Path, ended: Ended) -> None:
    """Have git apply the same patches; the files are to be the same."""
    for number, text in enumerate(texts):
        path = reference.with_name("patch")
        path.write_bytes(text)
        done = _git(reference, "apply", "--index", "--whitespace=nowarn", str(path), check=False)
        why = done.stderr.decode("utf-8", "replace")
        if "No valid patches in input" in why:
            continue  # a message of a mailbox may be a cover letter
        assert done.returncode == 0, f"git refuses patch {number}: {why}\n{ended}"
    assert _contents(tree) == _contents(reference), f"other files than git's\n{ended}"
