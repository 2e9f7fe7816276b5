"""The verdict for a CI system: JUnit XML, and annotations beside the changed lines."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator

from numalab.patch.standard import PATCHED
from numalab.patch.text import (
    NOT_SHOWN,
    ONE_SIDED,
    REDEFINED,
    UNDECIDED,
    UNTESTED,
    case_lines,
    change_line,
    headline,
    reach_summary,
    unchanged_line,
)
from numalab.patch.verdict import PatchVerdict, Word
from numalab.report.formats.annotations import Problem
from numalab.report.formats.junit import xml_text
from numalab.units import counted

_NOT_JUDGED: frozenset[Word] = frozenset({
    "only hunted", "not reached", "no code", "not compiled", "same code", "undecided", "may differ",
    "partly compared", "may fail", "runs failed",
})  # fmt: skip


def render_patch_junit(verdict: PatchVerdict) -> str:
    """Render a verdict as JUnit XML: a test for each measure and cell.

    Regressions, lost runs, reports of the kernel and a found case are failures. A patch that was
    not reached is skipped, and so is a measure of which a change is undecided, not tested or not
    excluded, or that one kernel alone has.
    """
    suite = ET.Element("testsuite", {"name": xml_text(f"numalab patch {verdict.name}")})
    failures = dict(_failures(verdict))
    _case(suite, verdict, "verdict", failures.get("verdict", ""), headline(verdict))
    if verdict.word in _NOT_JUDGED:
        _skip(suite[0], headline(verdict))
    for name, text in failures.items():
        if name != "verdict":
            _case(suite, verdict, name, text, "")
    for report in verdict.reports:
        if report.side != PATCHED:
            _case(suite, verdict, f"kernel log: {report.name}", "", str(report))
    for change in verdict.changes:
        if change.went != "regressed":
            name = f"{change.machine}, {change.load}: {change.measure}"
            _case(suite, verdict, name, "", change_line(change).strip())
    for row in verdict.unchanged:
        text = unchanged_line(row).strip()
        name = f"{row.measure} in {counted(row.cells, 'cell')}"
        _case(suite, verdict, name if row.excluded else f"{name}, not shown", "", text)
        if not row.excluded:
            _skip(suite[-1], f"{NOT_SHOWN}: {text}")
    for why, names in (
        (UNDECIDED, verdict.undecided),
        (UNTESTED, verdict.untested),
        (ONE_SIDED, verdict.one_sided),
        (REDEFINED, verdict.redefined),
    ):
        for name in names:
            _case(suite, verdict, name, "", "")
            _skip(suite[-1], why)
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(sum(case.find("failure") is not None for case in suite)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in suite)))
    suite.set("errors", "0")
    suite.set("time", f"{verdict.seconds:.3f}")
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, "unicode") + "\n"


def patch_problems(verdict: PatchVerdict) -> tuple[Problem, ...]:
    """Return the regressions as problems of the first changed line that ran, else of the first."""
    file, line = verdict.place
    return tuple(
        Problem(verdict.name, f"{verdict.name}: {name}", text, file, line)
        for name, text in _failures(verdict)
    )


def _failures(verdict: PatchVerdict) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each regression."""
    reach = f"\n{reach_summary(verdict.reach)[0]}" if verdict.reach is not None else ""
    if verdict.lost is not None and verdict.lost.side == PATCHED:
        yield "verdict", f"{verdict.lost.reason}; lost runs: {', '.join(verdict.lost.runs)}"
    for report in verdict.reports:
        if report.side == PATCHED:
            yield f"kernel log: {report.name}", f"{report}; first: {report.first}{reach}"
    for change in verdict.of("regressed"):
        name = f"{change.machine}, {change.load}: {change.measure} regressed"
        yield name, f"{change_line(change).strip()}{reach}"
    if verdict.hunt.case is not None:
        text = "\n".join(line.strip() for line in case_lines(verdict.hunt.case))
        yield f"hunt: {verdict.hunt.case.prop} violated", f"{text}{reach}"


def _skip(case: ET.Element, why: str) -> None:
    ET.SubElement(case, "skipped", {"message": xml_text(why)})


def _case(suite: ET.Element, verdict: PatchVerdict, name: str, failure: str, output: str) -> None:
    about = {"classname": xml_text(f"numalab.patch.{verdict.name}"), "name": xml_text(name)}
    case = ET.SubElement(suite, "testcase", about)
    if failure:
        lines = [xml_text(line) for line in failure.splitlines()]
        about = {"message": "; ".join(lines), "type": "regression"}
        ET.SubElement(case, "failure", about).text = "\n".join(lines)
    elif output:
        ET.SubElement(case, "system-out").text = xml_text(output)
