"""Flows, heat maps, curves and lists that a page makes of the runs' findings."""

from dataclasses import replace

import pytest

from numalab.analysis.findings import Decision, Matrix, TimeSeries
from numalab.report.document import CellReport, RunFindings
from numalab.report.modes import RunMode
from numalab.report.page import charts
from numalab.report.page.cell_page import render_html
from numalab.report.page.charts import curve_chart
from numalab.report.page.curves import MOST_POINTS, MOST_STEPS, curves
from numalab.report.page.residence import balance, residence_rows
from numalab.report.page.traffic import (
    MOST_FLOWS,
    as_text,
    draw_flows,
    heat_maps,
    short_text,
    traffic,
)
from support.findings_sample import findings
from support.report_sample import HOSTILE, sample_report

COLUMNS = ("start", "mean", "low", "high", "runs")  # of a curve


def test_a_flow_is_the_mean_of_the_runs_of_its_variant() -> None:
    moves, swaps, migrations = traffic(sample_report())
    before, after = moves.sides
    assert (before.variant, before.means[1][3]) == ("before", 0)
    assert after.means[1][3] == pytest.approx((4 + 5 + 6) / 3)
    assert [run[1][3] for run in after.runs] == [4, 5, 6]
    ((unit, total),) = after.weighted
    assert (unit, round(total, 6)) == ("hops", 10)
    assert (moves.most, moves.most_between, swaps.most_between) == (5, 5, 0)
    # What stays on a node is no flow.
    assert migrations.sides[0].total == pytest.approx(2 * 2)


def test_arrows_of_all_variants_share_one_scale() -> None:
    report = sample_report()
    moves, _, migrations = traffic(report)
    nothing, thick = (draw_flows(report.topology, moves, side) for side in moves.sides)
    assert 'class="flow"' not in nothing
    assert thick.count('class="flow"') == 1
    assert "stroke-width:7.5" in thick
    thin = draw_flows(report.topology, migrations, migrations.sides[0])
    assert "stroke-width:7.5" not in thin
    assert thin.count('class="flow"') == 2


def test_only_the_largest_flows_are_drawn() -> None:
    report = sample_report()
    cells = tuple(tuple(float(10 * a + b + 1) for b in range(4)) for a in range(4))
    kinds = [
        replace(run, findings=replace(run.findings, matrices=(Matrix("m", "M", "moves", cells),)))
        for run in report.findings
    ]
    report = replace(report, findings=tuple(kinds))
    (kind,) = traffic(report)
    drawing = draw_flows(report.topology, kind, kind.sides[0])
    assert drawing.count('class="flow"') == MOST_FLOWS
    assert "2 smaller flows are not drawn" in render_html(report)


def test_a_matrix_that_one_variant_lacks_is_not_compared() -> None:
    report = sample_report()
    only = tuple(run for run in report.findings if run.variant == "after")
    assert traffic(replace(report, findings=only)) == []


def test_heat_maps_of_all_variants_share_one_scale_and_tell_every_run() -> None:
    import vl_convert  # noqa: PLC0415

    report = sample_report()
    moves = traffic(report)[0]
    for spec in heat_maps(report.topology, moves):
        assert spec["layer"][0]["encoding"]["fillOpacity"]["scale"]["domain"] == [0, 5]
        assert vl_convert.vegalite_to_vega(spec, vl_version=charts.VEGA_LITE)["marks"]
    cell = heat_maps(report.topology, moves)[1]["data"]["values"][1 * 4 + 3]
    assert (cell["from"], cell["to"], cell["runs"], cell["distance"]) == (1, 3, "4, 5, 6", 30)


def test_a_matrix_as_text_lines_up() -> None:
    report = sample_report()
    lines = as_text(report.topology, traffic(report)[2]).splitlines()
    assert lines[0] == "Migrations of tasks of interest [migrations], mean of a run"
    assert lines[2].split() == ["before", "to", "0", "to", "1", "to", "2", "to", "3"]
    assert lines[4] == "from 1           0     1     0     2"
    assert len({len(line) for line in lines[2:7]}) == 1


def test_a_curve_has_the_mean_and_the_band_of_its_runs() -> None:
    local, runnable = curves(sample_report())
    (diagram,) = local["diagrams"]
    before, after = diagram["lines"]
    assert (before["label"], after["label"]) == ("before", "after")
    assert [before[name][0] for name in COLUMNS] == [41.667, 22.0, 21.0, 23.0, 3]
    assert {len(before[name]) for name in COLUMNS} == {MOST_STEPS}
    assert local["most"] == 100
    assert [diagram["heading"] for diagram in runnable["diagrams"]] == ["before", "after"]
    labels = [line["label"] for line in runnable["diagrams"][0]["lines"]]
    assert labels == [f"node {n}" for n in range(4)]


def test_a_run_that_ends_early_leaves_its_curve() -> None:
    report = sample_report()
    short = TimeSeries("local_faults", "Local", "%", None, (250.0, 500.0), (10.0, None))
    first = report.findings[0]
    runs = (replace(first, findings=replace(first.findings, series=(short,))), *report.findings[1:])
    local = curves(replace(report, findings=runs))[0]
    assert local["diagrams"][0]["lines"][0]["runs"] == [3] * 6 + [2] * 114


@pytest.mark.parametrize("links", [1, 32])
def test_no_step_of_a_run_is_left_out_of_its_curve(links: int) -> None:
    report = sample_report()
    at = tuple(5000 * (step + 1) / 119 for step in range(119))

    def most(place: int) -> float:
        values = tuple(9.0 * (step == place) for step in range(119))
        crowded = tuple(
            TimeSeries("hot", "Hot", "tasks", None, at, values, link=(number, 99))
            for number in range(links)
        )
        (run, *_) = report.findings
        only = replace(run, findings=replace(run.findings, series=crowded))
        (curve,) = curves(replace(report, findings=(only,)))
        line = curve["diagrams"][0]["lines"][0]
        width = line["start"][0]
        assert sum(line["mean"]) * width == pytest.approx(9 * 5000 / 119, rel=1e-3)
        assert isinstance(curve["most"], float)
        return curve["most"]

    assert {most(place) for place in range(119)} == {9.0}


def test_curves_are_valid_vega_lite() -> None:
    import vl_convert  # noqa: PLC0415

    for curve in curves(sample_report()):
        spec = curve_chart(curve["unit"], 5000.0, curve["most"])
        assert vl_convert.vegalite_to_vega(spec, vl_version=charts.VEGA_LITE)["marks"]


def test_a_decision_says_what_was_decided() -> None:
    move = Decision(1.0, "move", 7, "hog", 2, 1, 6, 3, nearer=-10, undone="moved back")
    assert charts.decision_mark(move)["what"] == (
        "move: CPU 2 (node 1) to CPU 6 (node 3), moved back, 10 farther from its preferred node"
    )
    swap = Decision(1.0, "swap", 7, "hog", 2, 1, 6, 3, other_pid=9, other_task=HOSTILE[3])
    assert charts.decision_mark(swap)["what"].endswith("with \\u202egnp.exe\\u2066/9")
    stick = Decision(1.0, "stick", 7, "hog", 2, 1, None, 3, reason="not allowed there", nearer=0)
    assert charts.decision_mark(stick)["what"] == (
        "stick: CPU 2 (node 1) to node 3, not allowed there, as far from its preferred node"
    )


def test_decisions_about_tasks_without_a_row_have_no_mark() -> None:
    line = sample_report().timelines[0]
    other = Decision(1.0, "move", 99, "kworker", 2, 1, 6, 3)
    plain = charts.task_chart(line, sample_report().topology, 10.0)
    assert charts.task_chart(line, sample_report().topology, 10.0, [other]) == plain


def test_movers_and_moments_are_of_all_runs() -> None:
    result = balance(sample_report())
    assert result is not None
    rows = {(row["variant"], row["mover"]): row for row in result["movers"]}
    assert rows["after", "numa"]["moves"] == 5
    assert rows["after", "numa"]["taken_back"] == {"load balancer": 1.0}
    assert rows["before", "numa"]["taken_back"] == {}
    assert (result["violation_count"], len(result["violations"])) == (120, 3)
    text = result["violations"][0]["text"]
    assert text == "CPU 6 idle, CPU 2 overloaded; hog/101 waited there"
    assert result["storms"][0]["text"] == "4 moves of 4 tasks to node 3"
    assert len(result["notes"]) == 6
    # The recording counts the moves of any task, so the page must not say whose they are.
    assert "Movers of all tasks" in render_html(sample_report())


def test_residence_is_that_of_one_run_of_each_variant() -> None:
    rows = residence_rows(sample_report())
    assert [row["residence"].level for row in rows] == ["process"] * 2 + ["task"] * 16
    assert [row["variant"] for row in rows[:2]] == ["before", "after"]


def alone() -> CellReport:
    """A report of one recording: one variant, one run, nothing to compare."""
    report = sample_report()
    return replace(
        report,
        variants=report.variants[:1],
        runs=report.runs[:1],
        comparisons=tuple(
            replace(row, summaries=row.summaries[:1], changes=(None,), versus=(None,))
            for row in report.comparisons
        ),
        sched_domains=report.sched_domains[:1],
        timelines=report.timelines[:1],
        findings=(RunFindings("before", "before-s1", findings("before", 1)),),
        claims=(),
    )


def test_a_single_recording_has_a_page_without_comparisons() -> None:
    text = render_html(replace(alone(), mode=RunMode("recording")))
    assert "kernelshark" not in text  # a recording from elsewhere has no folder of runs
    text = render_html(alone())
    assert "kernelshark" in text
    assert "of each variant" not in text
    assert 'data-name="change"' not in text
    assert "of each kernel" not in text


def test_results_without_findings_still_have_a_page() -> None:
    text = render_html(replace(sample_report(), findings=()))
    assert 'id="traffic"' not in text
    assert "Drawing of the topology" in text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (2.5, "2.5"),
        (731.4, "731"),
        (9999.4, "9,999"),
        (9999.6, "10k"),
        (999_400, "999k"),
        (999_600, "1.0M"),
        (3_210_000, "3.2M"),
        (9_960_000, "10M"),
        (5e12, "5.0T"),
    ],
)
def test_a_cell_has_room_for_five_characters(value: float, text: str) -> None:
    assert short_text(value) == text


def test_many_curves_have_fewer_steps_each() -> None:
    """A mesh has 32 links: a page stays small, and each curve keeps its length."""
    report = sample_report()
    (first, *_) = report.findings
    many = tuple(
        TimeSeries("links", "Links", "MB/s", None, (10.0, 20.0), (1.0, 2.0), link=(0, n))
        for n in range(1, 33)
    )
    crowded = replace(first, findings=replace(first.findings, series=many, length_ms=20.0))
    (links,) = curves(replace(report, findings=(crowded,)))
    for line in links["diagrams"][0]["lines"]:
        assert len(line["mean"]) == MOST_POINTS // 32
        assert line["mean"] == [1.0] * 25 + [2.0] * 25
