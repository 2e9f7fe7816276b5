"""Fresh boots of a case with other seeds, on the kernel that is hunted and on its rival."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench
from numalab.hunt.finding import Finding, limit_between
from numalab.hunt.pursuit.looks import Looks
from numalab.hunt.workers import Boot, Examiners

SEEDS = 3  # of the boots that confirm
SEEDS_AFTER = 2  # of those that confirm it once more, on their own
REPEATED = 3  # how often each of them does the load
MORE_SEEDS = 6  # that are tried until one shows what depends on chance
QUICK = 2  # boots of each smaller case, which does its load once


@dataclass(frozen=True)
class Confirmed:
    """The findings that all fresh boots show, and for each that was tried how many did so."""

    shown: tuple[Finding, ...]
    passed: Mapping[Finding, int]


@dataclass(frozen=True)
class Trial:
    """Where cases are tried again: `seed` is that of the hunt, which fresh boots do not have."""

    workers: Examiners
    bench: HuntBench
    rival: HuntBench | None
    seed: int

    def counts(self, finding: Finding) -> bool:
        """Whether what one boot shows is worth fresh ones: weak ones only with a rival."""
        if self.rival is not None:
            return finding.suspected
        return finding.violated and not finding.weak

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the fresh boots."""
        return tuple(self.seed + 1 + place for place in range(SEEDS))

    @property
    def seeds_after(self) -> tuple[int, ...]:
        """The seeds of the boots that confirm once more."""
        return tuple(self.seeds[-1] + 1 + place for place in range(SEEDS_AFTER))

    def confirm(self, findings: Sequence[Finding], case: Case) -> Confirmed:
        """Say which of some findings about a case fresh boots show, too.

        A boot does the loads of all findings that are still to be told from the rival, each
        several times, so that what depends on chance is seen often enough. What the first boots
        show the last ones have to show on their own, too, unless it is the breach of a promise
        or no look at the rival is as bad: where much is suspected, chance shows something. Where
        something is sure without them, the rest is left to the next machine.
        """
        passed = dict.fromkeys(findings, 0)
        looks = self._look(case, passed, self.seeds, findings)
        shown = [finding for finding, samples in looks.items() if samples.show()]
        if self.rival is not None:
            sure = [finding for finding in shown if looks[finding].promised or looks[finding].apart]
            if shown and not sure:
                looks = self._look(case, passed, self.seeds_after, shown)
                sure = [finding for finding, samples in looks.items() if samples.show_again()]
            shown = sure
        return Confirmed(tuple(shown), passed)

    def _look(
        self, case: Case, passed: dict[Finding, int], seeds: Sequence[int], of: Sequence[Finding]
    ) -> dict[Finding, Looks]:
        """Return what boots with some seeds show of the findings that may count after each."""
        looks = {finding: Looks(self.rival is not None) for finding in of}
        for seed in seeds:
            if looks:
                self._look_again(case, seed, looks)
            looks = {finding: samples for finding, samples in looks.items() if samples.may_show()}
            for finding in looks:
                passed[finding] += 1
        return looks

    def _look_again(self, case: Case, seed: int, looks: Mapping[Finding, Looks]) -> None:
        """Boot the loads of some findings on each kernel, and take what that shows."""
        wanted = {finding.load for finding in looks if finding.load is not None}
        order = [n for n in sorted(wanted, key=lambda n: (bool(case.loads[n].hotplug), n))
                 for _ in range(REPEATED)]  # fmt: skip
        # What is about the whole boot needs all loads of the case, which has no others then.
        again = case.only(*(case.loads[n] for n in order)) if order else case
        boots: list[Boot] = [(again, bench, seed) for bench in self._benches]
        for (_, bench, _), examined in zip(boots, self.workers.examine(boots), strict=True):
            for finding, samples in looks.items():
                places: list[int | None] = [p for p, n in enumerate(order) if n == finding.load]
                samples.take(examined, finding.prop, places or [None], mine=bench is self.bench)

    def shows(self, finding: Finding, cases: Sequence[Case]) -> list[list[bool]]:
        """Say of each load of some smaller cases whether it shows what a finding says, too.

        That is in every one of few boots, and never on the rival or near it. What could not be
        judged does not show it.
        """
        flags = [[True] * max(1, len(case.loads)) for case in cases]
        mine: dict[tuple[int, int], list[Finding]] = {}
        theirs: dict[tuple[int, int], list[Finding]] = {}
        for bench in self._benches:
            for seed in self.seeds[:QUICK]:
                alive = [n for n, pending in enumerate(flags) if any(pending)]
                boots: list[Boot] = [(cases[n], bench, seed) for n in alive]
                for n, examined in zip(alive, self.workers.examine(boots), strict=True):
                    for place, was in enumerate(flags[n]):
                        value = examined.of(finding.prop, None if finding.load is None else place)
                        if not was or value is None:
                            flags[n][place] = False
                            continue
                        side = mine if bench is self.bench else theirs
                        side.setdefault((n, place), []).append(value)
                        between = limit_between(mine[n, place], theirs.get((n, place), []))
                        flags[n][place] = between is not None and self.counts(mine[n, place][-1])
        return flags

    def settle(self, finding: Finding, case: Case) -> tuple[Finding, tuple[int, ...]] | None:
        """Return what a case with one load shows and with which seeds, and a limit in between.

        What depends on chance is asked for with more seeds until one shows it. None where none
        does, or nothing tells it from the rival.
        """
        theirs = [] if self.rival is None else self._looks(finding, case, self.rival, self.seeds)
        if theirs is None:
            return None
        shown: dict[int, Finding] = {}
        for seeds in (self.seeds, *((self.seeds[-1] + n,) for n in range(1, MORE_SEEDS + 1))):
            looks = self._looks(finding, case, self.bench, seeds) or []
            for seed, look in zip(seeds, looks, strict=False):
                if self.counts(look) and limit_between([look], theirs) is not None:
                    shown[seed] = look
            if shown:
                break
        limit = limit_between(list(shown.values()), theirs) if shown else None
        if limit is None:
            return None
        least = min(shown.values(), key=attrgetter("value"))
        return replace(least, most=limit, suspect=None), tuple(shown)

    def _looks(
        self, finding: Finding, case: Case, bench: HuntBench, seeds: Sequence[int]
    ) -> list[Finding] | None:
        """Return what boots with some seeds show of a property; None where one was not judged."""
        place = None if finding.load is None else 0
        boots: list[Boot] = [(case, bench, seed) for seed in seeds]
        values = [boot.of(finding.prop, place) for boot in self.workers.examine(boots)]
        whole = [value for value in values if value is not None]
        return whole if len(whole) == len(values) else None

    @property
    def _benches(self) -> list[HuntBench]:
        return [self.bench, *([self.rival] if self.rival is not None else [])]
