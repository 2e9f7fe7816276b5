"""The claims of a study as a JUnit report, for a CI system that shows test cases."""

import re
import xml.etree.ElementTree as ET

from lab.report import figures
from lab.report.model import Claim, Run, StudyReport

# What XML 1.0 cannot hold, even escaped (section 2.2, Char).
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render_junit(report: StudyReport) -> str:
    """Render a study as JUnit XML: a test case for each claim, and one for each run that failed.

    A claim that does not hold is a failure, a run that failed an error.
    """
    broken = [claim for claim in report.claims if not claim.holds]
    failed = [run for run in report.runs if run.status != "ok"]
    counts = {
        "name": _text(report.study),
        "tests": str(len(report.claims) + len(failed)),
        "failures": str(len(broken)),
        "errors": str(len(failed)),
    }
    suites = ET.Element("testsuites", counts)
    seconds = sum(run.seconds or 0 for run in report.runs)
    suite = ET.SubElement(suites, "testsuite", {**counts, "time": f"{seconds:.3f}"})
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(report):
        ET.SubElement(properties, "property", {"name": _text(name), "value": _text(value)})
    for claim in report.claims:
        _claim(suite, report, claim)
    for run in failed:
        _failed(suite, report, run)
    suite_out = ET.SubElement(suite, "system-out")
    suite_out.text = _text(report.verdict)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _properties(report: StudyReport) -> list[tuple[str, str]]:
    kernels = [(f"kernel.{v.name}", " + ".join([v.release, *v.series])) for v in report.variants]
    return [
        ("question", report.question),
        ("topology", report.topology.name),
        ("mode", report.mode),
        ("workload", report.workload),
        *kernels,
    ]


def _claim(suite: ET.Element, report: StudyReport, claim: Claim) -> None:
    case = _case(suite, report, claim.text)
    told = f"expected {claim.expected}, measured {claim.measured}"
    if claim.holds:
        ET.SubElement(case, "system-out").text = _text(told)
    else:
        ET.SubElement(case, "failure", {"message": _text(told), "type": "claim"})


def _failed(suite: ET.Element, report: StudyReport, run: Run) -> None:
    case = _case(suite, report, f"run {run.id}")
    ET.SubElement(case, "error", {"message": _text(run.status), "type": "run"})


def _case(suite: ET.Element, report: StudyReport, name: str) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", {"classname": f"numalab.{_text(report.study)}", "name": _text(name)}
    )


def _text(text: str) -> str:
    return _NO_XML.sub("?", figures.printable(text))
