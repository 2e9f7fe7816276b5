"""The text of one mail: its headers, and its decoded body with the parts that are text. Pure.

Encoded bodies and subjects as in RFC 2045 and 2047, text that flows as in RFC 3676.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesHeaderParser

DIFF = re.compile(r"^(?:diff --git |--- \S+.*\n\+\+\+ )", re.MULTILINE)
_MAX_PARTS, _MAX_DEPTH = 20, 5  # of one message
_MAX_SUBJECT, _MAX_HEADERS = 1000, 1 << 20
_ENCODINGS = ("quoted-printable", "base64")
_END_OF_HEADERS = re.compile(rb"\r?\n\r?\n")
_FLOWED = re.compile(r";\s*format\s*=\s*\"?flowed\b", re.IGNORECASE)
_DELETES_SPACE = re.compile(r";\s*delsp\s*=\s*\"?yes\b", re.IGNORECASE)


def is_encoded_mail(message: bytes) -> bool:
    """Tell whether a mail must be decoded before its diff is read."""
    headers = _parse(message)[0]
    is_plain = _encoding(headers) not in _ENCODINGS and not _is_flowed(headers)
    return headers.get_content_maintype() == "multipart" or not is_plain


def decode_mail(message: bytes) -> tuple[Message, str, str]:
    """Return a message's headers, subject and decoded text, that of its parts one by one.

    A part that is no text counts only where no text holds a diff: some programs attach the patch
    that the text is.
    """
    headers, body = _parse(message)
    subject = unfold(header_of(headers, "subject"))
    if headers.get_content_maintype() == "multipart":
        parts = [
            (part.get_content_maintype() == "text", _decoded(part, data))
            for part, data in _text_parts(headers, body, depth=0)
        ]
        has_diff = any(is_text and DIFF.search(text) for is_text, text in parts)
        return (
            headers,
            subject,
            "\n".join(text for is_text, text in parts if is_text or not has_diff),
        )
    if _encoding(headers) not in _ENCODINGS and not _is_flowed(headers):
        return headers, subject, body.decode("utf-8", "surrogateescape")
    return headers, subject, _decoded(headers, body)


def header_of(headers: Message, wanted: str) -> str:
    """Return the first header of this name in lower case, "" for none."""
    return next((str(text) for name, text in headers.raw_items() if name.lower() == wanted), "")


def _encoding(headers: Message) -> str:
    return str(headers.get("Content-Transfer-Encoding", "")).strip().lower()


def _decoded(part: Message, data: bytes) -> str:
    part.set_payload(data.decode("ascii", "surrogateescape"))
    payload = part.get_payload(decode=True)
    text = payload.decode("utf-8", "surrogateescape") if isinstance(payload, bytes) else ""
    text = text.replace("\r\n", "\n")
    return _unflowed(text, part) if _is_flowed(part) else text


def _is_flowed(part: Message) -> bool:
    return bool(_FLOWED.search(str(part.get("Content-Type", ""))))


def _unflowed(text: str, part: Message) -> str:
    """Return a text with the lines before they were made to flow (RFC 3676, 4), as git-am(1)."""
    deletes = bool(_DELETES_SPACE.search(str(part.get("Content-Type", ""))))
    lines: list[str] = []
    begun = ""
    for line in text.split("\n"):
        if line == "-- ":  # before a signature
            lines += [begun, line] if begun else [line]
            begun = ""
            continue
        plain = line.removeprefix(" ")  # a line of one space is an empty one
        begun += plain
        if not plain.endswith(" "):
            lines.append(begun)
            begun = ""
        elif deletes:
            begun = begun.removesuffix(" ")
    return "\n".join([*lines, begun] if begun else lines)


def _parse(message: bytes) -> tuple[Message, bytes]:
    """Split a message into its headers and its body; where those end in CR LF, both have LF.

    The standard library parses the parts of a body recursively, and its newer policies parse a
    header in quadratic time; the parser's own is the old one (compat32).
    """
    message = b"\n" + message
    end = _END_OF_HEADERS.search(message)
    head, body = (message[: end.start()], message[end.end() :]) if end else (message, b"")
    if end is not None and b"\r" in end[0]:
        head, body = head.replace(b"\r\n", b"\n"), body.replace(b"\r\n", b"\n")
    return BytesHeaderParser().parsebytes(head[1:_MAX_HEADERS] + b"\n\n"), body


def _text_parts(headers: Message, body: bytes, depth: int) -> Iterator[tuple[Message, bytes]]:
    """Yield headers and body of each part that is text or holds a diff, as git-mailinfo(1)."""
    kind = headers.get_content_type()
    if kind.startswith("text/"):
        is_text = kind != "text/html"
    else:
        is_text = not kind.startswith("multipart/") and bool(DIFF.search(_decoded(headers, body)))
    if is_text:
        yield headers, body
    boundary = headers.get_boundary()
    if not kind.startswith("multipart/") or not boundary or depth == _MAX_DEPTH:
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


def parse_subject(text: str) -> str:
    """Return a patch's subject without "[PATCH 1/3]"; "" where it has none."""
    head = re.split(r"^(?:---|diff --git |Index: )", text, maxsplit=1, flags=re.MULTILINE)[0]
    subject = re.search(r"^Subject:[ \t]*(.*(?:\n[ \t]+.*)*)", head, re.MULTILINE)
    if subject is None:
        return ""
    return re.sub(r"^(\[[^]]*\]\s*)+", "", unfold(subject[1]))
