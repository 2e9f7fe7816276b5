"""Cases of the corpus, done again: does each kernel do what the file says?"""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numalab.hunt.case import Case
from numalab.hunt.finding import Examined
from numalab.study.model import CaseTable


@dataclass(frozen=True)
class Replayed:
    """A case on a kernel: whether it is to violate its property, and whether it did.

    `violated` is None where nothing could be judged; `seen` says what was seen, or why not.
    """

    case: str
    kernel: str
    prop: str
    expected: bool
    violated: bool | None
    seen: str  # key of `numalab hunt --replay --json`
    seconds: float

    @property
    def passes(self) -> bool:
        """Whether it is as the file says."""
        return self.violated == self.expected


def replay(
    name: str,
    case: Case,
    table: CaseTable,
    kernels: Sequence[tuple[str, bool]],
    boots: Callable[[Case, str], Sequence[Examined]],
) -> list[Replayed]:
    """Boot a case on kernels, each with whether it is to violate the property of its table.

    It is to in every one of its boots, or in none.
    """
    rows = []
    for kernel, expected in kernels:
        examined = boots(case, kernel)
        violated, text = verdict(examined, table.property, table.most, every=expected)
        seconds = sum(boot.seconds for boot in examined)
        rows.append(Replayed(name, kernel, table.property, expected, violated, text, seconds))
    return rows


def verdict(
    examined: Sequence[Examined], prop: str, most: float, *, every: bool = True
) -> tuple[bool | None, str]:
    """Say whether a property's value was above `most` in every boot, or in any, and what was seen.

    None: a boot was not judged.
    """
    verdicts = [_verdict(boot, prop, most) for boot in examined]
    for violated, text in verdicts:
        if violated is None:
            return None, text
    bad = [text for violated, text in verdicts if violated]
    held = [text for violated, text in verdicts if not violated]
    if bad and held:
        return not every, f"in {len(bad)} of {len(verdicts)} boots: {bad[0]}"
    return bool(bad), (bad or held)[0]


def _verdict(examined: Examined, prop: str, most: float) -> tuple[bool | None, str]:
    if examined.error:
        return None, examined.error.splitlines()[0]
    mine = [finding for finding in examined.findings if finding.prop == prop]
    worst = max(mine, key=lambda finding: finding.closeness, default=None)
    if worst is None:
        lost = next(iter(examined.violations), None)
        return None, lost.text if lost else f"nothing to say about {prop}"
    return worst.value > most, worst.text


def render_replay_junit(rows: Sequence[Replayed]) -> str:
    """Render JUnit XML: a test case for each case and kernel."""
    failed = sum(row.violated is not None and not row.passes for row in rows)
    errors = sum(row.violated is None for row in rows)
    counts = {"tests": str(len(rows)), "failures": str(failed), "errors": str(errors)}
    suites = ET.Element("testsuites", {"name": "hunts", **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": "hunts", **counts})
    for row in rows:
        names = {"classname": row.kernel, "name": f"{row.case}: {row.prop}"}
        case = ET.SubElement(suite, "testcase", {**names, "time": f"{row.seconds:.3f}"})
        text = "".join(char if char.isprintable() else "?" for char in row.seen)
        if row.violated is None:
            ET.SubElement(case, "error", {"message": text})
        elif not row.passes:
            ET.SubElement(case, "failure", {"message": text})
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, "unicode") + "\n"
