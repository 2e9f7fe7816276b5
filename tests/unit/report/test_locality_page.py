"""The page of memory accesses: what is wrong is marked, and names from a guest are only text."""

import re
from dataclasses import replace
from typing import Any

from lxml import html as lxml_html

from numalab.analysis.findings import TaskMemory
from numalab.locality.contended_lines import ContendedLine, LineThread
from numalab.locality.locality import Locality, NodeAccesses
from numalab.locality.region_accesses import PageRun, Places, RegionAccesses, ThreadLines
from numalab.report.page.locality import render_locality
from numalab.topology.load import load_topology
from numalab.topology.predict.firmware import as_guest_numbers
from numalab.topology.topology import renumbered

EVIL = "<script>alert(1)</script>\u202e"
REGION = RegionAccesses(
    12, "table", "prog", 0x4000, 0x6000, 2.5, 100, 1, (2, 0), (100, 300), (100, 300),
    (ThreadLines(13, EVIL, 300),), 1,
    (PageRun(0x4000, 1, 0, (90, 10), (90, 10)), PageRun(0x5000, 1, 0, (10, 290), (10, 290))),
    2, 1, 300,
)  # fmt: skip
LINE = ContendedLine(
    12, 0x7F40, "counters", "prog", "false", 90, 1.5,
    (LineThread(12, "prog", 50, ("counters",), ()), LineThread(13, EVIL, 40, ("counters+8",), ())),
    2,
)  # fmt: skip
ACCESSES = Locality(
    10.0,
    (TaskMemory(13, EVIL, 9.0, 4.0, 1.0, 25.0, (75.0, 25.0)),),
    (NodeAccesses(0, 4.0, 1.0, 25.0, (25.0, 75.0)), NodeAccesses(1, 0.0, 0.0, 0.0, (0.0, 0.0))),
    ("a note",),
    Places((REGION,), 3, (LINE,), 1),
)


def page(accesses: Locality = ACCESSES) -> str:
    return render_locality(["./prog", EVIL], load_topology("full-2"), accesses)


def cells(html: str, first: str) -> list[str]:
    """Return the cells of the row that begins with a name, as text."""
    (row,) = (row for row in re.findall(r"<tr.*?</tr>", html, re.DOTALL) if first in row)
    return [
        re.sub(r"<[^>]+>", "", cell).strip() for cell in re.findall(r"<td.*?</td>", row, re.DOTALL)
    ]


def test_threads_and_regions_have_a_cell_for_each_node() -> None:
    html = page()
    assert cells(html, "/13</th>") == ["4.0", "1.0", "25.0", "75", "25"]
    assert cells(html, "CPUs of node 1") == ["0.0", "0.0", "", "0", "0"]
    assert cells(html, "table (prog)")[:4] == ["2.5", "25.0", "100", "300"]
    assert "--share: 0.750" in html
    assert "2 regions that took less time to fetch" in html and "lines with fewer moves" not in html


def test_every_table_has_heads_and_headings_go_down_by_one_level() -> None:
    tree: Any = lxml_html.fromstring(page())
    assert [len(table.xpath("./thead/tr/th")) for table in tree.xpath("//table")] == [6, 7, 4, 6]
    assert [element.tag for element in tree.xpath("//h1 | //h2 | //h3")] == ["h1", "h2", "h2", "h2"]


def test_what_is_wrong_is_marked() -> None:
    html = page()
    assert "2 on node 0 (wrong node: mostly used by node 1)" in html
    assert ">2 runs of pages" in html and "0x5000" in html
    assert html.count('class="missed"') == 2, "the region, and the line that is falsely shared"
    assert "counters (prog)" in html and "writes counters+8" in html
    right = replace(REGION, misplaced=None, runs=())
    calm = replace(ACCESSES, places=Places((right,), 1))
    assert 'class="missed"' not in page(calm) and "wrong node" not in page(calm)


def test_runs_that_are_left_out_are_counted() -> None:
    cut = replace(REGION, runs_in_all=512)
    assert ">2 of 512 runs of pages" in page(replace(ACCESSES, places=Places((cut,), 1)))


def test_threads_that_are_left_out_are_counted() -> None:
    assert "more</td>" not in page()
    region = replace(REGION, threads=REGION.threads * 16, threads_in_all=67)
    line = replace(LINE, threads=LINE.threads * 8, threads_in_all=40)
    html = page(replace(ACCESSES, places=Places((region,), 1, (line,), 1)))
    assert " and 64 more</td>" in html and "<br>and 34 more</td>" in html


def test_the_picture_has_the_numbers_of_the_guest() -> None:
    moved = renumbered(load_topology("slow-memory-3"), (0, 2, 1))
    guest = as_guest_numbers(moved)
    pages = [render_locality(["./prog"], machine, ACCESSES) for machine in (moved, guest)]
    assert moved != guest and pages[0] == pages[1]


def test_names_from_a_guest_run_nothing() -> None:
    html = page()
    assert "<script" not in html and "\u202e" not in html
    assert "&lt;script&gt;alert(1)" in html
    assert "script-src" in html and "default-src &#39;none&#39;" in html


def test_a_page_without_accesses_says_why() -> None:
    html = page(Locality(0.0, (), (), ("nothing wrote the mark 'a'",)))
    assert "nothing wrote the mark" in html and "<table" not in html
