"""The hunt: draw cases, boot them, confirm the violations, and shrink the cases.

Cases come in rounds of a fixed size. The cases of a round depend on the seed and on the results of
earlier rounds, which in icount mode depend on the seed only. So the same seed gives the same cases
and verdicts, with any number of workers, also if the hunt was interrupted.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from numalab.errors import HostError
from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.again import Retrial, alone, finding_of, look_again
from numalab.hunt.calls.trend import CallTrend, CallTrends
from numalab.hunt.case import Case
from numalab.hunt.compare.leftovers import Leftovers
from numalab.hunt.compare.outcomes import Suspicion, beside, outcome_of, suspicion, untried
from numalab.hunt.compare.pairs import with_differences
from numalab.hunt.compare.run_queues import word_of
from numalab.hunt.compare.trend import Trends, compared
from numalab.hunt.confirm import FreshBoots
from numalab.hunt.direction.direction import HuntDirection
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.generate.cases import Near, case_for_scheduler, draw_case, near_loads
from numalab.hunt.outcome import ConfirmedViolation, Hunt
from numalab.hunt.property import CALLS, FACTS, LEFT, OF_SCHEDULER, function_of, property_names
from numalab.hunt.simplify.simplify import fewest_loads, simplified
from numalab.hunt.suspects.screen import screen
from numalab.hunt.suspects.sudden import Sudden
from numalab.hunt.suspects.suspect import Suspect, at_once, chosen, clearest, suspects_of
from numalab.hunt.workers import Boot, BudgetOverError, CaseWorkers

ROUND = 4  # machines
_LATE = 2 * ROUND  # or half of the budget
_KEPT = 8  # closest loads to vary
_AGAIN = 3  # boots of one machine without a reference kernel; more would stay near the same limit


@dataclass(frozen=True)
class Aim:
    """The properties to check, and the budget: `seconds` of wall time, `machines` (0: no limit).

    Each machine gets at most `loads` loads (0: as many as are worth a boot). A `survey` confirms
    and shrinks nothing. With `trends`, small differences in many loads count, too.
    """

    seed: int
    properties: frozenset[str]
    seconds: float
    machines: int = 0
    loads: int = 0
    first_only: bool = False
    survey: bool = False
    trends: bool = True


Tell = Callable[[str], None]


@dataclass
class Hunter:
    """A running hunt.

    With a `reference` kernel, a violation counts only if the reference kernel never shows it in
    fresh boots. So shrinking cannot drift to another violation that both kernels show. A
    `direction` draws the cases by what earlier boots executed, which the drawn cases count; they
    also count `calls`. Words of run queues are compared with `left`.
    """

    aim: Aim
    bench: HuntBench
    workers: CaseWorkers
    tell: Tell
    reference: HuntBench | None = None
    direction: HuntDirection | None = None
    calls: CallTrends | None = None
    left: Leftovers | None = None
    hunt: Hunt = field(default_factory=Hunt)
    trends: Trends = field(default_factory=Trends)
    tried: set[tuple[str, Finding]] = field(default_factory=set)
    unconfirmed: Counter[str] = field(default_factory=Counter)
    began: float = field(default_factory=time.monotonic)
    waiting: list[Suspect] = field(default_factory=list)  # of this round

    def __post_init__(self) -> None:
        """Let all boots count for what is left in run queues, and for what they show beside."""
        self.sudden = Sudden(self.aim.seed, self.aim.properties)
        self.workers.watch = self._watch

    def _watch(self, boot: Boot, result: BootResult) -> None:
        case, bench, seed = boot
        mine = bench.kernel.name == self.bench.kernel.name
        self.sudden.add(case, result, seed, mine=mine)
        if self.left is not None:
            self.left.add(case, result, mine=mine)

    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() - self.began < self.aim.seconds

    @property
    def fresh_boots(self) -> FreshBoots:
        """The boots that confirm findings of this hunt."""
        return FreshBoots(self.workers, self.bench, self.reference, self.aim.seed)

    def run(self) -> Hunt:
        """Hunt until the budget is used up, and return the result.

        The workers keep the deadline: a boot that would end later is given up. Raises HostError
        with the reason if no boot could be judged.
        """
        self.workers.deadline = self.began + self.aim.seconds
        with suppress(BudgetOverError):
            self._search()
        if self.hunt.all_failed:
            raise HostError(f"{self.bench.title}: {self.hunt.failed[0]}")
        if self.aim.properties not in (frozenset(property_names()), OF_SCHEDULER):
            self.hunt.never = sorted(self.aim.properties - self.hunt.judged - {CALLS, LEFT})
        noted = {item.finding.prop for item in self.hunt.suspicions}
        waiting = [*self.sudden.waiting(self._confirmed), *self.waiting]
        if not (self.hunt.violations and self.aim.first_only):
            findings = [word.finding for word in self._leftover()] + clearest(waiting)
            self._note(untried(finding) for finding in findings if finding.prop not in noted)
        return self.hunt

    def _search(self) -> None:
        near: list[Near] = []
        aim, hunt = self.aim, self.hunt
        number = 0
        timed = self.bench.choice.mode == "timed"
        while self._has_budget():
            size = min(ROUND, aim.machines - hunt.machines) if aim.machines else ROUND
            draw = draw_case if self.direction is None else self.direction.draw
            cases = [draw(aim.seed, number + i, timed=timed, near=near, most=aim.loads)
                     for i in range(size)]  # fmt: skip
            if self.bench.scheduler is not None:
                cases = list(map(case_for_scheduler, cases))
            number += size
            near += self.round(cases)
            if hunt.all_failed or (hunt.violations and aim.first_only):
                return
            near = sorted(filter(self._is_new, near), key=lambda load: -load.closeness)[:_KEPT]
            left = f"; {max(0.0, aim.seconds / 60 - self._minutes()):.0f} min left"
            self.tell(hunt.line + (left if self._has_budget() else ""))

    def round(self, cases: Sequence[Case]) -> list[Near]:
        """Boot cases and confirm their findings; return the loads to vary.

        What is rarely chance is tried at once, the clearest of the rest after all boots.
        """
        near: list[Near] = []
        self.waiting = suspects = list[Suspect]()
        alone = self.reference is None
        for first in range(0, len(cases), self.workers.count):
            booted = self._boot_all(cases[first:][: self.workers.count])
            for case, result, other in booted:
                near += near_loads(case, result, self.aim.properties) if alone else []
                of_case = self._take(case, result, other)
                suspects += of_case
                soon = at_once(of_case, everything=alone)
                self.tried |= {(case.text, item.finding) for group in soon for item in group}
                try:
                    near += self._pursue_all(soon)
                finally:
                    if not self.goes_on():  # the suspects of the rest are noted
                        suspects += [item for rest in booted for item in self._take(*rest)]
                if self._is_over():
                    return near
        near += self._screened(suspects)
        noted = {item.finding for item in self.hunt.suspicions}
        late = [] if self._is_over() else self.sudden.take(self._confirmed)
        near += self._pursue_all([group for group in late if group[0].finding not in noted])
        self.waiting = [] if self.goes_on() else suspects
        return near

    def _screened(self, suspects: Sequence[Suspect]) -> list[Near]:
        """Confirm the clearest suspects of a round."""
        near: list[Near] = []
        if self.reference is None or self.aim.survey or self._is_over():
            return near
        properties = self.aim.properties - self._confirmed if self.aim.trends else frozenset[str]()
        if self.direction is not None:
            of_calls = self.calls.hunches() if self.calls is not None else {}
            self.direction.hunches = (self.trends.hunches(properties), of_calls)
        self._pursue_leftovers()  # what is left in many boots is the least chance of all
        # What follows from a change says more than other decisions of its code, so these wait.
        late = self.hunt.machines >= _LATE or self._minutes() > self.aim.seconds / 120
        if late:
            self._confirm_calls(of_change=True)
            self._pursue_leftovers()
        groups = chosen(suspects, self.trends, properties, self.unconfirmed, self.tried)
        if groups and not self._is_over():
            screened = screen(self.workers, self.bench, self.reference, self.aim.seed, groups)
            self._note(screened.dropped, quiet=True)
            self._pursue_leftovers()
            near = self._pursue_all(screened.left)
        self._pursue_leftovers()
        if self._compares_calls and self.calls is not None and not self._is_over():
            self._pursue_all(self.calls.suspects(self.unconfirmed))
        if not late:
            self._confirm_calls(of_change=False)
        return near

    def _leftover(self) -> list[Suspect]:
        """Return the clearest word left in run queues, if chance does not explain it."""
        word = self.left.suspect() if self.left is not None and self._compares_leftovers else None
        return [word] if word is not None else []

    def _pursue_leftovers(self) -> None:
        if not self._is_over():
            self._pursue_all([self._leftover()])

    def _confirm_calls(self, *, of_change: bool) -> None:
        """Look for the strongest trend with other seeds, and note it if they show it."""
        calls = self.calls if self._compares_calls and not self._is_over() else None
        trend = calls.strongest(of_change=of_change) if calls is not None else None
        if trend is None:
            return
        mine, theirs = trend.clearest.finding, trend.clearest.theirs
        self.tell(f"suspected: {mine.prop}: {beside(mine, theirs)}; trying other seeds")
        try:
            retrial = look_again(trend, self.fresh_boots)
        except BudgetOverError:
            self._note([untried(mine)])
            raise
        self.tell(f"{mine.prop}: {trend.change} in {retrial}")
        outcome = suspicion(mine, [mine], [theirs] if theirs else [], confirmed=retrial.confirms)
        self._note([outcome], quiet=True)
        if retrial.confirms:
            self._note_trend(trend, retrial)

    def _note_trend(self, trend: CallTrend, retrial: Retrial) -> None:
        """Note a confirmed trend, with the case that shows it alone, or else its clearest load."""
        minutes, boots = self._minutes(), self.workers.requested
        finding, case = finding_of(trend, retrial), trend.clearest.case
        case = case.only(case.loads[finding.load or 0])
        self.tell(f"confirmed after {minutes} min: {finding.prop}: {finding.text}")
        settled = alone(trend, retrial, self.fresh_boots, self.goes_on)
        smallest, of_smallest, seeds = settled or (case, finding, self.fresh_boots.seeds)
        self.hunt.violations.append(ConfirmedViolation(
            case, smallest, of_smallest, seeds, minutes, self._minutes(),
            self.hunt.machines, boots, self.workers.requested,
        ))  # fmt: skip

    def _pursue_all(self, groups: Sequence[Sequence[Suspect]]) -> list[Near]:
        """Confirm suspects, those of a machine together; return the loads to vary."""
        near: list[Near] = []
        for group in groups:
            if not group or self._is_over() or self._confirmed >= {s.finding.prop for s in group}:
                continue
            for suspect in group:
                text = beside(suspect.finding, suspect.theirs)
                self.tell(f"suspected: {suspect.finding.prop}: {text}; trying other seeds")
            case, finding = group[0].case, group[0].finding
            if finding.load is None and word_of(finding.prop) is None:  # a word may need many loads
                case = fewest_loads(self.fresh_boots, case, finding)
            passed = self._pursue(group, case)
            near += [
                Near(float(n**2), case, finding.load)
                for finding, n in passed.items()
                if finding.load is not None and n
            ]
        return near

    def _has_budget(self) -> bool:
        most = self.aim.machines
        return self.goes_on() and not (most and self.hunt.machines >= most)

    def _boot_all(
        self, cases: Sequence[Case]
    ) -> Iterator[tuple[Case, BootResult, BootResult | None]]:
        """Boot cases, also on the reference kernel if any, with the same seed."""
        bench, reference = self.bench, self.reference
        if self.direction is not None:
            bench = replace(bench, reach=self.direction.table)
        if self.calls is not None and reference is not None:
            bench, reference = self.calls.counted_on(bench, reference)
        boots = [self._search_boot(case, bench) for case in cases]
        if reference is None or self.aim.survey:
            yield from zip(cases, self.workers.boot(boots), [None] * len(cases), strict=True)
            return
        boots += [self._search_boot(case, reference) for case in cases]
        results = self.workers.boot(boots)
        pairs = zip(results[: len(cases)], results[len(cases) :], strict=True)
        for case, (result, other) in zip(cases, pairs, strict=True):
            yield case, with_differences(result, other), with_differences(other, other)

    def _search_boot(self, case: Case, bench: HuntBench) -> Boot:
        """Return a boot of the search. Few machines boot again; what did once may do so often."""
        again = self.hunt.different[case.only().text]
        return case, bench if again else bench.for_new_machines(), self.aim.seed

    def _suspected(self, result: BootResult) -> list[Finding]:
        """Return the findings to confirm, of properties without a confirmed violation.

        Facts that differ by chance would differ in each machine: two attempts are enough.
        """
        wanted = self.aim.properties - self._confirmed
        if self.unconfirmed[FACTS] >= 2:
            wanted -= {FACTS}
        counts = self.fresh_boots.counts
        return [item for item in result.findings if item.prop in wanted and counts(item)]

    def _take(self, case: Case, result: BootResult, other: BootResult | None) -> list[Suspect]:
        """Count a boot, and return its suspects."""
        self.hunt.count(case, result, other, self.aim.properties)
        if result.error and not result.findings:
            return []
        if self.direction is not None:
            self.direction.take(self.hunt.machines, case, result.reach, result.calls)
        if self.aim.survey:
            return []
        if other is not None and not other.error:
            for pair in compared(case, result, other):
                self.trends.add(pair)
            if self.calls is not None:
                self.calls.add(case, result, other)
        return suspects_of(case, self._suspected(result), other)

    def _is_new(self, near: Near) -> bool:
        return self.reference is not None or self.hunt.different[near.case.only().text] < _AGAIN

    def _is_over(self) -> bool:
        return not self.goes_on() or bool(self.hunt.violations and self.aim.first_only)

    def _pursue(self, suspects: Sequence[Suspect], case: Case) -> Mapping[Finding, int]:
        """Confirm findings about a case in fresh boots, and shrink the confirmed ones.

        Return the number of seeds that each finding passed.
        """
        findings = [suspect.finding for suspect in suspects]
        trends = {suspect.finding for suspect in suspects if suspect.trend}
        fresh_boots = self.fresh_boots.judging(findings)
        try:
            confirmed = fresh_boots.confirm(findings, case, trends)
        except BudgetOverError:
            self._note(map(untried, findings))
            raise
        minutes, boots = self._minutes(), self.workers.requested
        shown = sorted(
            confirmed.shown, key=lambda finding: (finding.most > 0, not finding.violated)
        )
        self._note(outcome_of(*tried, shown) for tried in confirmed.samples.items())
        for finding in shown:
            if finding.prop in self._confirmed or (self.hunt.violations and self.aim.first_only):
                continue
            if self._names_function and function_of(finding.prop):
                continue
            self.tell(f"confirmed after {minutes} min: {finding.prop}: {finding.text}; shrinking")
            alone = case if finding.load is None else case.only(case.loads[finding.load])
            small = None
            if finding not in trends:
                limited = confirmed.limited(finding)
                small = simplified(fresh_boots, limited, alone, self.goes_on)
            if small is None:  # its samples overlap, or differ by too little for single boots
                small = alone, confirmed.between(finding), fresh_boots.seeds
            smallest, finding_of_smallest, seeds = small
            self.hunt.violations.append(
                ConfirmedViolation(
                    alone, smallest, finding_of_smallest, seeds, minutes, self._minutes(),
                    self.hunt.machines, boots, self.workers.requested,
                )
            )  # fmt: skip
            self.tell(f"found: {finding_of_smallest.prop}: {finding_of_smallest.text}")
        return confirmed.passed

    def _note(self, outcomes: Iterable[Suspicion], *, quiet: bool = False) -> None:
        for outcome in outcomes:
            self.hunt.suspicions.append(outcome)
            self.unconfirmed[outcome.finding.prop] += not outcome.confirmed
            if not quiet:
                self.tell(str(outcome))

    @property
    def _confirmed(self) -> frozenset[str]:
        return frozenset(violation.finding.prop for violation in self.hunt.violations)

    @property
    def _compares_calls(self) -> bool:
        return CALLS in self.aim.properties and not self._names_function

    @property
    def _names_function(self) -> bool:
        """Whether a violation names a function: the calls of others mostly follow from it."""
        return any(function_of(violation.finding.prop) for violation in self.hunt.violations)

    @property
    def _compares_leftovers(self) -> bool:  # of one word, as others mostly follow from it
        return LEFT in self.aim.properties and not any(map(word_of, self._confirmed))

    def _minutes(self) -> float:
        return round((time.monotonic() - self.began) / 60, 2)
