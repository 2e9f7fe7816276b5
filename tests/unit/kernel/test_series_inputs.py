"""Series that are not in quilt layout: folders, single patches and mailboxes."""

import base64
import bz2
import gzip
import lzma
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numalab.errors import UserError
from numalab.kernel.patch_series import find_series, is_series, with_series
from numalab.kernel.patched_kernel import find_kernel
from numalab.source.mail_text import decode_mail
from numalab.source.mailbox import split_mailbox
from numalab.source.patch import HunkFailed, parse_patch, renew_offsets
from numalab.source.series import MAX_PATCH_BYTES, apply_series, load_series

FROM = "From {0:040x} Mon Sep 17 00:00:00 2001\n"


def diff(old: str, new: str) -> str:
    return f"---\n f | 2 +-\n\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-{old}\n+{new}\n"


def mail(number: int, subject: str, body: str, headers: str = "") -> str:
    head = f"{FROM.format(number)}From: S. <s@x>\nSubject: {subject}\n{headers}"
    return f"{head}\nWhy.\n{body}-- \n2.39\n\n"


def applied(path: Path, text: str = "a\n") -> str | None:
    return apply_series([load_series(path)], {"f": text}.get)["f"]


def test_a_mailbox_is_applied_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    box = tmp_path / "thread.mbx"
    box.write_text(
        mail(1, "[PATCH v2 0/2] sched: both", "A cover letter.\n")
        + mail(2, "[PATCH v2 2/2] sched: second", diff("b", "c"))
        + mail(3, "[PATCH v2 1/2] sched: first,\n as it is", diff("a", "b"))
        + mail(4, "Re: [PATCH v2 1/2] sched: first", diff("a", "wrong"))
        + mail(5, "[PATCH 1/1] Sched: first, as it is", diff("a", "old"))
    )
    series = load_series(box)
    assert series.name == "thread"
    assert [p.subject for p in series.patches] == [
        "sched: first, as it is",
        "sched: second",
    ]
    assert applied(box) == "c\n"
    packed = tmp_path / "t.mbox.gz"
    packed.write_bytes(gzip.compress(box.read_bytes()))
    assert load_series(packed).info.digest == series.info.digest
    of_dos = tmp_path / "dos.mbox"
    of_dos.write_bytes(box.read_bytes().replace(b"\n", b"\r\n"))
    assert load_series(of_dos).info.digest == series.info.digest


@pytest.mark.parametrize(
    "tag",
    ["PATCH v2", "PATCHv2", "PATCH V2", "RFC PATCHv2", "PATCH_v2", "PATCH-v2", "RFC v2", "RFCv2",
     "PATCHSETv2", "RFC] [PATCH v2"],
)  # fmt: skip
def test_only_the_newest_version_of_a_patch_is_applied(tag: str) -> None:
    box = mail(1, "[PATCH 1/1] a", diff("a", "b")) + mail(2, f"[{tag} 1/1] a", diff("a", "c"))
    (patch,) = split_mailbox(box.encode())
    assert "+c\n" in patch


def thread(number: int, *earlier: int) -> str:
    """Return the headers of a message that answers earlier ones."""
    names = " ".join(f"<{name}@x>" for name in earlier)
    return f"Message-Id: <{number}@x>\n" + (f"References: {names}\n" if names else "")


A, B, C = diff("a", "b"), diff("b", "c"), diff("c", "d")
COVER = "A cover letter.\n"


@pytest.mark.parametrize(
    ("mails", "subjects"),
    [
        ([("[PATCH] a", A), ("[PATCH] b", B)], ["[PATCH] a", "[PATCH] b"]),
        ([("a", A), ("[PATCH] b", B)], ["a", "[PATCH] b"]),
        ([("a", A), ("[PATCH] b", B, 1, 0)], ["a", "[PATCH] b"]),
        ([("[PATCH] b", B), ("a", A, 1, 0)], ["[PATCH] b"]),
        ([("[tip: x] a", A), ("[PATCH] b", B)], ["[PATCH] b"]),
        ([("[PATCH v2] a", A), ("[PATCH] A", B)], ["[PATCH v2] a"]),
        ([("[PATCH 0/1] x", A), ("[PATCH 1/1] b", B)], ["[PATCH 1/1] b"]),
        ([("[PATCH 0/1] x", A)], ["[PATCH 0/1] x"]),
        (
            [("[PATCH 2/2] b", B), ("[PATCH 1/2] a", A), ("[PATCH 1/2] c", C),
             ("[PATCH 2/2] d", A)],
            ["[PATCH 1/2] a", "[PATCH 2/2] b", "[PATCH 1/2] c", "[PATCH 2/2] d"],
        ),
        (  # by the subject of the cover letter
            [("[PATCH 0/1] x", COVER, 1), ("[PATCH 1/1] a", A, 2, 1),
             ("[PATCH v2 0/2] x", COVER, 3), ("[PATCH v2 1/2] b", B, 4, 3),
             ("[PATCH v2 2/2] c", C, 5, 3)],
            ["[PATCH v2 1/2] b", "[PATCH v2 2/2] c"],
        ),
        (  # by the thread
            [("[PATCH 0/1] x", COVER, 1), ("[PATCH 1/1] a", A, 2, 1),
             ("[PATCH v2 1/1] b", B, 3, 1)],
            ["[PATCH v2 1/1] b"],
        ),
        ([("[PATCH] a", A, 1), ("[PATCH v2] b", B, 2, 1)], ["[PATCH v2] b"]),
        (
            [("[RFC PATCH] a", A, 1), ("[PATCH v2 1/2] b", B, 2, 1), ("[PATCH v2 2/2] c", C, 3, 1)],
            ["[PATCH v2 1/2] b", "[PATCH v2 2/2] c"],
        ),
        ([("[RFC PATCH v2] a", A), ("[PATCH] a", B)], ["[PATCH] a"]),
        (  # the answer is a fix of another author
            [("[RFC PATCH v2 1/2] a", A, 1), ("[RFC PATCH v2 2/2] b", B, 2, 1),
             ("[PATCH] c", C, 3, 1)],
            ["[RFC PATCH v2 1/2] a", "[RFC PATCH v2 2/2] b"],
        ),
        ([("[RFC PATCH] a", A), ("[PATCH] a", B)], ["[PATCH] a"]),
        ([("[PATCH] a", A), ("[RFC PATCH] a", B)], ["[PATCH] a"]),
        (
            [("[RFC 1/2] a", A), ("[RFC 2/2] b", B), ("[PATCH 1/1] a", C)],
            ["[PATCH 1/1] a"],
        ),
        (  # a series that ends with a draft
            [("[PATCH 1/2] a", A, 1), ("[RFC PATCH 2/2] b", B, 2, 1)],
            ["[PATCH 1/2] a", "[RFC PATCH 2/2] b"],
        ),
        (
            [("[PATCH v2 1/2] a", A), ("[PATCH v2 2/2] b", B), ("[PATCH RESEND v2 1/2] a", C)],
            ["[PATCH RESEND v2 1/2] a", "[PATCH v2 2/2] b"],
        ),
        ([("[RESEND][PATCH] a", A), ("[PATCH] a", B)], ["[RESEND][PATCH] a"]),
        ([("[PATCH] a", A), ("[PATCH] a", A)], ["[PATCH] a"]),
        (  # of `git format-patch -N`, which names no messages
            [("[PATCH] a", A), ("[PATCH] a", B), ("[PATCH] b", C)],
            ["[PATCH] a", "[PATCH] a", "[PATCH] b"],
        ),
        ([("[PATCH] a", A, 1), ("[PATCH] a", A + "-- \nA list.\n", 1)], ["[PATCH] a"]),
        (
            [("[PATCH v2 1/2] a", A, 1), ("[PATCH v2 2/2] b", B, 2, 1),
             ("[PATCH v2.1 2/2] c", C, 3, 1)],
            ["[PATCH v2 1/2] a", "[PATCH v2.1 2/2] c"],
        ),
        (
            [("[PATCH v2 1/2] a", A, 1), ("[PATCH v2 2/2] b", B, 2, 1),
             ("[PATCH v2.1] a", C, 3, 1)],
            ["[PATCH v2.1] a", "[PATCH v2 2/2] b"],
        ),
        (
            [("[PATCH v2 2/2] b", B, 2, 1), ("[PATCH v2 RESEND] b", C, 3, 1),
             ("[PATCH v2 1/2] a", A, 1)],
            ["[PATCH v2 1/2] a", "[PATCH v2 RESEND] b"],
        ),
        (
            [("[PATCH 1/2] a", A, 1), ("[PATCH 2/2] a", B, 2, 1)],
            ["[PATCH 1/2] a", "[PATCH 2/2] a"],
        ),
    ],
)  # fmt: skip
def test_versions_are_those_of_one_series(
    mails: list[tuple[str, str, *tuple[int, ...]]], subjects: list[str]
) -> None:
    box = "".join(
        mail(at, subject, body, thread(*ids) if ids else "")
        for at, (subject, body, *ids) in enumerate(mails, 1)
    )
    texts = split_mailbox(box.encode())
    assert [text.split("\n")[0].removeprefix("Subject: ") for text in texts] == subjects


@pytest.mark.parametrize("first", ["a", "[PATCH] a", "[PATCH 1/1] a"])
def test_patches_that_may_be_versions_of_one_series_are_refused(tmp_path: Path, first: str) -> None:
    box = tmp_path / "saved.mbox"
    box.write_text(mail(1, first, A) + mail(2, "[PATCH v2] b", B))
    message = f"holds version 1 of '{first}' and version 2 of '[PATCH v2] b', which may be two"
    with pytest.raises(UserError, match=re.escape(message)):
        load_series(box)


@pytest.mark.parametrize(
    ("subject", "ids"), [("[PATCH] a", (1, 2)), ("[PATCH 1/1] a", (1, 2)), ("[PATCH 1/1] a", ())]
)
def test_two_mails_of_one_subject_that_differ_are_refused(
    tmp_path: Path, subject: str, ids: tuple[int, ...]
) -> None:
    box = tmp_path / "saved.mbox"
    first, second = map(thread, ids) if ids else ("", "")
    box.write_text(mail(1, subject, A, first) + mail(2, subject, B, second))
    message = f"holds two mails {subject!r} that differ; save the"
    with pytest.raises(UserError, match=re.escape(message)):
        load_series(box)


def test_a_draft_with_a_higher_number_is_the_newest_if_it_was_sent_last() -> None:
    mails = [
        mail(1, "[PATCH] a", A, "Date: Thu, 3 Nov 2022 10:00:00 +0000\n"),
        mail(2, "[RFC PATCH v2] a", B, "Date: Thu, 3 Nov 2022 11:00:00 +0200\n"),
    ]
    for box in (mails, mails[::-1]):
        (patch,) = split_mailbox("".join(box).encode())
        assert patch.startswith("Subject: [PATCH] a\n"), "11:00 +0200 is before 10:00 +0000"


def test_a_tag_that_looks_like_a_version_is_none() -> None:
    box = mail(1, "[PATCH v4l-utils] a", diff("a", "b")) + mail(2, "[PATCH] b", diff("b", "c"))
    assert len(split_mailbox(box.encode())) == 2


def test_mails_that_say_that_a_patch_was_merged_are_no_patches() -> None:
    """tip-bot2 answers with the commit and its diff, and with a subject of its own."""
    merged = mail(2, "[tip: sched/core] a", diff("a", "b"))
    (patch,) = split_mailbox((mail(1, "[PATCH] a", diff("a", "b")) + merged).encode())
    assert patch.startswith("Subject: [PATCH] a\n")
    assert len(split_mailbox(merged.encode())) == 1, "where nothing else is there"


def test_a_mailbox_that_lacks_patches_of_its_newest_version_is_refused(tmp_path: Path) -> None:
    box = tmp_path / "thread.mbx"
    older = mail(1, "[PATCH 1/2] a", diff("a", "b")) + mail(2, "[PATCH 2/2] b", diff("b", "c"))
    box.write_text(older + mail(3, "[PATCH v2 1/2] a", diff("a", "b")))
    with pytest.raises(UserError, match=r"version 2 of its series lacks the patches 2/2$"):
        load_series(box)
    # A file of `git format-patch` is a mailbox with one message, and others may be named as well.
    box.write_text(mail(1, "[PATCH v2 2/2] b", diff("a", "b")))
    assert applied(box) == "b\n"


def test_an_error_in_one_message_names_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "0001.patch"
    text = mail(1, "[PATCH] a", diff("a", "b").replace("@@ -1 +1 @@", "@@ -1,9 +1,9 @@"))
    file.write_text(text)
    line = text.splitlines().index("@@ -1,9 +1,9 @@") + 1
    with pytest.raises(UserError, match=rf"0001\.patch: line \d+: .*line {line} "):
        load_series(file)


def test_packed_patches(tmp_path: Path) -> None:
    text, packed = diff("a", "b").encode(), tmp_path / "x.patch.xz"
    packed.write_bytes(lzma.compress(text))
    assert applied(packed) == "b\n"
    assert find_series(str(packed)).info.digest == load_series(packed).info.digest
    packed.write_bytes(lzma.compress(text)[:-20])
    with pytest.raises(UserError, match=r"x\.patch\.xz: cannot be unpacked: "):
        load_series(packed)
    packed.write_bytes(lzma.compress(bytes(MAX_PATCH_BYTES + 1)))
    with pytest.raises(UserError, match="larger than 16 MiB"):
        load_series(packed)
    packed.write_bytes(bz2.compress(text))
    with pytest.raises(UserError, match=r"compressed by bzip2, and must .* \(valid: gzip, xz\)"):
        load_series(packed)


def test_encoded_mails_are_decoded(tmp_path: Path) -> None:
    box = tmp_path / "encoded.mbox"
    quoted = diff("a", "b = \u00fc").replace("=", "=3D").replace("\u00fc", "=C3=BC")
    coded = base64.encodebytes(diff("b = \u00fc", "c").replace("\n", "\r\n").encode()).decode()
    plain = "Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: "
    box.write_text(
        mail(1, "=?utf-8?q?=5BPATCH_1/2=5D_=C3=BC?=", quoted, plain + "quoted-printable\n")
        + f"{FROM.format(2)}Subject: [PATCH 2/2] two\n{plain}base64\n\n{coded}\n"
    )
    assert [p.subject for p in load_series(box).patches] == ["\u00fc", "two"]
    assert applied(box) == "c\n"
    folder = tmp_path / "outgoing"
    folder.mkdir()
    for number, text in enumerate(box.read_text().split("From 0")[1:], 1):
        (folder / f"000{number}-x.patch").write_text(f"From 0{text}")
    assert [p.subject for p in load_series(folder).patches] == ["\u00fc", "two"]
    assert applied(folder) == "c\n"


QUOTED = "Content-Transfer-Encoding: quoted-printable\n"
DATE = "Thu Nov  3 10:00:00 2022\n"


@pytest.mark.parametrize(
    "begin",
    [
        "", "Return-Path: <x@y>\n", "From 1@x Thu Nov 03 10:00:00 +0000 2022\n",
        "From x@y Thu Nov  3 10:00:00 CET 2022\n", "From x@y Thu Nov  3 10:00 2022\n",
        f"From x@y {DATE}", f"\n\r\nFrom x@y {DATE}", f"\ufeffFrom x@y {DATE}",
    ],
)  # fmt: skip
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("place", ["file", "folder", "quilt"])
def test_a_mail_is_decoded_however_it_begins(
    tmp_path: Path, begin: str, ends: str, place: str
) -> None:
    text = f"{begin}From: S. <s@x>\nSubject: [PATCH] x\n{QUOTED}\n{diff('a', 'b =3D 1')}"
    file = tmp_path / "x.patch"
    file.write_bytes(text.replace("\n", ends).encode())
    if place == "quilt":
        (tmp_path / "series").write_text("x.patch\n")
    assert applied(file if place == "file" else tmp_path) == "b = 1\n"


def test_a_later_mail_of_a_patch_in_a_folder_is_decoded(tmp_path: Path) -> None:
    second = mail(2, "[PATCH 2/2] b", diff("b", "c =3D 1"), QUOTED)
    (tmp_path / "x.patch").write_text(mail(1, "[PATCH 1/2] a", A) + second)
    assert applied(tmp_path) == "c = 1\n"


def test_mails_of_a_mailbox_may_end_their_lines_in_different_ways(tmp_path: Path) -> None:
    box = tmp_path / "saved.mbox"
    mails = [mail(1, "[PATCH] a", A), mail(2, "[PATCH] b", B), mail(3, "[PATCH] c", C)]
    mails[1] = mails[1].replace("\n", "\r\n") + "\n"
    box.write_bytes("".join(mails).encode())
    assert [patch.subject for patch in load_series(box).patches] == ["a", "b", "c"]
    assert applied(box) == "d\n"


def test_the_subject_of_a_patch_in_a_folder_is_decoded(tmp_path: Path) -> None:
    subject = "[PATCH] =?UTF-8?q?Gr=C3=B6=C3=9Fe:=20a?=\n =?UTF-8?q?=20word?="
    (tmp_path / "0001-x.patch").write_text(mail(1, subject, diff("a", "b")))
    assert load_series(tmp_path).info.patches == ("Gr\u00f6\u00dfe: a word",)


@pytest.mark.parametrize("place", ["attachment", "inline"])
@pytest.mark.parametrize("kind", ["text/x-patch", "application/octet-stream", "application/mbox"])
def test_an_attached_patch_is_read(tmp_path: Path, kind: str, place: str) -> None:
    def attached(kind: str, text: str) -> str:
        coded = base64.encodebytes(text.encode()).decode()
        head = f"Content-Type: {kind}; name=x.patch\nContent-Disposition: {place}\n"
        return f"{head}Content-Transfer-Encoding: base64\n\n{coded}"

    def write(text: str, *patches: str) -> None:
        parts = (
            f"Content-Type: text/plain\n\n{text}\n",
            f"Content-Type: text/html\n\n<pre>{diff('html', 'no')}</pre>\n",
            *(attached(kind, patch) for patch in patches),
            attached("application/pgp-signature", "-----BEGIN PGP SIGNATURE-----\n"),
        )
        body = "".join(f"--=-=\n{part}\n" for part in parts)
        head = 'Subject: [PATCH] x\nContent-Type: multipart/mixed; boundary="=-="\n'
        box.write_text(f"{FROM.format(1)}{head}\n{body}--=-=--\n")

    box = tmp_path / "x.mbox"
    write("Why.", diff("a", "b"), diff("b", "c"))
    assert applied(box) == "c\n"
    assert "PGP" not in load_series(box).patches[0].text
    if not kind.startswith("text/"):
        write(diff("a", "b"), diff("a", "b"))
        assert applied(box) == "b\n", "the patch that the text is"


FLOWED = "Content-Type: text/plain; charset=utf-8; format=flowed"


@pytest.mark.parametrize("name", ["x.mbox", "x.eml", "x.patch"])
def test_the_lines_of_a_mail_that_flows_are_those_that_were_written(
    tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    change = "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n  one\n\n-two\n+two \nwords\n"
    head = FROM.format(1) if name == "x.mbox" else ""
    file.write_text(f"{head}From: A <a@x>\nSubject: [PATCH] x\n{FLOWED}\n\n{change}")
    assert applied(file, "one\n\ntwo\n") == "one\n\ntwo words\n"


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("", " one \n two\n\n>b c\nd \n-- \ne "),
        ("; DelSp=yes", " one\n two\n\n>bc\nd\n-- \ne"),
    ],
)
def test_a_soft_line_break_is_undone(end: str, text: str) -> None:
    body = "  one \n\n  two\n \n >b \n c\nd \n-- \ne "
    assert decode_mail(f"{FLOWED}{end}\n\n{body}".encode())[2] == text


def test_bytes_that_are_no_utf8_come_through(tmp_path: Path) -> None:
    box = tmp_path / "latin.mbox"
    box.write_bytes(mail(1, "[PATCH] x", diff("a", "\u00fc")).encode("latin-1"))
    text = applied(box)
    assert text is not None
    assert text.encode("utf-8", "surrogateescape") == b"\xfc\n"


def test_one_patch_and_a_folder_of_patches(tmp_path: Path) -> None:
    (tmp_path / "0000-cover-letter.patch").write_text("no diff\n")
    (tmp_path / "0002-b.patch").write_text(mail(2, "[PATCH 2/2] b", diff("b", "c")))
    (tmp_path / "0001-a.patch").write_text(diff("a", "b"))
    assert applied(tmp_path) == "c\n"
    assert [p.path.name for p in load_series(tmp_path).patches] == [
        "0001-a.patch", "0002-b.patch",
    ]  # fmt: skip
    assert applied(tmp_path / "0001-a.patch") == "b\n"
    assert applied(tmp_path / "0002-b.patch", "b\n") == "c\n"


def test_a_folder_of_several_versions_is_its_newest_one(tmp_path: Path) -> None:
    """`git format-patch -o outgoing` for each version."""
    mails = {
        "0001-a.patch": mail(1, "[PATCH 1/2] sched: a", diff("a", "old")),
        "0002-b.patch": mail(2, "[PATCH 2/2] sched: b", diff("old", "older")),
        "v2-0001-a.patch": mail(3, "[PATCH v2 1/2] sched: a", A),
        "v2-0002-c.patch": mail(4, "[PATCH v2 2/2] sched: c", B),
        "z.patch": C,
    }
    for name, text in mails.items():
        (tmp_path / name).write_text(text)
    series = load_series(tmp_path)
    assert [patch.path.name for patch in series.patches] == [*mails][2:]
    assert [patch.text for patch in series.patches] == [*mails.values()][2:]
    assert applied(tmp_path) == "d\n"
    (tmp_path / "v2-0002-c.patch").unlink()
    with pytest.raises(UserError, match="version 2 of its series lacks the patches 2/2"):
        load_series(tmp_path)
    (tmp_path / "v2-0001-a.patch").write_text(mail(5, "[PATCH v2] sched: in the caller", B))
    with pytest.raises(UserError, match="may be two series or versions of one"):
        load_series(tmp_path)
    (tmp_path / "series").write_text("".join(f"{name}\n" for name in [*mails][:2]))
    assert applied(tmp_path) == "older\n", "the file says what is applied"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("[PATCH v2] sched: a", "[PATCH] mm: b"),
        ("[PATCH v2 3/5] sched: a", "[PATCH 1/2] mm: b"),
        ("[RFC PATCH] sched: a", "[PATCH v5] mm: b"),
    ],
)
def test_a_folder_of_patches_of_several_series_is_applied_as_it_is(
    tmp_path: Path, first: str, second: str
) -> None:
    """No name says that `git format-patch` left two versions."""
    (tmp_path / "0001-a.patch").write_text(mail(1, first, A))
    (tmp_path / "0002-b.patch").write_text(mail(2, second, B))
    assert applied(tmp_path) == "c\n"


@pytest.mark.parametrize(
    ("name", "tag"),
    [("rfc-0001-a", "RFC PATCH"), ("RFC-0001-a", "RFC PATCH"), ("a-first", "PATCH")],
)
def test_a_folder_of_two_versions_of_a_patch_is_the_newer(
    tmp_path: Path, name: str, tag: str
) -> None:
    """An RFC is older than its proposal; patches of one title are versions."""
    newer = "[PATCH v2] sched: a" if tag == "PATCH" else "[PATCH 1/1] sched: a"
    (tmp_path / "0001-a.patch").write_text(mail(1, newer, A))
    (tmp_path / f"{name}.patch").write_text(mail(2, f"[{tag}] Sched: a", diff("a", "o")))
    assert applied(tmp_path) == "b\n"


def test_versions_between_which_nothing_chooses_are_refused_with_the_way_out(
    tmp_path: Path,
) -> None:
    mails = {
        "0001-a.patch": mail(1, "[PATCH 1/2] sched: a", A),
        "0002-b.patch": mail(2, "[PATCH 2/2] sched: b", diff("b", "old")),
        "v2-0002-b.patch": mail(3, "[PATCH v2 2/2] sched: b", B),
    }
    for name, text in mails.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=r"patches in it: version 2 .* a file called series may"):
        load_series(tmp_path)
    (tmp_path / "v2-0001-a.patch").write_text(mail(4, "[PATCH v2 1/2] sched: a", A))
    assert applied(tmp_path) == "c\n"
    (tmp_path / "v2_b.mbx").write_text(mails["v2-0002-b.patch"])
    assert applied(tmp_path) == "c\n", "the mailbox holds what lies beside it"
    (tmp_path / "v3_b.mbx").write_text(mail(5, "[PATCH v3 2/2] sched: b", diff("b", "new")))
    with pytest.raises(UserError, match=r"several versions of a series, and v3_b\.mbx; a file"):
        load_series(tmp_path)
    (tmp_path / "v3_b.mbx").unlink()
    (tmp_path / "v3-0002-b.patch.gz").write_bytes(gzip.compress(diff("b", "new").encode()))
    with pytest.raises(UserError, match=r"and v3-0002-b\.patch\.gz; a file called series"):
        load_series(tmp_path)
    (tmp_path / "series").write_text("0001-a.patch\nv3-0002-b.patch.gz\n")
    assert applied(tmp_path) == "new\n"


def test_a_folder_may_hold_a_part_of_one_version(tmp_path: Path) -> None:
    (tmp_path / "0001-a.patch").write_text(mail(1, "[PATCH v2 1/3] sched: a", A))
    (tmp_path / "0002-b.patch").write_text(mail(2, "[PATCH v2 2/3] sched: b", B))
    assert applied(tmp_path) == "c\n"


def test_packed_patches_and_mailboxes_of_a_folder_are_read(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    old = mail(1, "[PATCH 1/1] c", diff("c", "old"))
    (folder / "0003-c.mbox").write_text(old + mail(2, "[PATCH v2 1/1] c", C))
    assert is_series(str(folder))
    (folder / "0002-b.patch.gz").write_bytes(gzip.compress(B.encode()))
    (folder / "0001-a.patch").write_text(A)
    assert applied(folder) == "d\n"
    (folder / "series").write_text("0001-a.patch\n0002-b.patch.gz\n")
    assert applied(folder) == "c\n"
    (folder / "series").unlink()
    (folder / "0001-a.patch.gz").write_bytes(gzip.compress(A.encode()))
    (folder / "v2_x.mbx").write_text(mail(1, "[PATCH 1/1] a", A))
    assert applied(folder) == "d\n", "each patch once"
    (folder / "0004.diff.bz2").write_bytes(bz2.compress(A.encode()))
    with pytest.raises(UserError, match=r"0004\.diff\.bz2: is compressed by bzip2"):
        load_series(folder)


def test_mails_that_were_saved_one_by_one_are_one_mailbox(tmp_path: Path) -> None:
    mails = [
        ("d", "[PATCH v2 0/2] sched: both", COVER),
        ("b", "[PATCH v2 2/2] sched: second", diff("b", "c")),
        ("c", "[PATCH v2 1/2] sched: first", diff("a", "b")),
        ("a", "Re: [PATCH v2 1/2] sched: first", diff("a", "wrong")),
        ("e", "[PATCH 1/2] sched: first", diff("a", "old")),
    ]
    for name, subject, body in mails:
        (tmp_path / f"{name}.eml").write_text(f"From: A <a@x>\nSubject: {subject}\n\n{body}")
    assert [patch.path.name for patch in load_series(tmp_path).patches] == ["c.eml", "b.eml"]
    assert applied(tmp_path) == "c\n"
    (tmp_path / "c.eml").unlink()
    (tmp_path / "e.eml").unlink()
    with pytest.raises(UserError, match="version 2 of its series lacks the patches 1/2"):
        load_series(tmp_path)


def test_files_of_a_folder_are_applied_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "0001-a.patch").write_text(diff("a", "b"))
    (tmp_path / "0002-b.eml").write_text(f"From: A <a@x>\nSubject: [PATCH] b\n\n{B}")
    (tmp_path / "0003-c.patch").write_text(diff("c", "d"))
    assert applied(tmp_path) == "d\n"


def test_mailboxes_of_a_folder_are_series_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "1.mbx").write_text(mail(1, "[PATCH v2] sched: a", diff("a", "b")))
    (tmp_path / "2.mbx").write_text(mail(1, "[PATCH v3] sched: b", diff("b", "c")))
    assert applied(tmp_path) == "c\n"


def test_an_answer_beside_patches_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "0001-a.patch").write_text(diff("a", "b"))
    (tmp_path / "answer.eml").write_text("From: A <a@x>\nSubject: Re: [PATCH] a\n\n> +b\nGood.\n")
    assert applied(tmp_path) == "b\n"


def test_an_error_in_a_mailbox_says_which_patch(tmp_path: Path) -> None:
    box = tmp_path / "bad.mbx"
    box.write_text(
        mail(1, "[PATCH 1/2] a", diff("a", "b")) + mail(2, "[PATCH 2/2] c", diff("x", "y"))
    )
    with pytest.raises(UserError) as caught:
        applied(box)
    assert str(caught.value).startswith(f"{box}, patch 2: does not apply: hunk 1 of 1")
    assert "the file has, from line 1 (> differs):\n  > b" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.mbox", mail(1, "hello", "no patch\n").encode(), "is a mailbox without a patch"),
        ("x.patch", b"words\n", "holds no diff"),
        ("x.gz", b"\x1f\x8b rubbish", "cannot be unpacked"),
        ("x.gz", gzip.compress(b"x" * (MAX_PATCH_BYTES + 1)), "larger than 16 MiB"),
        ("x.patch", b"x" * (MAX_PATCH_BYTES + 1), "larger than 16777216 bytes"),
    ],
)
def test_what_is_no_series_is_named(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message):
        load_series(tmp_path / name)


def test_a_name_of_a_series_comes_before_a_file(
    project: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "change").write_text(diff("a", "b"))
    assert find_series("change").patches[0].subject == "sched: change line ten"
    assert find_series("./change").patches[0].subject == "change"


def test_a_name_may_hold_a_number_sign(project: Path, tmp_path: Path) -> None:
    file = tmp_path / "fix#2.patch"
    file.write_text(diff("a", "b"))
    assert is_series(str(file)) and is_series(f"{file}#1")
    assert find_series(f"{file}#1").name == "fix#2#1"


def test_a_trial_is_the_base_with_one_series_more(project: Path) -> None:
    base = find_kernel("plain")
    folder = project / "kernel-configs/series/change"
    spec = with_series(base, str(folder))
    assert (spec.name, spec.series) == ("plain+change", (str(folder),))
    assert spec.groups == "now"
    file = project / "kernel-configs/kernels.toml"
    file.write_text(file.read_text() + 'groups = "before-4.13"\n')  # of the last one, changed
    assert with_series(base, str(folder)).groups == "before-4.13"
    assert with_series(base, "change").groups == "before-4.13"
    image = project.parent / "bzImage"
    image.write_bytes(b"")
    with pytest.raises(UserError, match=r"--base: .* is prebuilt: patches need a source"):
        with_series(find_kernel(str(image)), "change")


@given(st.binary(max_size=400))
def test_any_bytes_split_into_patches_or_none(data: bytes) -> None:
    for text in split_mailbox(FROM.format(1).encode() + b"Subject: x\n\n" + data):
        assert isinstance(text, str)


LINES = st.lists(st.sampled_from("abcdefgh"), min_size=0, max_size=12)


@given(LINES, st.integers(0, 60), st.integers(0, 60))
def test_renewed_offsets_say_where_the_hunks_are(before: list[str], old: int, new: int) -> None:
    text = "".join(f"{line}\n" for line in [*before, "x", "OLD", "y", "z", "z", "z", "z", "LAST"])
    patch = (
        f"--- a/f\n+++ b/f\n@@ -{old},3 +{old},4 @@ here\n x\n-OLD\n+N1\n+N2\n y\n"
        f"@@ -{new + 70},2 +{new},1 @@\n z\n-LAST\n"
    )
    renewed = renew_offsets(patch, {"f": text}.get)
    at = len(before)
    assert f"@@ -{at + 1},3 +{at + 1},4 @@ here" in renewed
    assert f"@@ -{at + 7},2 +{at + 8},1 @@" in renewed
    assert renew_offsets(renewed, {"f": text}.get) == renewed
    assert parse_patch(renewed)[0].hunks[0].lines == parse_patch(patch)[0].hunks[0].lines


def test_offsets_of_a_patch_that_does_not_fit_are_not_renewed() -> None:
    with pytest.raises(HunkFailed, match="hunk 1 of 1 does not fit f"):
        renew_offsets("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", {"f": "c\n"}.get)
    added = "--- /dev/null\n+++ b/g\n@@ -0,0 +1,2 @@\n+a\n+b\n"
    assert renew_offsets(added, lambda _name: None) == added
