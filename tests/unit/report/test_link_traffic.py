"""The drawings of traffic over time, and the table of what tasks waited for."""

from base64 import b64decode
from dataclasses import replace

import pytest

from numalab.analysis.findings import TaskMemory, TimeSeries
from numalab.report.document import CellReport
from numalab.report.modes import RunMode
from numalab.report.page.cell_page import render_html
from numalab.report.page.curves import curves
from numalab.report.page.link_traffic import link_traffic, stalled_rows
from support.report_sample import sample_report

TASK = TaskMemory(7, "<hog>", 2000.0, 1500.0, 300.0, 25.0, (25.0, 75.0, 0.0, 0.0))


def series(
    rates: tuple[float, ...], *, node: int | None, link: tuple[int, int] | None
) -> TimeSeries:
    at = tuple(5000.0 * (step + 1) / len(rates) for step in range(len(rates)))
    name = "memory_node" if link is None else "memory_link"
    return TimeSeries(name, name, "MB/s", node, at, rates, link=link)


TIMED = RunMode("timed", model=("2 ns <each>", "caches", "more"))


@pytest.fixture
def report() -> CellReport:
    """After, node 0's memory is read over the link to node 1 in the first half of 5 s only."""
    runs = []
    for run in sample_report().findings:
        rates = (400.0, 0.0) if run.variant == "after" else (100.0, 100.0)
        more = (
            series(rates, node=0, link=None),
            series(rates, node=None, link=(0, 1)),
            series((0.0, 0.0), node=None, link=(1, 0)),
        )
        every = (*run.findings.series, *more)
        runs.append(replace(run, findings=replace(run.findings, series=every, memory=(TASK,))))
    return replace(
        sample_report(),
        findings=tuple(runs),
        mode=TIMED,
    )


def test_a_drawing_for_each_part_of_the_window_says_what_links_carried(report: CellReport) -> None:
    shown = dict(link_traffic(report))
    assert list(shown) == [variant.name for variant in report.variants]
    first, *_, last = shown["after"]
    assert first["title"] == "0 to 1,250 ms"
    assert first["text"] == "memory of node 0 400 MB/s, link 0-1 400 MB/s"
    assert last["text"] == "memory of node 0 0 MB/s"
    drawing = b64decode(first["image"].partition(",")[2]).decode()
    assert ">400 MB/s<" in drawing
    assert drawing.count(">400<") == drawing.count('class="flow"') == 1
    assert ">100<" in b64decode(shown["before"][3]["image"].partition(",")[2]).decode()
    assert 'class="flow"' not in b64decode(last["image"].partition(",")[2]).decode()


def test_a_run_that_has_ended_is_no_traffic_of_0(report: CellReport) -> None:
    """Of a constant rate, runs of other lengths have the same mean, and then no drawing."""
    runs = []
    for run in report.findings:
        length = 1251.0 if run.variant == "after" else 2500.0 * (1 + run.run.endswith("1"))
        at = (length / 2, length)
        constant = TimeSeries("memory_node", "", "MB/s", 0, at, (100.0, 100.0))
        ended = replace(run.findings, series=(constant,), length_ms=length)
        runs.append(replace(run, findings=ended))
    shown = dict(link_traffic(replace(report, findings=tuple(runs))))
    assert {name: len(parts) for name, parts in shown.items()} == {"before": 4, "after": 2}
    assert shown["before"][1]["title"] == "1,250 to 2,500 ms"
    assert shown["after"][1]["title"] == "1,250 to 1,251 ms"
    texts = {part["text"] for parts in shown.values() for part in parts}
    assert texts == {"memory of node 0 100 MB/s"}


def test_without_a_memory_model_there_is_nothing_to_draw() -> None:
    assert link_traffic(sample_report()) == []
    assert stalled_rows(sample_report()) == []
    text = render_html(sample_report())
    assert "Traffic on the links" not in text
    assert "modelled:" not in text


def test_the_page_says_what_the_model_is_made_of(report: CellReport) -> None:
    text = render_html(report)
    assert "Traffic on the links" in text
    assert "2 ns &lt;each&gt;; caches" in text
    assert "&lt;hog&gt;/7" in text
    row = stalled_rows(report)[0]
    assert (row["stall_percent"], row["local_percent"]) == (75.0, 25.0)
    assert sum(row["shares"]) == pytest.approx(100)
    for share in row["shares"]:
        assert f"{share * 0.55:.0f}%, transparent" in text.partition('<table id="stalled">')[2]
    links = next(curve for curve in curves(report) if curve["name"] == "memory_link")
    assert [line["label"] for line in links["diagrams"][0]["lines"]] == ["link 0-1", "link 1-0"]
