"""The runs and claims of a study as JUnit test cases for a CI system.

The schema is that of Jenkins (`junit-10.xsd` of its xunit plug-in), which GitLab and GitHub actions
read too.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from numalab.report import formatting
from numalab.report.claim_outcome import ClaimOutcome
from numalab.report.document import CellReport, Run, StudyResults, UnreportedCell
from numalab.report.formats.format import register_format

# Characters that XML 1.0 cannot hold, even escaped (section 2.2, Char).
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@register_format("junit")
def render_junit(study: StudyResults) -> str:
    """Render a study as JUnit XML: a suite for each cell, in it a test case for each planned run
    and each claim.

    A claim that does not hold, and a required one without a finished run, is a failure; a run that
    failed or was interrupted an error; a run that was never started and another claim without a
    finished run are skipped. Cells without a report come first.
    """
    return render_junit_suites([study])


def render_junit_suites(studies: Sequence[StudyResults]) -> str:
    """Render several studies as one JUnit XML document."""
    suites = ET.Element("testsuites")
    for study in studies:
        for cell in study.unreported:
            _suite(suites, f"{study.study}: {cell.cell}", f"{study.study}.{cell.cell.name}", cell)
    for study in studies:
        for report in study.reports:
            part = f"{report.study}.{report.cell_name}" if report.cell else report.study
            name = f"{report.study}: {report.cell}" if report.cell else report.study
            _suite(suites, name, part, report)
    for key in ("tests", "failures", "errors"):
        suites.set(key, str(sum(int(suite.get(key, "0")) for suite in suites)))
    suites.set("name", xml_text(studies[0].study if studies else "numalab"))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def render_junit_error(name: str, text: str) -> str:
    """Render studies that an error ended as one test case with it."""
    counts = {"tests": "1", "failures": "0", "errors": "1", "name": xml_text(name)}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(suites, "testsuite", {**counts, "skipped": "0", "time": "0.000"})
    case = _case(suite, xml_text(name), "build", 0.0)
    error = ET.SubElement(case, "error", {"message": xml_text(text.partition("\n")[0])})
    error.text = xml_text(text)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def _suite(
    suites: ET.Element, name: str, classname: str, cell: CellReport | UnreportedCell
) -> None:
    report = cell if isinstance(cell, CellReport) else None
    claims = cell.claims
    missing = [run for run in cell.runs if not run.ok]
    waiting = sum(run.status is None for run in missing)
    failed_claims = sum(not claim.holds if report else claim.required for claim in claims)
    counts = {
        "name": xml_text(name),
        "tests": str(len(claims) + len(cell.runs)),
        "failures": str(failed_claims),
        "errors": str(len(missing) - waiting),
        "skipped": str(waiting if report else waiting + len(claims) - failed_claims),
        "time": f"{sum(run.seconds or 0 for run in cell.runs):.3f}",
    }
    suite = ET.SubElement(suites, "testsuite", counts)
    properties = ET.SubElement(suite, "properties")
    finished = f"{len(cell.runs) - len(missing)} of {len(cell.runs)}"
    for key, value in (*(_properties(report) if report else ()), ("runs finished", finished)):
        ET.SubElement(properties, "property", {"name": xml_text(key), "value": xml_text(value)})
    for run in cell.runs:
        _run(_case(suite, classname, f"run {run.id}", run.seconds), run)
    for claim in claims:
        case = _case(suite, classname, claim.text)
        if report:
            _claim(case, claim)
        else:
            about = {"message": "no run of its cell finished", "type": "claim"}
            ET.SubElement(case, "failure" if claim.required else "skipped", about)
    verdict = report.verdict if report else f"{finished} runs finished."
    ET.SubElement(suite, "system-out").text = xml_text(verdict)


def _properties(report: CellReport) -> list[tuple[str, str]]:
    kernels = [(f"kernel.{v.name}", v.build) for v in report.variants]
    return [
        ("question", report.question),
        ("topology", report.topology.name),
        ("mode", report.mode.name),
        ("workload", report.workload.command),
        *kernels,
    ]


def _run(case: ET.Element, run: Run) -> None:
    """Describe the end of a run that has no result. GitLab shows the text, not the message."""
    if run.ok:
        return
    lines = [xml_text(line) for line in run.ending.splitlines()] or [""]
    about = {"message": lines[0], "type": "run"}
    ending = ET.SubElement(case, "skipped" if run.status is None else "error", about)
    ending.text = "\n".join(lines)


def _claim(case: ET.Element, claim: ClaimOutcome) -> None:
    text = f"expected {claim.expected}, measured {claim.measured}"
    text = xml_text(f"{text}: {claim.verdict_text}" if claim.verdict_text else text)
    if claim.holds:
        ET.SubElement(case, "system-out").text = text
    else:
        ET.SubElement(case, "failure", {"message": text, "type": "claim"}).text = text


def _case(suite: ET.Element, classname: str, name: str, seconds: float | None = None) -> ET.Element:
    about = {"classname": xml_text(f"numalab.{classname}"), "name": xml_text(name)}
    if seconds is not None:
        about["time"] = f"{seconds:.3f}"
    return ET.SubElement(suite, "testcase", about)


def xml_text(text: str) -> str:
    """Return a text without characters that XML cannot hold."""
    return _NO_XML.sub("?", formatting.printable(text))
