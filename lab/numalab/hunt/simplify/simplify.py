"""Simplify a confirmed case: fewer loads, and then smaller machines and loads."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from numalab.hunt.case import Case
from numalab.hunt.compare.run_queues import word_of
from numalab.hunt.confirm import FreshBoots
from numalab.hunt.finding import Finding
from numalab.hunt.loads.load import Load
from numalab.hunt.simplify.shrink import shrink
from numalab.hunt.workers import BudgetOverError


def simplified(
    fresh_boots: FreshBoots,
    finding: Finding,
    case: Case,
    goes_on: Callable[[], bool],
    seeds: tuple[int, ...] | None = None,
) -> tuple[Case, Finding, tuple[int, ...]] | None:
    """Return the smallest case that shows a finding, its finding, and the seeds.

    `seeds` are those with which `case` shows it, if known. When the budget is over, that is the
    smallest case so far. None if single boots do not show it.
    """
    settled = [(case, finding, seeds or fresh_boots.seeds)]

    def violates(cases: Sequence[Case]) -> list[list[bool]]:
        return fresh_boots.shows(finding, cases)

    def settles(case: Case) -> bool:
        result = fresh_boots.settle(finding, case)
        settled.extend([] if result is None else [(case, *result)])
        return result is not None

    with suppress(BudgetOverError):
        if word_of(finding.prop) is not None:
            case = fewest_loads(fresh_boots, case, finding)
        small = shrink(case, violates, goes_on, settles).case
        return settled[-1] if settles(small) else None
    return settled[-1]


def fewest_loads(fresh_boots: FreshBoots, case: Case, finding: Finding) -> Case:
    """Return the case with as few loads as show a finding about the whole boot.

    Tries an idle machine (with one short task, which the driver needs), then halves.
    """
    if not case.loads:
        return case
    idle = case.only(Load(100, (replace(case.loads[0].parts[0], group=""),)))
    if fresh_boots.shows(finding, [idle])[0][0]:
        return idle
    while len(case.loads) > 1:
        middle = len(case.loads) // 2
        halves = [case.only(*case.loads[middle:]), case.only(*case.loads[:middle])]
        smaller = next((half for half in halves if fresh_boots.shows(finding, [half])[0][0]), None)
        if smaller is None:
            break
        case = smaller
    return case
