"""Fresh boots of a case with other seeds, on the kernel that is hunted and on its rival."""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench
from numalab.hunt.finding import Examined, Finding, limit_between
from numalab.hunt.workers import Boot, Examiners

CONFIRMED = 2  # fresh boots, each with another seed, in all of which a violation is seen
COMPARED = 3  # as many where nothing but the difference from the rival says that it is one


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

    def seeds(self, finding: Finding) -> tuple[int, ...]:
        """Return the seeds of the fresh boots."""
        count = CONFIRMED if finding.violated and not finding.weak else COMPARED
        return tuple(self.seed + 1 + place for place in range(count))

    def shows(self, finding: Finding, cases: Sequence[Case]) -> list[list[bool]]:
        """Say of each load of some cases whether it shows what a finding says.

        That is in every fresh boot, and never on the rival or anything near it. What could not be
        judged does not show it.
        """
        seen = [_Seen(self, finding, max(1, len(case.loads))) for case in cases]
        steps = [(self.bench, seed) for seed in self.seeds(finding)]
        if self.rival is not None:
            steps += [(self.rival, seed) for seed in self.seeds(finding)]
        while steps and (alive := [n for n, each in enumerate(seen) if any(each.flags)]):
            now = max(1, self.workers.count // len(alive))
            boots: list[Boot] = [
                (cases[n], bench, seed) for bench, seed in steps[:now] for n in alive
            ]
            for boot, n, examined in zip(
                boots, alive * now, self.workers.examine(boots), strict=True
            ):
                seen[n].take(examined, mine=boot[1] is self.bench)
            steps = steps[now:]
        return [each.flags for each in seen]

    def settle(self, finding: Finding, case: Case) -> Finding:
        """Return what a case with one load shows, with a limit that tells it from the rival.

        Its boots are those of `shows`, and are in the store.
        """
        seen = _Seen(self, finding, 1)
        for bench in (self.bench, *([self.rival] if self.rival is not None else [])):
            boots: list[Boot] = [(case, bench, seed) for seed in self.seeds(finding)]
            for examined in self.workers.examine(boots):
                seen.take(examined, mine=bench is self.bench)
        return seen.settled()


class _Seen:
    """What the boots of one case showed of a property so far, load by load."""

    def __init__(self, trial: Trial, finding: Finding, loads: int) -> None:
        self.flags = [True] * loads
        self._trial = trial
        self._finding = finding
        self._mine: list[list[Finding]] = [[] for _ in range(loads)]
        self._theirs: list[list[Finding]] = [[] for _ in range(loads)]

    def take(self, examined: Examined, *, mine: bool) -> None:
        """Take one more boot into account."""
        for place, was in enumerate(self.flags):
            number = None if self._finding.load is None else place
            found = examined.of(self._finding.prop, number)
            if not was or found is None:
                self.flags[place] = False
                continue
            (self._mine if mine else self._theirs)[place].append(found)
            if mine:
                self.flags[place] = self._trial.counts(found)
            else:
                between = limit_between(self._mine[place], self._theirs[place])
                self.flags[place] = between is not None

    def settled(self) -> Finding:
        """Return the least that was shown, with the limit that it exceeds."""
        least = min(self._mine[0], key=lambda each: each.value)
        limit = limit_between(self._mine[0], self._theirs[0])
        most = least.most if limit is None else limit
        return Finding(least.prop, least.load, least.value, most, least.text, least.weak)
