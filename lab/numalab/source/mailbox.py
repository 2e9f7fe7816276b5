"""Patches of a mailbox from `git format-patch --stdout`, b4 or a list's archive. Pure.

Formats: git-format-patch(1); mbox as in RFC 4155; encoded bodies and subjects as in RFC 2045, 2047.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesHeaderParser
from typing import NamedTuple

from numalab.source.patch import PatchError

MAX_MAILS = 10_000
_MAX_PARTS, _MAX_DEPTH = 20, 5  # of one message
_MAX_SUBJECT = 1000
_ENCODINGS = ("quoted-printable", "base64")
# The line that begins a message, followed by a header; git's own has a commit and a fixed date.
# The text before the time is bounded, or the search of a long line would take quadratic time.
_BEGIN = re.compile(
    rb"^From \S[^\n]{1,200}?\d\d:\d\d:\d\d \d{4}[^\n]*\n(?=[A-Za-z-]+:)", re.MULTILINE
)
_TAG = re.compile(r"\[([^][]*(?:patch|\brfc)[^][]*)\]", re.IGNORECASE)
_VERSION = re.compile(r"(?:\b|_|patch|patchset|rfc)v(\d+)\b", re.IGNORECASE)
_DIFF = re.compile(r"^(?:diff --git |--- \S+.*\n\+\+\+ )", re.MULTILINE)


def is_mailbox(data: bytes) -> bool:
    """Tell whether the bytes begin with a message of a mailbox."""
    return _BEGIN.match(data) is not None


def is_encoded(data: bytes) -> bool:
    """Tell whether the bytes begin with a message that must be decoded before its diff is read."""
    begin = _BEGIN.match(data)
    if begin is None:
        return False
    headers, _ = _parse(with_line_feeds(data[begin.end() :]))
    return headers.get_content_maintype() == "multipart" or _encoding(headers) in _ENCODINGS


def with_line_feeds(data: bytes) -> bytes:
    """Return a file all of whose lines end in CR LF with LF, and any other one unchanged."""
    return data.replace(b"\r\n", b"\n") if data.count(b"\n") == data.count(b"\r\n") else data


def split_mailbox(data: bytes) -> tuple[str, ...]:
    """Return the patches of a mailbox in the order in which they are to be applied.

    Messages without a diff (cover letters) and answers are left out, and all but the newest version
    of a series. Where some are tagged "[PATCH]" or "[RFC]", all without a tag are left out, such as
    "[tip: sched/core]", which say that a patch was merged. The order is that of the numbers in
    "[PATCH 2/5]", else that of the mailbox. A text is the message's subject and its decoded body,
    with undecodable bytes as surrogates. Raises PatchError for too many messages.
    """
    data = with_line_feeds(data)
    lines = list(_BEGIN.finditer(data))
    if len(lines) > MAX_MAILS:
        raise PatchError(f"holds {len(lines)} messages (at most {MAX_MAILS})")
    ends = [*(line.start() for line in lines[1:]), len(data)]
    patches = []
    for line, end in zip(lines, ends, strict=True):
        subject, body = _decode(data[line.end() : end])
        if _DIFF.search(body) and not re.match(r"(?i)\s*(re|aw|fwd?):", subject):
            patches.append((_rank(subject), f"Subject: {subject}\n\n{body}"))
    if any(rank.is_tagged for rank, _ in patches):
        patches = [(rank, text) for rank, text in patches if rank.is_tagged]
    newest = max((rank.version for rank, _ in patches), default=1)
    chosen = [(rank, text) for rank, text in patches if rank.version == newest]
    if len(lines) > 1:
        _check_whole([rank for rank, _ in chosen], newest)
    if all(rank.number is not None for rank, _ in chosen):
        chosen.sort(key=lambda patch: patch[0].number or 0)
    return tuple(text for _, text in chosen)


def _check_whole(ranks: Sequence["_Rank"], version: int) -> None:
    """Raise PatchError where a series lacks patches that its subjects count."""
    total = max((rank.total for rank in ranks), default=0)
    lacking = [n for n in range(1, min(total, MAX_MAILS) + 1) if n not in {r.number for r in ranks}]
    if lacking and all(rank.total for rank in ranks):
        numbers = ", ".join(f"{number}/{total}" for number in lacking[:8])
        more = ", ..." if len(lacking) > 8 else ""
        raise PatchError(f"version {version} of its series lacks the patches {numbers}{more}")


def _decode(message: bytes) -> tuple[str, str]:
    """Return a message's subject and its decoded text, that of its parts one after the other."""
    headers, body = _parse(message)
    subjects = (text for name, text in headers.raw_items() if name.lower() == "subject")
    subject = unfold(next(subjects, ""))
    if headers.get_content_maintype() == "multipart":
        parts = (_decoded(part, data) for part, data in _text_parts(headers, body, depth=0))
        return subject, "\n".join(parts)
    if _encoding(headers) not in _ENCODINGS:
        return subject, body.decode("utf-8", "surrogateescape")
    return subject, _decoded(headers, body)


def _encoding(headers: Message) -> str:
    return str(headers.get("Content-Transfer-Encoding", "")).strip().lower()


def _decoded(part: Message, data: bytes) -> str:
    part.set_payload(data.decode("ascii", "surrogateescape"))
    payload = part.get_payload(decode=True)
    text = payload.decode("utf-8", "surrogateescape") if isinstance(payload, bytes) else ""
    return text.replace("\r\n", "\n")


def _parse(message: bytes) -> tuple[Message, bytes]:
    """Split a message into its headers and its body.

    The standard library parses the parts of a body recursively, and its newer policies parse a
    header in quadratic time; the parser's own is the old one (compat32).
    """
    head, _, body = (b"\n" + message).partition(b"\n\n")
    return BytesHeaderParser().parsebytes(head[1:] + b"\n\n"), body


def _text_parts(headers: Message, body: bytes, depth: int) -> Iterator[tuple[Message, bytes]]:
    """Yield headers and body of each part that is text, also an attachment, as git-mailinfo(1)."""
    if headers.get_content_maintype() == "text" and headers.get_content_subtype() != "html":
        yield headers, body
    boundary = headers.get_boundary()
    if headers.get_content_maintype() != "multipart" or not boundary or depth == _MAX_DEPTH:
        return
    line = rb"(?:\A|\r?\n)--" + re.escape(boundary.encode("ascii", "surrogateescape"))
    parts = re.split(line + rb"(?:--)?[ \t]*\r?(?:\n|\Z)", body, maxsplit=_MAX_PARTS)
    for part in parts[1:]:
        yield from _text_parts(*_parse(part), depth + 1)


def unfold(raw: str) -> str:
    """Return a subject in one line, encoded words (RFC 2047) decoded."""
    text = raw[:_MAX_SUBJECT].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    with suppress(ValueError, LookupError, HeaderParseError):
        text = str(make_header(decode_header(text)))
    return " ".join(text.split())


class _Rank(NamedTuple):
    """What a subject such as "[PATCH v2 3/5] x" counts; `total` is 0 without a number.

    It `is_tagged` as a patch that is proposed.
    """

    is_tagged: bool
    version: int
    number: int | None
    total: int


def _rank(subject: str) -> _Rank:
    words = max(_TAG.findall(subject), key=lambda tag: "patch" in tag.lower(), default="")
    version = _VERSION.search(words)
    number = re.search(r"\b(\d{1,6})/(\d{1,6})\b", words)
    return _Rank(
        bool(words),
        int(version[1]) if version else 1,
        int(number[1]) if number else None,
        int(number[2]) if number else 0,
    )
