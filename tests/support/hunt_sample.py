"""A hunt with a finding, suspicions and counted lines, for tests of its page."""

import random
from dataclasses import replace
from pathlib import Path
from typing import cast

from numalab.hunt.case import Case
from numalab.hunt.compare.outcomes import Closest, suspicion
from numalab.hunt.direction.direction import HuntDirection
from numalab.hunt.direction.hints import Bias
from numalab.hunt.finding import Finding
from numalab.hunt.generate.families import draw_loads
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.outcome import ConfirmedViolation, Hunt
from numalab.hunt.result.page import HuntFacts, render_hunt
from numalab.reach.line_table import LineTable
from unit.hunt.direction.counted import boot, line

FACTS = HuntFacts("mine", "debian-6.12", 1, "icount", "2026-11-25T22:00:00+00:00", 3.2, 20)


def sample_case() -> Case:
    """Return a drawn case."""
    rng = random.Random("tests")
    machine = draw_machine(rng)
    return Case(machine, draw_loads(rng, machine, 2))


def sample_direction(
    case: Case, *, count: int = 3, text: str = "\tif (idle)", series: str = "x"
) -> HuntDirection:
    """Return a direction after one boot: a line with `count` executions, and two that never ran."""
    guide = HuntDirection(cast(LineTable, None), Bias({}, {}))
    lines = (line(5, "added", count, (count, 0), text=text), line(6, text=text * 3))
    reach = boot(*lines, line(9, "function", 0, text=text))
    guide.take(0, case, reach.model_copy(update={"series": series}))
    return guide


def sample_hunt(case: Case, text: str) -> Hunt:
    """Return a hunt with one violation and one suspicion, both described by a text."""
    finding = Finding("affinity", 0, 4.5, 0.0, text)
    small = case.only(case.loads[0])
    violation = ConfirmedViolation(case, small, finding, (2, 3), 1.5, 2.5, 3, 20, 40)
    hunt = Hunt(machines=4, loads=40, violations=[violation], values={"response": [0.5, 0.93]})
    hunt.closest["response"] = Closest(930.0, 1000.0, 800.0, 0.93, "ms")
    alike = Finding("ping-pong", 1, 7.0, 6.0, text)
    hunt.suspicions += [
        suspicion(finding, [finding], [replace(finding, value=0.0)], confirmed=True),
        suspicion(alike, [alike], [alike], confirmed=False),
    ]
    hunt.covered.update(["machine: SMT", "load: hog", "load: hog"])
    hunt.failed.append(text)
    return hunt


def sample_page(text: str) -> str:
    """Return the page of a hunt whose guest and patch write `text`."""
    case = sample_case()
    source = text.encode("utf-8", "replace").decode()  # no line of reach has a surrogate
    direction = sample_direction(case, text=source)
    return render_hunt(FACTS, sample_hunt(case, text), [Path("affinity-a.toml")], direction)
