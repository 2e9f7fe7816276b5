import json
import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest
from lxml import html as lxml_html

from numalab.recording.marks import Mark
from numalab.report.document import PlacementFact
from numalab.report.page import charts
from numalab.report.page.cell_page import MOST_BYTES, render_html
from numalab.report.page.page import embedded_json
from numalab.report.page.timeline import on_cpus
from numalab.report.timeline import Span, Timeline
from numalab.results.manifest import RunStatus
from support.report_sample import hostile_report, ring, sample_report, timeline


def parsed(page: str) -> Any:
    """Parse a page; lxml's own types ask for a check at each XPath."""
    return lxml_html.fromstring(page)


@pytest.fixture(scope="module")
def page() -> str:
    return render_html(sample_report())


@pytest.fixture(scope="module")
def hostile() -> str:
    return render_html(hostile_report())


def test_the_page_is_small_and_the_same_each_time(page: str) -> None:
    assert len(page.encode()) <= MOST_BYTES
    assert page == render_html(sample_report())


def test_the_page_names_no_file_but_itself(page: str) -> None:
    tree = parsed(page)
    links = [link for _, _, link, _ in tree.iterlinks()]
    assert links
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in links)
    assert not tree.xpath("//link | //iframe | //object | //script[@src]")
    styles = "".join(tree.xpath("//style/text()"))
    assert "url(" not in styles
    assert "@import" not in styles


def test_the_policy_allows_exactly_the_scripts_that_are_there(page: str) -> None:
    tree = parsed(page)
    policy = tree.xpath("//meta[@http-equiv]/@content")[0]
    assert "default-src 'none'" in policy
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [b64encode(sha256(text.encode()).digest()).decode() for text in scripts]
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert len(hashes) == 3


def test_the_first_screen_has_question_verdict_drawing_and_key_measures(page: str) -> None:
    report = sample_report()
    tree = parsed(page)
    assert tree.xpath("string(//h1)") == report.question
    assert tree.xpath("string(//p[@class='verdict'])") == report.verdict
    assert tree.xpath("//img[starts-with(@src, 'data:image/svg+xml')]")
    keys = tree.xpath("//table[@id='keys']/tbody/tr")
    assert len(keys) == len(report.key_measures)


def test_every_measure_variant_and_run_is_in_a_table(page: str) -> None:
    report = sample_report()
    tree = parsed(page)
    assert len(tree.xpath("//table[@id='all']/tbody/tr")) == len(report.measures)
    assert len(tree.xpath("//table[@id='each-run']/tbody/tr")) == len(report.runs)
    assert len(tree.xpath("//table[@id='values']/tbody/tr")) == len(report.measures)
    text = tree.text_content()
    for variant in report.variants:
        for fact in (variant.release, variant.config_hash, variant.source_version):
            assert fact in text
    for fact in ("7.2.19", "9.0.0", "sha256:5ad1e2f0c8b7", "Xeon, 2 CPUs", *report.commands):
        assert fact in text


def test_tables_have_as_many_cells_as_names_to_copy(page: str) -> None:
    tree = parsed(page)
    for name in ("groups-last", "groups-all", "all", "each-run", "values", "definitions", "proof"):
        names = tree.xpath(f"//table[@id='{name}']/thead//th[@data-name]")
        for row in tree.xpath(f"//table[@id='{name}']/tbody/tr"):
            assert len(row) == len(names)
    for head in tree.xpath("//th[@data-column]"):
        siblings = [th for th in head.getparent() if th.tag == "th"]
        assert siblings.index(head) == int(head.get("data-column"))


def test_hostile_texts_are_text(hostile: str) -> None:
    tree = parsed(hostile)
    assert len(tree.xpath("//script")) == 4
    assert not tree.xpath("//img[@onerror] | //*[@onmouseover]")
    images = tree.xpath("//img/@src")
    assert len(images) == 4  # two kinds of flows, of two variants each
    assert all(source.startswith("data:image/svg+xml;base64,") for source in images)
    assert tree.xpath("string(//meta/following::title)").startswith("<script>alert(1)</script>")
    shown = hostile.replace(re.search(r"<script>.*", hostile, re.DOTALL)[0], "")  # type: ignore[index]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", shown)
    hostile.encode("utf-8")


def test_embedded_json_cannot_end_its_script() -> None:
    value = {"</script><!--": "&\u2028<script>\ud800"}
    text = str(embedded_json(value))
    assert text.isascii()
    assert not set("<>&") & set(text)
    assert json.loads(text) == value


def test_runs_with_equal_facts_are_told_once_and_others_apart(page: str) -> None:
    assert page.count("1 vCPU thread for 8 vCPUs") == 1
    report = sample_report()
    other = replace(
        report.runs[1], provenance=replace(report.runs[1].provenance, qemu="8.2.1", placement="?")
    )
    text = render_html(replace(report, runs=(report.runs[0], other, *report.runs[2:])))
    assert re.search(r"8\.2\.1 <span[^>]*>\(after-s1\)", text)
    assert text.count("1 vCPU thread for 8 vCPUs") == 1


def test_a_placement_that_was_not_kept_stands_out() -> None:
    report = sample_report()
    facts = (
        PlacementFact("vCPU 0", "host CPU 1", "host CPU 0"),
        PlacementFact("memory of node 0", "any host node", "17 pages on host node 0"),
        PlacementFact("vCPU 1", "host CPU 1", "host CPU 1"),
    )
    runs = tuple(
        replace(run, provenance=replace(run.provenance, proof=facts)) for run in report.runs
    )
    tree = parsed(render_html(replace(report, runs=runs)))
    answers = tree.xpath("//table[@id='proof']/tbody/tr/td[last()]")
    assert [cell.text_content() for cell in answers] == ["NO", "yes", "yes"] * len(runs)
    assert tree.xpath("//details[@open]//table[@id='proof']")
    assert "12 of 18 placements are as requested" in tree.text_content()


def test_marks_at_the_ends_of_the_window_are_left_out() -> None:
    line = replace(timeline("after"), marks=(Mark(0, "begin"), Mark(7, "half"), Mark(5000, "end")))
    assert [mark.text for mark in charts.inner_marks(line)] == ["half"]


def test_a_failed_run_and_lost_events_stand_out() -> None:
    report = sample_report()
    lost = replace(
        report.runs[0],
        status=RunStatus.LOST,
        reason="guest panicked",
        measures={},
        provenance=replace(report.runs[0].provenance, lost_events=12),
    )
    tree = parsed(render_html(replace(report, runs=(lost, *report.runs[1:]))))
    marked = tree.xpath("//table[@id='each-run']/tbody/tr[1]/td[contains(@class, 'worse')]")
    assert [cell.text_content() for cell in marked] == ["guest panicked", "12"]


def test_a_variant_without_domains_shifts_no_column_and_no_colour() -> None:
    report = sample_report()
    tree = parsed(render_html(replace(report, sched_domains=report.sched_domains[1:])))
    for name in ("groups-last", "groups-all"):
        (head,) = tree.xpath(f"//table[@id='{name}']//th[starts-with(@class, 'c')]")
        assert (head.text, head.get("class")) == ("after", "c1")
    (head,) = tree.xpath("//table[@id='groups-all']//th[@data-name='differs']")
    assert int(head.get("data-column")) == len(head.getparent()) - 1


def test_the_order_of_runs_is_said() -> None:
    text = render_html(sample_report())
    assert "those without a result first, then in the order of the plan" in text


def test_a_report_without_timelines_or_domains_is_still_a_page() -> None:
    text = render_html(replace(sample_report(), timelines=(), sched_domains=(), claims=()))
    assert "Nothing to draw: sched_switch was not recorded" in text
    assert "No sched groups were recorded" in text


def test_many_spans_make_a_page_of_the_allowed_size() -> None:
    slices = 5000
    spans = tuple(
        Span(cpu, cpu // 2, i * 0.5, i * 0.5 + 0.49, f"task/{i % 40}", True)
        for cpu in range(8)
        for i in range(slices)
    )
    long = Timeline("before", "r", slices * 0.5, spans)
    text = render_html(replace(sample_report(), timelines=(long, long)))
    assert len(text.encode()) <= MOST_BYTES
    assert "drawn in steps of" in text


def test_the_charts_are_valid_vega_lite() -> None:
    import vl_convert  # noqa: PLC0415

    line = timeline("after")
    tasks = charts.own_tasks(line)
    assert tasks == [f"hog/{n}" for n in range(8)]
    for spec in (
        charts.cpu_chart(line, ring(), 10.0),
        charts.task_chart(line, ring(), 10.0),
    ):
        assert vl_convert.vegalite_to_vega(spec, vl_version=charts.VEGA_LITE)["marks"]
    still = charts.cpu_chart(line, ring(), 10.0, on_cpus(line).spans)
    assert vl_convert.vegalite_to_vega(still, vl_version=charts.VEGA_LITE)["marks"]


def test_all_charts_share_the_longest_time_axis() -> None:
    lines = [timeline("before"), replace(timeline("after"), length_ms=7000.0)]
    text = render_html(replace(sample_report(), timelines=tuple(lines)))
    assert charts.longest_ms(lines) == 7000
    data = json.loads(parsed(text).xpath("string(//script[@id='chart-data'])"))
    timelines = [
        chart["spec"] for name, chart in data["charts"].items() if name.startswith(("cpu", "task"))
    ]
    assert len(timelines) == 4
    for spec in timelines:
        assert spec["layer"][0]["encoding"]["x"]["scale"]["domain"] == [0, 7000]


def test_too_many_tasks_of_interest_get_no_chart_of_their_own() -> None:
    spans = tuple(Span(0, 0, n, n + 1, f"t{n}", True) for n in range(charts.MOST_TASKS + 1))
    assert charts.own_tasks(Timeline("a", "r", 100, spans)) == []
