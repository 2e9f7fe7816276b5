"""Which patch or commit made a case violate its property: by booting the case on each step."""

from collections.abc import Callable
from dataclasses import dataclass

from numalab.bisect.history import History, Step
from numalab.bisect.search import places, start_search

# Says whether the case violates its property on a step's kernel, and what was seen; None where
# the kernel does not build or its guest cannot be judged.
Judge = Callable[[Step], tuple[bool | None, str]]


@dataclass(frozen=True)
class JudgedStep:
    """A step that was tried: whether it violates (None: not judged), and what was seen."""

    step: str
    title: str
    violates: bool | None
    seen: str  # key of `numalab bisect --case --json`


@dataclass(frozen=True)
class CaseBisection:
    """The steps in the order in which they were tried, and the first that violates.

    `first` has several where some could not be judged, and none where the ends do not differ;
    `ended` then says why.
    """

    rows: tuple[JudgedStep, ...]
    first: tuple[str, ...] = ()
    ended: str = ""


def bisect_case(
    history: History, judge: Judge, tell: Callable[[JudgedStep], None]
) -> CaseBisection:
    """Search the first step of a history that violates; both ends are tried first."""
    rows: list[JudgedStep] = []

    def tried(step: Step) -> bool | None:
        violates, text = judge(step)
        rows.append(JudgedStep(step.name, step.title, violates, text))
        tell(rows[-1])
        return violates

    good, bad = tried(history.good), tried(history.steps[-1])
    if good is not False or bad is not True:
        which = f"{history.good.name} violates it" if good else f"{history.good.name} is not judged"
        if good is False:
            which = f"{history.steps[-1].name} does not violate it"
        return CaseBisection(tuple(rows), ended=f"the two ends do not differ: {which}")
    search = start_search([step.parents for step in history.steps])
    while (place := search.next()) is not None:
        violates = tried(history.steps[place])
        if violates is None:
            search = search.skip(place)
        else:
            search = search.is_bad(place) if violates else search.is_good(place)
    steps = [history.steps[place] for place in places(search.suspects)]
    return CaseBisection(tuple(rows), tuple(f"{step.name}: {step.title}" for step in steps))
