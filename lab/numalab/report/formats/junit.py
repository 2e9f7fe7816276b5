"""The claims of a study as a JUnit report, for a CI system that shows test cases."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from numalab.report import figures
from numalab.report.model import ClaimOutcome, Run, StudyReport

# What XML 1.0 cannot hold, even escaped (section 2.2, Char).
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(reports: Sequence[StudyReport]) -> str:
    """Render a study as JUnit XML: a suite for each cell, in it a test case for each claim, and one
    for each run that failed.

    A claim that does not hold is a failure, a run that failed an error.
    """
    suites = ET.Element("testsuites")
    for report in reports:
        _suite(suites, report)
    for key in ("tests", "failures", "errors"):
        suites.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    suites.set("name", _text(reports[0].study))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def render_junit_errors(runs: Sequence[tuple[str, str]]) -> str:
    """Render JUnit XML for runs none of which gave a result: their names, and why."""
    counts = {"name": "numalab", "tests": str(len(runs)), "failures": "0", "errors": str(len(runs))}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", counts)
    for name, error in runs:
        where = {"classname": "numalab", "name": _text(f"run {name}")}
        case = ET.SubElement(suite, "testcase", where)
        ET.SubElement(case, "error", {"message": _text(error), "type": "run"})
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _suite(suites: ET.Element, report: StudyReport) -> None:
    broken = [claim for claim in report.claims if not claim.holds]
    failed = [run for run in report.runs if not run.ok]
    seconds = sum(run.seconds or 0 for run in report.runs)
    counts = {
        "name": _text(f"{report.study}: {report.cell}" if report.cell else report.study),
        "tests": str(len(report.claims) + len(failed)),
        "failures": str(len(broken)),
        "errors": str(len(failed)),
        "time": f"{seconds:.3f}",
    }
    suite = ET.SubElement(suites, "testsuite", counts)
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(report):
        ET.SubElement(properties, "property", {"name": _text(name), "value": _text(value)})
    for claim in report.claims:
        _claim(suite, report, claim)
    for run in failed:
        _failed(suite, report, run)
    suite_out = ET.SubElement(suite, "system-out")
    suite_out.text = _text(report.verdict)


def _properties(report: StudyReport) -> list[tuple[str, str]]:
    kernels = [(f"kernel.{v.name}", " + ".join([v.release, *v.series])) for v in report.variants]
    return [
        ("question", report.question),
        ("topology", report.topology.name),
        ("mode", report.mode),
        ("workload", report.workload),
        *kernels,
    ]


def _claim(suite: ET.Element, report: StudyReport, claim: ClaimOutcome) -> None:
    case = _case(suite, report, claim.text)
    told = f"expected {claim.expected}, measured {claim.measured}"
    if claim.verdict:
        told = f"{told}: {claim.verdict_text}"
    if claim.holds:
        ET.SubElement(case, "system-out").text = _text(told)
    else:
        ET.SubElement(case, "failure", {"message": _text(told), "type": "claim"})


def _failed(suite: ET.Element, report: StudyReport, run: Run) -> None:
    case = _case(suite, report, f"run {run.id}")
    ET.SubElement(case, "error", {"message": _text(run.ending), "type": "run"})


def _case(suite: ET.Element, report: StudyReport, name: str) -> ET.Element:
    place = (
        f"numalab.{report.study}.{report.cell_name}" if report.cell else f"numalab.{report.study}"
    )
    return ET.SubElement(suite, "testcase", {"classname": _text(place), "name": _text(name)})


def _text(text: str) -> str:
    return _NO_XML.sub("?", figures.printable(text))
