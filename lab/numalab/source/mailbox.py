"""Patches of a mailbox from `git format-patch --stdout`, b4 or a list's archive. Pure.

Formats: git-format-patch(1); mbox as in RFC 4155.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from email.utils import mktime_tz, parsedate_tz
from pathlib import Path
from typing import NamedTuple

from numalab.source.mail_text import DIFF, decode_mail, header_of, is_encoded_mail
from numalab.source.patch import PatchError

MAX_MAILS = 10_000
# The line that begins a message, followed by a header; git's own has a commit and a fixed date,
# those of some archives a time zone or no seconds.
# The text before the time is bounded, or the search of a long line would take quadratic time.
_BEGIN = re.compile(
    rb"^From \S[^\n]{1,200}?\d\d:\d\d(?::\d\d)?(?: [A-Z+-][A-Z0-9]{1,5}){0,2} \d{4}[^\n]*\n"
    rb"(?=[A-Za-z-]+:)",
    re.MULTILINE,
)
_BLANK = re.compile(rb"(?:\xef\xbb\xbf)?\s*")  # with the mark of UTF-8 that some editors write
_HEADER = re.compile(rb"[A-Za-z][A-Za-z0-9-]{0,80}:")
_TAG = re.compile(r"\[([^][]*(?:patch|\brfc)[^][]*)\]", re.IGNORECASE)
_VERSION = re.compile(r"(?:\b|_|patch|patchset|rfc)v(\d+)(?:\.(\d+))?\b", re.IGNORECASE)
# A file of `git format-patch -v` or `--rfc`.
_OF_VERSION = re.compile(r"(?:rfc-)?(?:v\d[\d.]*|rfc)-\d+-", re.IGNORECASE)
_TAGS = re.compile(r"^(?:\s*\[[^]]*\])+\s*")
_DRAFT = re.compile(r"\brfc", re.IGNORECASE)
_AGAIN = re.compile(r"\b(?:resend|repost)", re.IGNORECASE)
_ANSWER = re.compile(r"\s*(?:re|aw|fwd?):", re.IGNORECASE)
_MESSAGE = re.compile(r"<[^<>\s]+>")  # the name of a message (RFC 5322, 3.6.4)
_MAX_IDS = 1000  # characters of a header with such names
_Key = tuple[str | int | None, ...]


def is_mailbox(data: bytes) -> bool:
    """Tell whether the bytes begin with a message of a mailbox."""
    return _BEGIN.match(_from_its_begin(data)) is not None


def is_encoded(data: bytes) -> bool:
    """Tell whether the bytes are mails of which one must be decoded before its diff is read.

    They are a mailbox, or one mail without the line that begins it there (.eml).
    """
    messages = split_messages(data)
    if len(messages) > MAX_MAILS:
        return True  # split_mailbox() refuses them
    return any(map(is_encoded_mail, messages))


def _from_its_begin(data: bytes) -> bytes:
    blank = _BLANK.match(data)
    return data[blank.end() :] if blank is not None else data


def split_messages(data: bytes) -> list[bytes]:
    """Return the messages of a mailbox, or one that is alone; none of what is no mail."""
    data = _from_its_begin(data)
    if not _BEGIN.match(data):
        return [data] if _HEADER.match(data) else []
    lines = list(_BEGIN.finditer(data))
    ends = [*(line.start() for line in lines[1:]), len(data)]
    return [data[line.end() : end] for line, end in zip(lines, ends, strict=True)]


def with_line_feeds(data: bytes) -> bytes:
    """Return a file all of whose lines end in CR LF with LF, and any other one unchanged."""
    return data.replace(b"\r\n", b"\n") if data.count(b"\n") == data.count(b"\r\n") else data


def split_mailbox(data: bytes) -> tuple[str, ...]:
    """Return the patches of a mailbox, or of one mail, in the order in which they are applied.

    Left out are messages without a diff, answers, cover letters of patches, all but the newest
    version of each series (`_by_series`), and what was sent again (`_last`). Beside patches that
    are tagged "[PATCH]" or "[RFC]", so are messages with another tag, such as "[tip: sched/core]",
    which say that a patch was merged.
    The order is that of the mailbox, in a series that of the numbers in "[PATCH 2/5]". A text is
    the message's subject and its decoded body, with undecodable bytes as surrogates. Raises
    PatchError for too many messages, a series that lacks patches, patches of different versions
    that no subject and no thread makes versions of one series, and two of one place and version.
    """
    return tuple(text for _, text in choose_patches(split_messages(data)))


def choose_patches(messages: Sequence[bytes]) -> list[tuple[int, str]]:
    """Return the patches of messages as `split_mailbox` does, each with the index of its message.

    Raises PatchError.
    """
    if len(messages) > MAX_MAILS:
        raise PatchError(f"holds {len(messages)} messages (at most {MAX_MAILS})")
    mails = [_read(at, message) for at, message in enumerate(messages)]
    mails = list({mail.id or mail.at: mail for mail in reversed(mails)}.values())[::-1]
    chosen = [_newest(series) for series in _by_series(mails)]
    # A thread of the newest version may hold older ones with other subjects.
    newest = max((series[0].rank.version for series in chosen), default=1)
    threads = {
        mail.thread for series in chosen if series[0].rank.version == newest for mail in series
    } - {""}
    chosen = [
        series
        for series in chosen
        if series[0].rank.version == newest or series[0].thread not in threads
    ]
    _check_versions([series[0] for series in chosen])
    patches: list[tuple[tuple[int, int], int, str]] = []
    for series in chosen:
        if len(messages) > 1:
            _check_whole([mail.rank for mail in series], series[0].rank.version)
        is_numbered = all(mail.rank.number is not None for mail in series)
        for mail in series:
            place = (series[0].at, mail.rank.number or 0) if is_numbered else (mail.at, 0)
            patches.append((place, mail.at, f"Subject: {mail.subject}\n\n{mail.body}"))
    return [(at, text) for _, at, text in sorted(patches, key=lambda patch: patch[0])]


def versions_among(mails: Mapping[Path, bytes]) -> frozenset[Path]:
    """Return the files with "[PATCH ...]" in their subjects if they are versions of a series.

    None are where no name is one that `git format-patch -v` gives and no two patches have one
    title: such a folder may hold patches of several series.
    """
    subjects = {file: decode_mail(mail)[1] for file, mail in mails.items()}
    ranks = {file: rank for file, text in subjects.items() if (rank := _rank(text)).is_tagged}
    versions = {(rank.version, rank.minor, rank.is_draft) for rank in ranks.values()}
    is_named = any(_OF_VERSION.match(file.name) for file in mails)
    is_repeated = len({_TAGS.sub("", subjects[file]).casefold() for file in ranks}) < len(ranks)
    return frozenset(ranks if (is_named or is_repeated) and len(versions) > 1 else ())


class _Mail(NamedTuple):
    """A message: its place in the mailbox, its decoded text, and the first of its thread.

    `sent` is the Unix time in s that it names, 0 for none, and `id` its name, "" for none.
    """

    at: int
    sent: int
    id: str
    subject: str
    body: str
    rank: "_Rank"
    thread: str  # "" where it names no message
    is_follower: bool  # of another message of the thread

    @property
    def is_patch(self) -> bool:
        return bool(DIFF.search(self.body)) and not re.match(_ANSWER, self.subject)

    @property
    def is_note(self) -> bool:
        """Whether it may only say that a patch was merged."""
        return not self.rank.is_tagged and (self.is_follower or self.subject.startswith("["))


def _read(at: int, message: bytes) -> _Mail:
    headers, subject, body = decode_mail(message)
    before = _MESSAGE.search(header_of(headers, "references")[:_MAX_IDS])
    before = before or _MESSAGE.search(header_of(headers, "in-reply-to")[:_MAX_IDS])
    own = _MESSAGE.search(header_of(headers, "message-id")[:_MAX_IDS])
    first = before or own
    name, thread = (match[0] if match else "" for match in (own, first))
    sent = _sent(header_of(headers, "date")[:_MAX_IDS])
    return _Mail(at, sent, name, subject, body, _rank(subject), thread, before is not None)


def _sent(date: str) -> int:
    with suppress(ValueError, OverflowError, TypeError, IndexError):
        if (fields := parsedate_tz(date)) is not None:
            return mktime_tz(fields)
    return 0


def _by_series(mails: Sequence[_Mail]) -> list[list[_Mail]]:
    """Return the patches by series.

    Messages are of one series if they have the same subject without tags, or the same total and
    either a thread or, without one, a version in common; a number may come once in the latter.
    """
    parents: dict[_Key, _Key] = {}
    numbers: Counter[_Key] = Counter()

    def top(key: _Key) -> _Key:
        while parents.setdefault(key, key) != key:
            parents[key] = key = parents[parents[key]]
        return key

    for mail in mails:
        rank, own = mail.rank, ("mail", mail.at)
        if re.match(_ANSWER, mail.subject):
            continue
        if subject := _TAGS.sub("", mail.subject).lower():
            parents[top(("subject", subject))] = top(own)
        if rank.total and mail.thread:
            parents[top(("thread", mail.thread, rank.total))] = top(own)
        if rank.total and not mail.is_follower:
            numbers[same := (rank.version, rank.total, rank.number)] += 1
            parents[top(("version", *same[:2], numbers[same]))] = top(own)
    patches = [mail for mail in mails if mail.is_patch]
    if any(mail.rank.is_tagged for mail in patches):
        patches = [mail for mail in patches if not mail.is_note]
    series: dict[_Key, list[_Mail]] = {}
    for mail in patches:
        series.setdefault(top(("mail", mail.at)), []).append(mail)
    return list(series.values())


def _newest(series: Sequence[_Mail]) -> list[_Mail]:
    """Return the newest version of a series, without its cover letter. Raises PatchError.

    A mail without a number has that of a mail with its subject: it is sent again alone.
    """
    tagged = [mail for mail in series if mail.rank.is_tagged] or series
    newest = _of_newest(tagged).rank
    mails = [mail for mail in tagged if mail.rank.version == newest.version]
    if not newest.is_draft:  # a series may end with drafts
        mails = [m for m in mails if not m.rank.is_draft or m.rank.total == newest.total]
    places: dict[_Key, list[_Mail]] = {}
    numbered = {_TAGS.sub("", m.subject).lower(): m.rank for m in mails if m.rank.number}
    for mail in mails:
        rank, subject = mail.rank, _TAGS.sub("", mail.subject).lower()
        if not rank.total and (same := numbered.get(subject)):
            rank = rank._replace(total=same.total, number=same.number)
        place = (rank.total, rank.number) if rank.total else (subject,)
        places.setdefault(place, []).append(mail._replace(rank=rank))
    mails = [mail for same in places.values() for mail in _last(same)]
    return [mail for mail in mails if mail.rank.number != 0] or mails


def _of_newest(mails: Sequence[_Mail]) -> _Mail:
    """Return a mail of the newest version: that with the highest number.

    A proposal comes after an RFC with the same number, and after one with a higher number if it was
    sent later: some authors begin again at 1 then.
    """

    def last(is_draft: bool) -> _Mail | None:
        of_kind = (mail for mail in mails if mail.rank.is_draft is is_draft)
        return max(of_kind, key=lambda m: (m.rank.version, m.sent, m.at), default=None)

    draft, proposal = last(is_draft=True), last(is_draft=False)
    if draft is None or proposal is None:
        return draft or proposal or mails[0]
    is_later = (proposal.sent, proposal.at) > (draft.sent, draft.at)
    return proposal if is_later or proposal.rank.version >= draft.rank.version else draft


def _last(mails: Sequence[_Mail]) -> list[_Mail]:
    """Return what counts of mails with one place in a version of a series.

    A proposal replaces an RFC, version 2.1 replaces 2, and what is sent again the first. Raises
    PatchError for two with one subject that differ, neither of which says that it is sent again;
    without a number and the names of messages, they are two commits.
    """
    best = max((not mail.rank.is_draft, mail.rank.minor) for mail in mails)
    kept: dict[str, _Mail] = {}
    for mail in mails:
        if (not mail.rank.is_draft, mail.rank.minor) != best:
            continue
        before = kept.get(subject := _TAGS.sub("", mail.subject).lower())
        if before and not (mail.rank.is_again or before.rank.is_again or mail.body == before.body):
            if not (mail.rank.total or (mail.id and before.id)):  # of `git format-patch -N`
                kept[f"{subject}\0{mail.at}"] = mail
                continue
            raise PatchError(
                f"holds two mails {mail.subject[:80]!r} that differ; save the one that is to be "
                "applied as a file of its own"
            )
        if before is None or mail.rank.is_again or not before.rank.is_again:
            kept[subject] = mail
    return list(kept.values())


def _check_versions(firsts: Sequence[_Mail]) -> None:
    """Raise PatchError for series, by a patch of each, whose versions differ."""
    for mail in firsts:
        if mail.rank.version != firsts[0].rank.version:
            texts = (f"version {m.rank.version} of {m.subject[:80]!r}" for m in (firsts[0], mail))
            raise PatchError(
                f"holds {' and '.join(texts)}, which may be two series or versions of one; save "
                "each series that is to be applied as a file of its own"
            )


def _check_whole(ranks: Sequence["_Rank"], version: int) -> None:
    """Raise PatchError where a series lacks patches that its subjects count."""
    total = max((rank.total for rank in ranks), default=0)
    lacking = [n for n in range(1, min(total, MAX_MAILS) + 1) if n not in {r.number for r in ranks}]
    if lacking and all(rank.total for rank in ranks):
        numbers = ", ".join(f"{number}/{total}" for number in lacking[:8])
        more = ", ..." if len(lacking) > 8 else ""
        raise PatchError(f"version {version} of its series lacks the patches {numbers}{more}")


class _Rank(NamedTuple):
    """What a subject such as "[PATCH v2 3/5] x" counts; `total` is 0 without a number.

    It `is_tagged` as a patch that is proposed, `is_draft` as an RFC, `is_again` as sent again;
    `minor` is the 1 of v2.1.
    """

    is_tagged: bool
    is_draft: bool
    is_again: bool
    version: int
    minor: int
    number: int | None
    total: int


def _rank(subject: str) -> _Rank:
    words = max(_TAG.findall(subject), key=lambda tag: "patch" in tag.lower(), default="")
    version = _VERSION.search(words)
    number = re.search(r"\b(\d{1,6})/(\d{1,6})\b", words)
    tags = _TAGS.match(subject)
    return _Rank(
        bool(words),
        bool(tags and _DRAFT.search(tags[0])),
        bool(tags and _AGAIN.search(tags[0])),
        int(version[1]) if version else 1,
        int(version[2] or 0) if version else 0,
        int(number[1]) if number else None,
        int(number[2]) if number else 0,
    )
