import json
from dataclasses import replace

from report_sample import VALUES, hostile_report, sample_report

from lab.report.document import VERSION, render_document, report_document
from lab.report.model import Reading


def test_every_measure_of_every_run_is_there() -> None:
    document = json.loads(render_document(sample_report()))
    assert document["format"] == "numalab-report"
    assert document["version"] == VERSION
    assert len(document["runs"]) == 6
    for run in document["runs"]:
        assert set(run["measures"]) == set(VALUES)
    side, place = 1, 2
    run = next(run for run in document["runs"] if run["id"] == "after-s3")
    for name in run["measures"]:
        assert run["measures"][name] == VALUES[name][side][place]


def test_a_figure_that_could_not_be_measured_is_null() -> None:
    document = report_document(sample_report())
    assert document["runs"][0]["measures"]["cache_misses"] is None
    missed = next(c for c in document["comparisons"] if c["measure"] == "cache_misses")
    assert missed["variants"]["before"] == {"n": 0, "change_percent": None}
    assert missed["outcome"] == "not comparable"


def test_measures_are_defined_with_unit_direction_and_kind() -> None:
    document = report_document(sample_report())
    for measure in document["measures"]:
        assert measure["unit"]
        assert measure["definition"]
        assert measure["source"]
        assert measure["direction"] in {"lower", "higher", "none"}
        assert measure["kind"] in {"placement", "timing"}


def test_the_document_says_where_it_came_from() -> None:
    document = report_document(sample_report())
    assert document["mode"]["name"] == "icount"
    assert document["variants"][0]["release"] == "6.12.48-old-groups"
    assert document["runs"][0]["provenance"]["qemu"].startswith("7.2")
    assert document["topology"]["distances"][0] == [10, 20, 30, 20]
    assert document["sched_domains"][0]["cpus"][2]["domains"][2]["groups"][0]["span"]


def test_infinite_and_missing_numbers_are_valid_json() -> None:
    report = sample_report()
    run = replace(report.runs[0], readings=(Reading("hog_cpu_time", float("inf")),))
    text = render_document(replace(report, runs=(run,)))
    assert json.loads(text, parse_constant=lambda _: 1 / 0)["runs"][0]["measures"] == {
        "hog_cpu_time": None
    }


def test_hostile_texts_survive_unchanged() -> None:
    report = hostile_report()
    text = render_document(report)
    text.encode("utf-8")
    assert json.loads(text)["variants"][0]["series"] == list(report.variants[0].series)
