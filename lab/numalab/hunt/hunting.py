"""The hunt: draws cases, examines them, confirms what is violated, and makes it small.

Cases come in rounds of a fixed size. What a round draws depends on the seed and on what came of the
rounds before it, which in icount mode depends on the seed alone; so the same seed gives the same
cases and verdicts, however many workers there are and wherever a hunt was stopped.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.case import Case, classes
from numalab.hunt.confirm import SEEDS, FreshBoots
from numalab.hunt.finding import BootResult, Finding, limit_between
from numalab.hunt.generate.cases import Near, draw_case
from numalab.hunt.load import Load
from numalab.hunt.shrink import shrink
from numalab.hunt.workers import CaseWorkers

ROUND = 4  # machines
_CLOSE = 0.7  # from here on a case is worth another look, where no rival says what is usual
_KEPT = 8  # of the closest
_AGAIN = 3  # at one machine where no rival says what is usual: what is near a limit there stays so
PURSUED = 6  # loads of one machine, at most


@dataclass(frozen=True)
class ConfirmedViolation:
    """A violation that was confirmed and shrunk.

    `first` is the case in which it was met, `case` the smallest; `finding` what the smallest
    shows, in boots with each of `seeds`. `minutes` is the wall time since the hunt began until it
    was confirmed, and `shrunk_minutes` until it was small; `boots` and `shrunk_boots` are how many
    boots that took, stored ones among them. `after` counts the machines until it was met.
    """

    first: Case
    case: Case
    finding: Finding
    seeds: tuple[int, ...]
    minutes: float
    shrunk_minutes: float
    after: int
    boots: int
    shrunk_boots: int


@dataclass
class Hunt:
    """How far a hunt is: machines and loads examined, and by property how close each came.

    `covered` counts the classes of machines and the kinds of loads that were judged, `different`
    the machines themselves: what came close is done again with other loads.
    """

    machines: int = 0
    loads: int = 0
    unconfirmed: list[Finding] = field(default_factory=list)
    violations: list[ConfirmedViolation] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    covered: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)

    @property
    def closest(self) -> dict[str, float]:
        """How close each property came to not holding."""
        return {name: round(max(values), 3) for name, values in self.values.items()}


@dataclass(frozen=True)
class Aim:
    """What to hunt for, and how long: `seconds` of wall time, or `machines` (0: no such bound).

    Each machine gets `loads` at most (0: as many as are worth a boot).

    A `survey` only examines: nothing is confirmed or shrunk.
    """

    seed: int
    properties: frozenset[str]
    seconds: float
    machines: int = 0
    loads: int = 0
    first_only: bool = False
    survey: bool = False


Tell = Callable[[str], None]


@dataclass
class Hunter:
    """A hunt under way: what for, with what, and how far.

    With a `rival`, only what it violates in none of the fresh boots counts: a smaller case must not
    be one that shows something else, which both kernels do.
    """

    aim: Aim
    bench: HuntBench
    workers: CaseWorkers
    tell: Tell
    reference: HuntBench | None = None
    hunt: Hunt = field(default_factory=Hunt)
    began: float = field(default_factory=time.monotonic)

    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() - self.began < self.aim.seconds

    @property
    def fresh_boots(self) -> FreshBoots:
        """Where what was seen is tried again."""
        return FreshBoots(self.workers, self.bench, self.reference, self.aim.seed)

    def run(self) -> Hunt:
        """Hunt until the time or the machines are used up, and return what came of it."""
        near: list[Near] = []
        aim, hunt = self.aim, self.hunt
        number = 0
        timed = self.bench.choice.mode == "timed"
        while self.goes_on() and not (aim.machines and hunt.machines >= aim.machines):
            cases = [draw_case(aim.seed, number + i, timed=timed, near=near, most=aim.loads)
                     for i in range(ROUND)]  # fmt: skip
            number += ROUND
            for first in range(0, ROUND, self.workers.count):
                for case, result, other in self._boot_all(cases[first:][: self.workers.count]):
                    near += self._take(case, result, other)
                    if hunt.violations and aim.first_only:
                        return hunt
            near = sorted(filter(self._is_new, near), key=lambda load: -load.closeness)[:_KEPT]
            self.tell(self._line())
        return hunt

    def _boot_all(
        self, cases: Sequence[Case]
    ) -> Iterator[tuple[Case, BootResult, BootResult | None]]:
        """Boot cases; those in which something is suspected on the rival, too, with the same seed.

        As many as there are workers at a time, so that a suspicion need not wait for a whole round.
        """
        results = self.workers.boot([(case, self.bench, self.aim.seed) for case in cases])
        wanted = [
            (case, self.reference, self.aim.seed)
            for case, result in zip(cases, results, strict=True)
            if self.reference is not None and self._suspected(result) and not self.aim.survey
        ]
        booted = {case.text: other for (case, _, _), other
                  in zip(wanted, self.workers.boot(wanted), strict=True)}  # fmt: skip
        for case, result in zip(cases, results, strict=True):
            yield case, result, booted.get(case.text)

    def _suspected(self, result: BootResult) -> list[Finding]:
        """Return what is worth fresh boots, of the properties that are not found yet."""
        confirmed = {violation.finding.prop for violation in self.hunt.violations}
        return [
            finding
            for finding in result.findings
            if self.fresh_boots.counts(finding) and finding.prop in self.aim.properties - confirmed
        ]

    def _take(self, case: Case, result: BootResult, other: BootResult | None) -> list[Near]:
        """Pursue what a boot shows, and return what came close to counting."""
        hunt = self.hunt
        hunt.machines += 1
        hunt.loads += len(case.loads)
        if result.error:
            hunt.failed.append(result.error)
            return []
        hunt.covered.update(classes(case))
        hunt.different[case.only().text] += 1
        for finding in result.findings:
            if finding.prop in self.aim.properties:
                hunt.values.setdefault(finding.prop, []).append(finding.closeness)
        near = _near(case, result, self.aim) if self.reference is None else []
        if self.aim.survey:
            return near
        clear = _clearest(self._suspected(result), other)
        for some in _groups(clear):
            if self._is_over():
                break
            whole = case if some[0].load is not None else self._fewest_loads(case, some[0])
            passed = self._pursue(some, whole)
            near += [
                Near(float(n**2), case, finding.load)
                for finding, n in passed.items()
                if finding.load is not None and n
            ]
        return near

    def _is_new(self, near: Near) -> bool:
        return self.reference is not None or self.hunt.different[near.case.only().text] < _AGAIN

    def _is_over(self) -> bool:
        return not self.goes_on() or bool(self.hunt.violations and self.aim.first_only)

    def _pursue(self, findings: Sequence[Finding], case: Case) -> Mapping[Finding, int]:
        """Confirm findings about a case in fresh boots with other seeds, and shrink what is left.

        Return how many boots showed each.
        """
        for finding in findings:
            self.tell(f"suspected: {finding.prop}: {finding.text}; trying other seeds")
        confirmed = self.fresh_boots.confirm(findings, case)
        minutes, boots = self._minutes(), self.workers.requested
        shown = sorted(
            confirmed.shown, key=lambda finding: (finding.most > 0, not finding.violated)
        )
        self.hunt.unconfirmed += (
            [other for other in findings if confirmed.passed[other] < SEEDS and other not in shown]
            if shown
            else list(findings)
        )
        for finding in shown:
            if self._is_over() or self._is_found(finding.prop):
                continue
            self.tell(f"confirmed after {minutes} min: {finding.prop}: {finding.text}; shrinking")
            alone = case if finding.load is None else case.only(case.loads[finding.load])
            small = self._shrunk(finding, alone)
            if small is None:
                self.hunt.unconfirmed.append(finding)
                self.tell(f"not confirmed: {finding.prop}: {finding.text}")
                continue
            self.hunt.violations.append(
                ConfirmedViolation(
                    alone,
                    *small,
                    minutes,
                    self._minutes(),
                    self.hunt.machines,
                    boots,
                    self.workers.requested,
                )
            )
            self.tell(f"found: {small[1].prop}: {small[1].text}")
        return confirmed.passed

    def _shrunk(self, finding: Finding, case: Case) -> tuple[Case, Finding, tuple[int, ...]] | None:
        """Return the smallest case that shows a finding about one, what it shows, and the seeds."""
        fresh_boots = self.fresh_boots

        def violates(cases: Sequence[Case]) -> list[list[bool]]:
            return fresh_boots.shows(finding, cases)

        def settles(case: Case) -> bool:
            return fresh_boots.settle(finding, case) is not None

        small = shrink(case, violates, self.goes_on, settles).case
        settled = fresh_boots.settle(finding, small)
        return None if settled is None else (small, *settled)

    def _fewest_loads(self, case: Case, finding: Finding) -> Case:
        """Return the machine without loads if that shows it, else with half of them, ..., else all.

        Without any the driver has to have one, too: a task on a CPU.
        """
        if not case.loads:
            return case
        idle = case.only(Load(100, case.loads[0].parts[:1]))
        if self.fresh_boots.shows(finding, [idle])[0][0]:
            return idle
        while len(case.loads) > 1:
            middle = len(case.loads) // 2
            halves = [case.only(*case.loads[middle:]), case.only(*case.loads[:middle])]
            smaller = next((half for half in halves
                            if self.fresh_boots.shows(finding, [half])[0][0]), None)  # fmt: skip
            if smaller is None:
                break
            case = smaller
        return case

    def _is_found(self, prop: str) -> bool:
        return prop in {violation.finding.prop for violation in self.hunt.violations}

    def _minutes(self) -> float:
        return round((time.monotonic() - self.began) / 60, 2)

    def _line(self) -> str:
        hunt = self.hunt
        close = sorted(hunt.closest.items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{name} {value:.0%}" for name, value in close)
        left = max(0.0, self.aim.seconds / 60 - self._minutes())
        return (
            f"{hunt.machines} machines, {hunt.loads} loads, {len(hunt.violations)} found;"
            f" closest: {shown or 'none'}; {left:.0f} min left"
        )


def _near(case: Case, result: BootResult, aim: Aim) -> list[Near]:
    """Return the loads that came close to a limit, where there is no rival to compare with.

    What is weak never counts then, however close.
    """
    return [
        Near(min(1.0, finding.closeness), case, finding.load)
        for finding in result.findings
        if finding.load is not None
        and not finding.weak
        and finding.prop in aim.properties
        and finding.closeness >= _CLOSE
    ]


def _clearest(suspected: Sequence[Finding], other: BootResult | None) -> list[Finding]:
    """Return what to pursue, the clearest first: what some loads show, and the whole boot.

    What the rival showed in the same boot, or came near, is left out.
    """
    clear: list[tuple[float, Finding]] = []
    for finding in suspected:
        theirs = other.of(finding.prop, finding.load) if other is not None else None
        if other is not None and theirs is None:
            continue
        beside = [theirs] if theirs is not None else []
        if limit_between([finding], beside) is not None:
            usual = finding.most if finding.suspect is None else finding.suspect
            least = max([usual / 2, *(value.value for value in beside)]) or finding.value / 100
            clear.append((finding.violated * 100 + finding.value / least, finding))
    ordered = [finding for _, finding in sorted(clear, key=lambda pair: -pair[0])]
    loads = dict.fromkeys(finding.load for finding in ordered if finding.load is not None)
    tried = {None, *list(loads)[:PURSUED]}
    return [finding for finding in ordered if finding.load in tried]


def _groups(clear: Sequence[Finding]) -> list[list[Finding]]:
    """Put together what is tried in the same boots, broken promises first.

    These are few, and hardly ever chance. What is about a whole boot is tried alone.
    """
    alone = [[finding] for finding in clear if finding.load is None]
    broken = [finding for finding in clear if finding.load is not None and finding.most <= 0]
    exceeded = [finding for finding in clear if finding.load is not None and finding.most > 0]
    return [*alone, *(some for some in (broken, exceeded) if some)]
