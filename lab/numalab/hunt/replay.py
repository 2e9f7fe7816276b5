"""Boot stored cases again: on the kernels of the case file, or on each step of a history."""

import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from numalab.bisect.history import History, Step
from numalab.bisect.search import places, start_search
from numalab.errors import BuildError, UserError
from numalab.hunt.case import Case
from numalab.hunt.finding import BootResult
from numalab.study.model import CaseTable


@dataclass(frozen=True)
class Replayed:
    """A case on a kernel: whether a violation is expected, and whether it occurred.

    `violated` is None if a boot was not judged; `seen` is the observation, or the reason.
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
        """Whether the result is the expected one."""
        return self.violated == self.expected


def replay(
    name: str,
    case: Case,
    table: CaseTable,
    kernels: Sequence[tuple[str, bool]],
    boots: Callable[[Case, str], Sequence[BootResult]],
) -> list[Replayed]:
    """Boot a case on pairs of a kernel and whether it violates the property.

    An expected violation must occur in every boot, an unexpected one in none.
    """
    rows = []
    for kernel, expected in kernels:
        result = boots(case, kernel)
        violated, text = verdict(result, table.property, table.most, every=expected)
        seconds = sum(boot.seconds for boot in result)
        rows.append(Replayed(name, kernel, table.property, expected, violated, text, seconds))
    return rows


def verdict(
    result: Sequence[BootResult], prop: str, most: float, *, every: bool = True
) -> tuple[bool | None, str]:
    """Return whether a value was above `most` in every boot (or in any), and a sentence.

    None if a boot was not judged.
    """
    verdicts = [_verdict(boot, prop, most) for boot in result]
    for violated, text in verdicts:
        if violated is None:
            return None, text
    bad = [text for violated, text in verdicts if violated]
    held = [text for violated, text in verdicts if not violated]
    if bad and held:
        return not every, f"in {len(bad)} of {len(verdicts)} boots: {bad[0]}"
    return bool(bad), (bad or held)[0]


def _verdict(result: BootResult, prop: str, most: float) -> tuple[bool | None, str]:
    worst = result.worst(prop)
    if worst is None and result.error:
        return None, result.error.splitlines()[0]
    if worst is None:
        lost = next(iter(result.violations), None)
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


# Returns whether the case violates its property on a step's kernel, and the observation; None if
# the boot is not judged. Raises BuildError or UserError where the kernel cannot be built.
Judge = Callable[[Step], tuple[bool | None, str]]


@dataclass(frozen=True)
class JudgedStep:
    """A tested step: whether it violates (None: not judged), and the observation."""

    step: str
    title: str
    violates: bool | None
    seen: str  # key of `numalab bisect --case --json`


@dataclass(frozen=True)
class CaseBisection:
    """The steps in the order of the tests, and the first that violates the property.

    `first` has several steps if some were not judged, and none if the ends do not differ; `ended`
    is then the reason.
    """

    rows: tuple[JudgedStep, ...]
    first: tuple[str, ...] = ()
    ended: str = ""


def bisect_case(
    history: History, judge: Judge, tell: Callable[[JudgedStep], None]
) -> CaseBisection:
    """Return the first step of a history that violates; both ends are tested first.

    A step between them that cannot be built is not judged; errors of an end are passed on.
    """
    rows: list[JudgedStep] = []

    def tried(step: Step) -> bool | None:
        violates, text = None, ""
        try:
            violates, text = judge(step)
        except (BuildError, UserError) as error:  # such as an option that it does not have
            if step in (history.good, history.steps[-1]):
                raise
            text = str(error).partition("\n")[0]
        rows.append(JudgedStep(step.name, step.title, violates, text))
        tell(rows[-1])
        return violates

    good, bad = tried(history.good), tried(history.steps[-1])
    if good is not False or bad is not True:
        for row in rows:
            if row.violates is None:
                return CaseBisection(tuple(rows), ended=f"{row.step} is not judged: {row.seen}")
        ends = f"{history.good.name} violates it"
        if good is False:
            ends = f"the two ends do not differ: {history.steps[-1].name} does not violate it"
        elif bad is True:
            ends = f"the two ends do not differ: {ends}"
        else:
            ends += (
                f", and {history.steps[-1].name} does not; only the step that breaks it is found"
            )
        return CaseBisection(tuple(rows), ended=ends)
    search = start_search([step.parents for step in history.steps])
    while (place := search.next()) is not None:
        violates = tried(history.steps[place])
        if violates is None:
            search = search.skip(place)
        else:
            search = search.is_bad(place) if violates else search.is_good(place)
    steps = [history.steps[place] for place in places(search.suspects)]
    return CaseBisection(tuple(rows), tuple(f"{step.name}: {step.title}" for step in steps))
