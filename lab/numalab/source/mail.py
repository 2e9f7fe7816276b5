"""Patches out of a mailbox: what `git format-patch --stdout`, b4 and a list's archive give. Pure.

Formats: git-format-patch(1); mbox as in RFC 4155; encoded bodies and subjects as in RFC 2045, 2047.
"""

import email
import email.policy
import re
from email.message import EmailMessage

# The line that begins a message, followed by a header; git's own has a commit and a fixed date.
_BEGIN = re.compile(rb"^From \S+.*\d\d:\d\d:\d\d \d{4}.*\n(?=[A-Za-z-]+:)", re.MULTILINE)
_TAG = re.compile(r"\[([^]]*PATCH[^]]*)\]", re.IGNORECASE)
_DIFF = re.compile(r"^(?:diff --git |--- \S+.*\n\+\+\+ )", re.MULTILINE)


def is_mailbox(data: bytes) -> bool:
    """Tell whether the bytes begin with a message of a mailbox."""
    return _BEGIN.match(data) is not None


def split_mailbox(data: bytes) -> tuple[str, ...]:
    """Return the patches of a mailbox in the order in which they are to be applied.

    Messages without a diff (cover letters) and answers are left out. Of several versions of a
    series the newest is taken. The order is that of the numbers in "[PATCH 2/5]", otherwise that
    of the mailbox. A text is the message's subject and its decoded body, and can hold undecodable
    bytes as surrogates.
    """
    lines = list(_BEGIN.finditer(data))
    ends = [*(line.start() for line in lines[1:]), len(data)]
    found = []
    for begin, end in zip((line.end() for line in lines), ends, strict=True):
        subject, body = _decode(data[begin:end])
        if _DIFF.search(body) and not re.match(r"(?i)\s*(re|aw|fwd?):", subject):
            found.append((*_place(subject), f"Subject: {subject}\n\n{body}"))
    newest = max((version for version, _, _ in found), default=1)
    chosen = [(number, text) for version, number, text in found if version == newest]
    if all(number is not None for number, _ in chosen):
        chosen.sort(key=lambda one: one[0] or 0)
    return tuple(text for _, text in chosen)


def _decode(message: bytes) -> tuple[str, str]:
    """Return a message's subject and its text; what needs no decoding stays as it is."""
    parsed = email.message_from_bytes(message, policy=email.policy.default)
    assert isinstance(parsed, EmailMessage)
    subject = " ".join(str(parsed.get("Subject", "")).split())
    part = parsed.get_body(("plain",)) or parsed
    encoding = str(part.get("Content-Transfer-Encoding", "")).lower()
    if not parsed.is_multipart() and encoding not in ("quoted-printable", "base64"):
        _, _, body = message.partition(b"\n\n")
        return subject, body.decode("utf-8", "surrogateescape")
    payload = part.get_payload(decode=True)
    text = payload.decode("utf-8", "surrogateescape") if isinstance(payload, bytes) else ""
    return subject, text.replace("\r\n", "\n")


def _place(subject: str) -> tuple[int, int | None]:
    """Return the version and the number that a subject such as "[PATCH v2 3/5] x" gives."""
    tag = _TAG.search(subject)
    words = tag[1] if tag else ""
    version = re.search(r"\bv(\d+)\b", words, re.IGNORECASE)
    number = re.search(r"\b(\d+)/\d+\b", words)
    return int(version[1]) if version else 1, int(number[1]) if number else None
