import resource
import struct
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from numalab.errors import HostError
from numalab.report.page import picture
from numalab.report.page.picture import WIDTH, render_picture_png, render_picture_svg
from support.report_sample import hostile_report, sample_report


def test_the_picture_holds_the_drawing_and_both_timelines() -> None:
    text = render_picture_svg(sample_report())
    root = ElementTree.fromstring(text)
    words = " ".join(root.itertext())
    for word in (
        "node 3",
        "before: v6.12-old-groups (6.12.48-old-groups)",
        "after: v6.12 (6.12.48)",
        "N3 CPU 7",
        "icount",
    ):
        assert word in words
    assert "http" not in text.replace("http://www.w3.org/", "")


def test_hostile_texts_leave_the_picture_well_formed() -> None:
    root = ElementTree.fromstring(render_picture_svg(hostile_report()))
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))


def test_the_png_has_the_size_asked_for() -> None:
    png = render_picture_png(replace(sample_report(), timelines=()), scale=1)
    assert png.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">I", png[16:20]) == (WIDTH,)


def test_too_little_address_space_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """V8 ends the process where it cannot reserve its address space; nothing may start it then."""
    limit = 8 << 30
    monkeypatch.setattr(resource, "getrlimit", lambda what: (limit, limit))
    monkeypatch.setattr(picture, "V8_BYTES", 1 << 60)  # more than any machine has
    with pytest.raises(HostError, match=r"address space .* the limit is 8\.0 GiB\n  hint: ulimit"):
        render_picture_svg(sample_report())
