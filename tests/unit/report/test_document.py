import json
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from jsonschema import Draft202012Validator

from numalab.report.document import VERSION, CellReport, StudyResults
from numalab.report.formats.json import render_document, report_document, report_schema
from support.report_sample import VALUES, hostile_report, sample_report, thread_cells


def test_every_measure_of_every_run_is_there() -> None:
    whole = json.loads(render_document(StudyResults.of(sample_report())))
    assert whole["format"] == "numalab-report"
    assert whole["version"] == VERSION
    (document,) = whole["cells"]
    assert len(document["runs"]) == 6
    for run in document["runs"]:
        assert set(run["measures"]) == set(VALUES)
    side, place = 1, 2
    run = next(run for run in document["runs"] if run["id"] == "after-s3")
    for name in run["measures"]:
        assert run["measures"][name] == VALUES[name][side][place]


def test_the_published_schema_is_that_of_the_documents(golden: Callable[[str, str], None]) -> None:
    golden("../../../docs/report.schema.json", json.dumps(report_schema(), indent=1) + "\n")


@pytest.mark.parametrize("reports", [[sample_report()], thread_cells(), [hostile_report()]])
def test_documents_are_as_the_schema_says(reports: Sequence[CellReport]) -> None:
    schema = Draft202012Validator(report_schema())
    whole = json.loads(render_document(StudyResults.of(*reports)))
    assert schema.is_valid(whole)
    assert not schema.is_valid(whole | {"version": 1})


def test_a_comparison_says_how_sure_it_is() -> None:
    document = report_document(StudyResults.of(sample_report()))["cells"][0]
    comparison = next(c for c in document["comparisons"] if c["measure"] == "idle_while_overloaded")
    before, after = comparison["variants"]["before"], comparison["variants"]["after"]
    assert (before["n"], before["p_value"], before["outcome"]) == (3, None, None)
    assert after["test"] == "Welch's t"
    assert after["interval"][0] < after["difference"] < after["interval"][1] < 0
    assert after["p_value"] <= after["corrected"] < 0.05
    assert (after["outcome"], after["family"]) == ("better", 3)


def test_a_figure_that_could_not_be_measured_is_null() -> None:
    document = report_document(StudyResults.of(sample_report()))["cells"][0]
    assert document["runs"][0]["measures"]["cache_misses"] is None
    missed = next(c for c in document["comparisons"] if c["measure"] == "cache_misses")
    assert missed["variants"]["before"]["n"] == 0
    assert missed["variants"]["before"]["mean"] is None
    assert missed["outcome"] == "not comparable"


def test_measures_are_defined_with_unit_direction_and_kind() -> None:
    document = report_document(StudyResults.of(sample_report()))["cells"][0]
    for measure in document["measures"]:
        assert measure["unit"]
        assert measure["definition"]
        assert measure["source"]
        assert measure["direction"] in {"lower", "higher", "none"}
        assert measure["kind"] in {"placement", "timing"}


def test_the_document_says_where_it_came_from() -> None:
    document = report_document(StudyResults.of(sample_report()))["cells"][0]
    assert document["mode"]["name"] == "icount"
    assert document["variants"][0]["release"] == "6.12.48-old-groups"
    assert document["runs"][0]["provenance"]["qemu"].startswith("7.2")
    assert document["topology"]["distances"][0] == [10, 20, 30, 20]
    assert document["sched_domains"][0]["cpus"][2]["domains"][2]["groups"][0]["span"]


def test_infinite_and_missing_numbers_are_valid_json() -> None:
    report = sample_report()
    run = replace(report.runs[0], measures={"hog_cpu_time": float("inf")})
    text = render_document(StudyResults.of(replace(report, runs=(run,))))
    assert json.loads(text, parse_constant=lambda _: 1 / 0)["cells"][0]["runs"][0]["measures"] == {
        "hog_cpu_time": None
    }


def test_hostile_texts_survive_unchanged() -> None:
    report = hostile_report()
    text = render_document(StudyResults.of(report))
    text.encode("utf-8")
    whole = [line.replace("\ud800", "\ufffd") for line in report.variants[0].series]
    assert json.loads(text)["cells"][0]["variants"][0]["series"] == whole
