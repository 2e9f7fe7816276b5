"""The page over several cells and results."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import html as lxml_html

from numalab.reach.model import CodeChange, LineReach, LineState, PatchReach, RunReach
from numalab.report.build.publish import links
from numalab.report.comparisons import compare_variants
from numalab.report.document import CellReport, StudyResults
from numalab.report.page.overview import OverviewStudy, render_overview
from numalab.results.layout import Results
from support.report_sample import hostile_report, sample_report, thread_cells

LINE = LineReach(
    file="kernel/sched/fair.c",
    number=1437,
    kind="added",
    text="if (a < b)",
    state=LineState.REACHED,
    executions=2600,
)


def parsed(page: str) -> Any:
    return lxml_html.fromstring(page)


def overview(*reports: CellReport) -> OverviewStudy:
    addresses = tuple(f"cells/{report.cell_name}/index.html" for report in reports)
    return OverviewStudy(StudyResults.of(*reports), addresses)


def cells() -> OverviewStudy:
    return overview(*thread_cells())


def test_every_cell_has_its_verdict_claims_figures_and_link() -> None:
    tree = parsed(render_overview([cells()]))
    addresses = tree.xpath("//table[@id='cells-0']//a/@href")
    assert tuple(addresses) == cells().links
    claims = tree.xpath("//table[@id='claims-0']/tbody/tr")
    assert len(claims) == 4
    assert "+19%" in claims[0].text_content()
    assert "cannot be seen in this mode" in claims[0].text_content()
    rows = tree.xpath("//table[@id='keys-0']/tbody/tr")
    assert len(rows) == 8  # the key measure of each cell, and a metric that differs
    assert tree.xpath("string(//p[@class='verdict'])") == "4 of 4 cells differ: better in 4"
    assert "ring-4, warehouse-48" in rows[-1].text_content()
    assert tree.xpath("string(//h1)") == sample_report().question
    assert len(tree.xpath("//figure")) == 1


def test_headings_go_down_by_one_level() -> None:
    side = RunReach(series="s", kernel="k", side="patched", code=CodeChange.LINES, lines=(LINE,))
    patch = PatchReach(series="s", code=CodeChange.LINES, patched=side)
    judged = replace(cells(), results=replace(cells().results, reach=patch, verdict="verdict"))
    for pages, levels in (
        ([cells()], "122"),
        ([judged], "1222"),
        ([cells(), judged], "12332333"),
    ):
        tree = parsed(render_overview(pages))
        headings = [element.tag for element in tree.xpath("//h1 | //h2 | //h3 | //h4")]
        assert "".join(headings).replace("h", "") == levels


def test_a_table_without_a_difference_does_not_say_that_something_differs() -> None:
    def titles(study: OverviewStudy) -> str:
        return str(parsed(render_overview([study])).xpath("string(//h2[1])"))

    assert titles(cells()).startswith("What differs")
    report = sample_report()
    same = compare_variants(
        report.measures, report.key_measures, {"before": {"m": (1.0,)}, "after": {"m": (1.0,)}}
    )
    assert titles(overview(replace(report, comparisons=same))).startswith("Measures")


def test_its_head_has_the_variants_of_every_cell_once() -> None:
    first, second, *rest = thread_cells()
    renamed = tuple(replace(variant, name=f"{variant.name}-too") for variant in second.variants)
    other = replace(second, variants=renamed)
    head = parsed(render_overview([overview(first, other, *rest)])).xpath("//p[@class='meta']/span")
    names = [variant.name for variant in first.variants]
    assert [span.text for span in head] == [*names, *(f"{n}-too" for n in names)]


def test_studies_stay_apart() -> None:
    other = replace(sample_report(), study="other")
    study = OverviewStudy(StudyResults.of(other), ("other/index.html",))
    tree = parsed(render_overview([cells(), study]))
    assert [h2.text for h2 in tree.xpath("//h2")] == ["group-construction", "other"]
    assert tree.xpath("//table[@id='cells-1']//a/@href") == ["other/index.html"]


def test_the_verdict_on_a_patch_keeps_its_lines() -> None:
    text = "verdict    no change found\npatch      <sched>\x1b: Do it"
    study = replace(cells(), results=replace(cells().results, verdict=text))
    (block,) = parsed(render_overview([study])).xpath("//pre")[:1]
    first, second = block.text.rstrip("\n").splitlines()
    assert first == "verdict    no change found"
    assert second == "patch      <sched>\\x1b: Do it"


def test_only_the_verdict_on_a_patch_counts_its_cells() -> None:
    """The stored plan has only the cells that were started."""
    patch = replace(cells(), results=replace(cells().results, verdict="verdict    undecided"))
    heads = [
        parsed(render_overview(pages)).xpath("string(//header/p)").split(" · ")[:3]
        for pages in ([patch], [cells(), patch])
    ]
    assert not any("cells" in part or "runs" in part for part in heads[0])
    assert heads[1] == ["numalab overview", "4 of 4 cells", "24 of 24 runs finished"]


def test_the_page_of_a_patch_has_the_executions_of_each_line() -> None:
    side = RunReach(series="s", kernel="k", side="patched", code=CodeChange.LINES, lines=(LINE,))
    patch = PatchReach(series="s", code=CodeChange.LINES, patched=side)
    study = replace(cells(), results=replace(cells().results, reach=patch))
    (row,) = parsed(render_overview([study])).xpath("//table[@class='patch']/tbody/tr")
    assert [cell.text_content().strip() for cell in row][:3] == ["2,600", "1437", "+if (a < b)"]


def test_the_overview_asks_nothing_of_a_network_and_is_small() -> None:
    page = render_overview([cells()])
    assert len(page) < 300_000
    tree = parsed(page)
    assert "default-src 'none'" in tree.xpath("//meta[@http-equiv]/@content")[0]
    assert not tree.xpath("//script[@src] | //link | //iframe")


def test_hostile_texts_are_text() -> None:
    study = StudyResults.of(hostile_report())
    tree = parsed(render_overview([OverviewStudy(study, ('x" onclick="alert(1)',))] * 2))
    assert len(tree.xpath("//script")) == 1
    assert not tree.xpath("//*[@onclick] | //*[@onmouseover] | //img[@onerror]")


@pytest.mark.parametrize("beside", [None, Path("/results")])
def test_links_lead_from_the_overview_to_the_pages(beside: Path | None) -> None:
    link = links(StudyResults.of(*thread_cells()), Results(Path("/results/a b")), beside)[0]
    where = "a%20b/" if beside else ""
    assert link == f"{where}cells/ring-4_warehouse-1/index.html"
    (single,) = links(StudyResults.of(sample_report()), Results(Path("/results/x")), beside)
    assert single == ("x/index.html" if beside else "index.html")
