"""The page over several cells and results."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import html as lxml_html

from numalab.report.page.overview import OverviewEntry, render_overview
from numalab.reporting.publish import entries
from numalab.results.layout import Results
from support.report_sample import hostile_report, sample_report, thread_cells


def parsed(page: str) -> Any:
    return lxml_html.fromstring(page)


def cells() -> list[OverviewEntry]:
    return [OverviewEntry(each, f"cells/{each.cell_name}/index.html") for each in thread_cells()]


def test_every_cell_has_its_verdict_claims_figures_and_link() -> None:
    tree = parsed(render_overview(cells()))
    links = tree.xpath("//table[@id='cells-0']//a/@href")
    assert links == [entry.link for entry in cells()]
    claims = tree.xpath("//table[@id='claims-0']/tbody/tr")
    assert len(claims) == 4
    assert "+19%" in claims[0].text_content()
    assert "cannot be seen in this mode" in claims[0].text_content()
    rows = tree.xpath("//table[@id='keys-0']/tbody/tr")
    assert len(rows) == 4  # the key measure of each cell
    assert "ring-4, warehouse-48" in rows[-1].text_content()
    assert tree.xpath("string(//h1)") == sample_report().question
    assert len(tree.xpath("//figure")) == 1


def test_its_head_has_the_variants_of_every_cell_once() -> None:
    first, second, *rest = cells()
    renamed = tuple(replace(each, name=f"{each.name}-too") for each in second.report.variants)
    other = replace(second, report=replace(second.report, variants=renamed))
    head = parsed(render_overview([first, other, *rest])).xpath("//p[@class='meta']/span")
    names = [each.name for each in first.report.variants]
    assert [span.text for span in head] == [*names, *(f"{n}-too" for n in names)]


def test_studies_stay_apart() -> None:
    other = replace(sample_report(), study="other")
    tree = parsed(render_overview([*cells(), OverviewEntry(other, "other/index.html")]))
    assert [h2.text for h2 in tree.xpath("//h2")] == ["group-construction", "other"]
    assert tree.xpath("//table[@id='cells-1']//a/@href") == ["other/index.html"]


def test_the_overview_asks_nothing_of_a_network_and_is_small() -> None:
    page = render_overview(cells())
    assert len(page) < 300_000
    tree = parsed(page)
    assert "default-src 'none'" in tree.xpath("//meta[@http-equiv]/@content")[0]
    assert not tree.xpath("//script[@src] | //link | //iframe")


def test_hostile_texts_are_text() -> None:
    tree = parsed(render_overview([OverviewEntry(hostile_report(), 'x" onclick="alert(1)')] * 2))
    assert len(tree.xpath("//script")) == 1
    assert not tree.xpath("//*[@onclick] | //*[@onmouseover] | //img[@onerror]")


@pytest.mark.parametrize("beside", [None, Path("/results")])
def test_links_lead_from_the_overview_to_the_pages(beside: Path | None) -> None:
    found = entries(thread_cells(), Results(Path("/results/a b")), beside)
    link = found[0].link
    where = "a%20b/" if beside else ""
    assert link == f"{where}cells/ring-4_warehouse-1/index.html"
    (single,) = entries([sample_report()], Results(Path("/results/x")), beside)
    assert single.link == ("x/index.html" if beside else "index.html")
