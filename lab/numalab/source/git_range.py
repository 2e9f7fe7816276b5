"""A range of commits as mails, which hold nothing that a parser of a diff takes for its own."""

import re
import tempfile
from pathlib import Path

from numalab.process import CommandFailed
from numalab.source.git import git, merge_base, partial_clone

# Lines of a message that the parser of a mailbox or of a diff reads as its own.
_LIKE_A_DIFF = re.compile(
    r"^diff --(?:git|cc|combined) |^@@ -\d|^@@@ -|^--- .*\n\+\+\+ "
    r"|^From \S.{1,200}?\d\d:\d\d.{0,200}? \d{4}.*\n(?=[A-Za-z-]+:)",
    re.MULTILINE,
)
_MAIL = "From {} Mon Sep 17 00:00:00 2001\n"  # how git-format-patch(1) begins a mail
_LACKS = "promisor remote"  # what git says where a partial clone lacks an object


def format_patches(path: Path, first: str, last: str) -> tuple[bytes, ...]:
    """Return the commits after `first` up to `last` (ids) as mails; none for one without a change.

    A range with a merge is one mail, the difference between the last common commit and `last`:
    `git format-patch` leaves out what the merge itself changed. Raises UserError for a partial
    clone that lacks a file.
    """
    try:
        return _mails(path, first, last)
    except CommandFailed as failed:
        if _LACKS not in failed.completed.stderr:
            raise
        raise partial_clone(path, f"{first[:12]}..{last[:12]}", "git log -p -m") from None


def _mails(path: Path, first: str, last: str) -> tuple[bytes, ...]:
    commits = f"{first}..{last}"
    if git(["rev-list", "--merges", "--max-count=1", commits], cwd=path).stdout:
        subject = f"{first[:12]}..{last[:12]}, with its merges"
        return (_mail(path, last, subject, [merge_base(path, first, last), last]),)
    words = ["format-patch", "--quiet", "--no-signature", "--no-ext-diff", "-M", "-U3"]
    # Into files, because lines of a kernel may not be UTF-8.
    with tempfile.TemporaryDirectory() as scratch:
        git([*words, "-o", scratch, commits], cwd=path)
        files = {int(file.name.partition("-")[0]): file for file in Path(scratch).iterdir()}
        files.pop(0, None)  # the cover letter of format.coverLetter
        mails = [mail for _, file in sorted(files.items()) if (mail := file.read_bytes())]
    words = ["log", "-z", "--no-show-signature", "--format=%H%x00%s%x00%B", commits]
    parts = git(words, cwd=path).stdout.split("\0")
    listed = zip(parts[::3], parts[1::3], parts[2::3], strict=False)  # the last has an end too
    misleading = {name: subject for name, subject, text in listed if _LIKE_A_DIFF.search(text)}
    names = [mail[5:].split(b" ", 1)[0].decode("ascii", "replace") for mail in mails]
    return tuple(
        _mail(path, name, f"[PATCH] {misleading[name]}", ["--root", "--no-commit-id", name])
        if name in misleading
        else mail
        for name, mail in zip(names, mails, strict=True)
    )


def _mail(path: Path, commit: str, subject: str, trees: list[str]) -> bytes:
    """Return a mail without a message, with the difference that `git diff-tree` makes."""
    words = ["diff-tree", "-r", "--patch", "--no-ext-diff", "--no-textconv", "-M", "-U3", *trees]
    diff = git(words, cwd=path, errors="surrogateescape").stdout
    head = f"{_MAIL.format(commit)}Subject: {subject}\n\n"
    return f"{head}{diff}".encode("utf-8", "surrogateescape")
