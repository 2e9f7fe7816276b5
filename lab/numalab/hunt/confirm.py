"""Confirm suspected violations in fresh boots: other seeds, and the reference kernel."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from statistics import fmean

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.benches import for_properties
from numalab.hunt.case import Case
from numalab.hunt.compare.noise import ratio_of_means
from numalab.hunt.compare.pairs import boot_beside
from numalab.hunt.finding import APART, BootResult, Finding, limit_between
from numalab.hunt.property import FACTS
from numalab.hunt.workers import Boot, CaseWorkers

# The smallest share of pairs of samples in which the kernel is worse than the reference kernel:
# after one boot (three samples), and after all three boots. For equal kernels with nine samples
# each, the false-positive rate of the second is 0.1 %; the ratio of the means lowers it.
_SHARE_FIRST = 0.7
_SHARE_LAST = 0.9
# The same in the later boots, whose samples had no part in selecting the findings.
_SHARE_AGAIN = 0.8
_SHARE_OF_DIFFERENCE_AGAIN = 0.9
SEEDS = 3  # of the boots that confirm
SEEDS_AFTER = 4  # of the later boots that confirm independently
REPEATED = 3  # times each of these boots runs the load
MORE_SEEDS = 6  # tried until one of them shows a violation that depends on chance
TREND_RATIO = 1.1  # smallest ratio of a finding of a property with a trend, all pairs apart
QUICK = 2  # boots of each smaller case, which runs its load once


def how_often_more(mine: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the share of pairs in which `mine` is larger; a tie is half: Mann-Whitney's U."""
    wins = sum((a > b) + 0.5 * (a == b) for a in mine for b in theirs)
    return wins / (len(mine) * len(theirs))


@dataclass
class KernelSamples:
    """Samples of one property of one load: of the kernel, and of the reference kernel if any.

    A property with the limit 0 is an invariant. One sample of a load shows a violation; for a
    property of the whole boot it takes two boots. The reference kernel must never violate it.
    With a `ratio`, this ratio of the means is enough, but all pairs of samples must be apart.
    """

    with_reference: bool
    mine: list[Finding] = field(default_factory=list)
    theirs: list[Finding] = field(default_factory=list)
    failed: bool = False
    ratio: float | None = None

    def take(
        self, result: BootResult, prop: str, places: Sequence[int | None], *, mine: bool
    ) -> None:
        """Add the samples of one boot, which ran the load at these places among its loads."""
        findings = [result.of(prop, place) for place in places]
        self.failed |= None in findings
        (self.mine if mine else self.theirs).extend(filter(None, findings))

    def may_show(self) -> bool:
        """Whether further boots may still confirm the violation."""
        return self._shows(_SHARE_FIRST, last=False)

    def show(self) -> bool:
        """Whether the kernel violates the property, and the reference kernel does not."""
        return self._shows(_SHARE_LAST, last=True)

    def show_again(self) -> bool:
        """Whether samples from later boots confirm the violation independently."""
        differs = bool(self.mine) and self.mine[0].differential
        return self._shows(_SHARE_OF_DIFFERENCE_AGAIN if differs else _SHARE_AGAIN, last=True)

    @property
    def is_invariant(self) -> bool:
        """Whether the limit of the property is 0."""
        return bool(self.mine) and self.mine[0].most <= 0

    @property
    def apart(self) -> bool:
        """Whether every sample of the kernel is worse than every sample of the reference kernel.

        For two equal kernels with nine samples each, the probability is 1 / C(18, 9) = 0.002 %.
        """
        if not (self.mine and self.theirs):
            return False
        value = attrgetter("value")
        return bool(min(map(value, self.mine)) > max(map(value, self.theirs)))

    @property
    def is_sure(self) -> bool:
        """Whether no later boots are needed to confirm the violation.

        A boot has hundreds of differential values, so these always need them, and so do small
        ratios.
        """
        if self.is_invariant:
            return True
        first = self.mine[0]
        return self.apart and not first.differential and self._least_ratio >= APART

    @property
    def _least_ratio(self) -> float:
        return ratio_of_means(self.mine[0]) if self.ratio is None else self.ratio

    def _shows(self, least_share: float, *, last: bool) -> bool:
        if self.failed or not self.mine:
            return False
        first = self.mine[0]
        violations = sum(finding.violated for finding in self.mine)
        if self.is_invariant:
            enough = violations >= (1 if first.load is not None else 2) or not last
            return enough and not any(finding.violated for finding in self.theirs)
        if not self.with_reference:
            share = 2 / 3 if last else 1 / 2
            return not first.weak and violations >= share * len(self.mine)
        mine = [finding.value for finding in self.mine]
        theirs = [finding.value for finding in self.theirs]
        mean, reference_mean = sum(mine) / len(mine), sum(theirs) / len(theirs)
        suspect = first.most if first.suspect is None else first.suspect
        share = how_often_more(mine, theirs)
        if self.ratio is not None:
            least_share = 1.0
        enough = mean > suspect or self.ratio is not None
        return enough and mean >= self._least_ratio * reference_mean and share >= least_share


def _beside(best: Finding, theirs: Sequence[Finding]) -> str:
    """Return the text of a finding; a differential one means nothing without the other kernel's."""
    if not best.differential or not theirs:
        return best.text
    nearest = max(theirs, key=attrgetter("value"))
    return f"{best.text}, with the reference kernel {nearest.text.rpartition(': ')[2]}"


@dataclass(frozen=True)
class Confirmed:
    """The confirmed findings, and the number of seeds that each tried finding passed.

    `samples` are the values of each tried finding in the boots of the first seeds.
    """

    shown: tuple[Finding, ...]
    passed: Mapping[Finding, int]
    samples: Mapping[Finding, KernelSamples]

    def limited(self, finding: Finding) -> Finding:
        """Return a finding without a limit of its own with one between the kernels' means."""
        most = self.between(finding).most
        return replace(finding, most=most) if finding.differential else finding

    def between(self, finding: Finding) -> Finding:
        """Return a finding with a limit between the kernels' means, and both means in its text.

        An invariant has its own limit.
        """
        samples = self.samples[finding]
        if finding.most <= 0 or not (samples.mine and samples.theirs):
            return finding
        mine, theirs = (
            fmean(sample.value for sample in side) for side in (samples.mine, samples.theirs)
        )
        shown, reference = (
            finding.with_unit(fmean(sample.figure for sample in side))
            for side in (samples.mine, samples.theirs)
        )
        text = (
            f"{finding.text}; mean of {len(samples.mine)} samples {shown}, with the"
            f" reference kernel {reference}"
        )
        most = float(f"{(mine + theirs) / 2:.4g}")
        return replace(finding, most=most, text=text, suspect=None, differential=False)


def in_context(case: Case, loads: Collection[int], times: int = 1) -> list[int]:
    """Return an order of loads in which each runs `times` times, after the load before it.

    What a load shows may depend on where the tasks of the load before ran. Loads that
    change the machine come last, because they may affect later loads.
    """
    order: list[int] = []
    for last in (False, True):
        for _ in range(times):
            for n in sorted(loads):
                if case.loads[n].changes_machine is last:
                    before = [] if n == 0 or order[-1:] == [n - 1] else [n - 1]
                    order += [*before, n]
    return order


@dataclass(frozen=True)
class FreshBoots:
    """Boots cases with other seeds than the hunt's `seed`, also on the reference kernel."""

    workers: CaseWorkers
    bench: HuntBench
    reference: HuntBench | None
    seed: int

    def judging(self, findings: Iterable[Finding]) -> "FreshBoots":
        """Return the boots that also judge the calls of the functions of these findings."""
        properties = [finding.prop for finding in findings]
        reference = self.reference and for_properties(self.reference, properties)
        return replace(self, bench=for_properties(self.bench, properties), reference=reference)

    def counts(self, finding: Finding) -> bool:
        """Whether a finding deserves fresh boots; a weak one needs a reference kernel."""
        if self.reference is not None:
            return finding.suspected
        return finding.violated and not finding.weak

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the fresh boots."""
        return tuple(self.seed + 1 + place for place in range(SEEDS))

    @property
    def seeds_after(self) -> tuple[int, ...]:
        """The seeds of the later boots that confirm independently."""
        return tuple(self.seeds[-1] + 1 + place for place in range(SEEDS_AFTER))

    def confirm(
        self, findings: Sequence[Finding], case: Case, trends: Collection[Finding] = ()
    ) -> Confirmed:
        """Return the findings about a case that fresh boots confirm.

        `trends` are those that a small ratio to the reference kernel is enough for.

        A boot runs the loads of all findings that are still open, each several times, so that a
        violation that depends on chance occurs often enough. Testing many findings at once gives
        false positives. So a finding counts only if it breaks an invariant, if the two kernels are
        apart, or if later boots confirm it again; those run only if nothing else counts.
        """
        passed = dict.fromkeys(findings, 0)
        first = {finding: self._no_samples(finding in trends) for finding in findings}
        open_samples = self._sample(case, passed, self.seeds, first)
        shown = [finding for finding, samples in open_samples.items() if samples.show()]
        if self.reference is not None:
            sure = [finding for finding in shown if open_samples[finding].is_sure]
            if shown and not sure:
                again = {finding: self._no_samples(finding in trends) for finding in shown}
                later = self._sample(case, passed, self.seeds_after, again, stop_early=False)
                sure = [finding for finding, samples in later.items() if samples.show_again()]
            shown = sure
        return Confirmed(tuple(shown), passed, first)

    def _no_samples(self, is_trend: bool) -> KernelSamples:
        ratio = TREND_RATIO if is_trend else None
        return KernelSamples(self.reference is not None, ratio=ratio)

    def _sample(
        self,
        case: Case,
        passed: dict[Finding, int],
        seeds: Sequence[int],
        samples_of: Mapping[Finding, KernelSamples],
        *,
        stop_early: bool = True,
    ) -> dict[Finding, KernelSamples]:
        """Boot a case with each seed, and return the samples of the findings that stay open.

        Without `stop_early`, that is all of them.
        """
        open_samples = dict(samples_of)
        for seed in seeds:
            if open_samples:
                self._sample_boot(case, seed, open_samples)
            open_samples = {
                finding: samples
                for finding, samples in open_samples.items()
                if not stop_early or samples.may_show()
            }
            for finding in open_samples:
                passed[finding] += 1
        return open_samples

    def _sample_boot(
        self, case: Case, seed: int, open_samples: Mapping[Finding, KernelSamples]
    ) -> None:
        """Boot the loads of the open findings on each kernel, and add the samples."""
        wanted = {finding.load for finding in open_samples if finding.load is not None}
        order = in_context(case, wanted, REPEATED)
        # A finding about the whole boot needs all loads of the case.
        again = case.only(*(case.loads[n] for n in order)) if order else case
        boots: list[Boot] = [(again, bench.for_confirmation(), seed) for bench in self._benches]
        prop = FACTS if any(finding.prop == FACTS for finding in open_samples) else ""
        results = boot_beside(self.workers, boots, prop, self.reference)
        for bench, result in zip(self._benches, results, strict=True):
            for finding, samples in open_samples.items():
                places: list[int | None] = [p for p, n in enumerate(order) if n == finding.load]
                places = places[-REPEATED:]  # it may also be the load before another one
                samples.take(result, finding.prop, places or [None], mine=bench is self.bench)

    def shows(self, finding: Finding, cases: Sequence[Case]) -> list[list[bool]]:
        """Return, for each load of each smaller case, whether it shows the finding.

        It does if every one of a few boots shows it and the reference kernel never does or comes
        near it. A load that was not judged does not show it.
        """
        flags = [[True] * max(1, len(case.loads)) for case in cases]
        mine: dict[tuple[int, int], list[Finding]] = {}
        theirs: dict[tuple[int, int], list[Finding]] = {}
        for bench in self._benches:
            for seed in self.seeds[:QUICK]:
                alive = [n for n, loads in enumerate(flags) if any(loads)]
                boots: list[Boot] = [(cases[n], bench, seed) for n in alive]
                results = boot_beside(self.workers, boots, finding.prop, self.reference)
                for n, result in zip(alive, results, strict=True):
                    for place, was in enumerate(flags[n]):
                        value = result.of(finding.prop, None if finding.load is None else place)
                        if not was or value is None:
                            flags[n][place] = False
                            continue
                        side = mine if bench is self.bench else theirs
                        side.setdefault((n, place), []).append(value)
                        between = limit_between(mine[n, place], theirs.get((n, place), []))
                        flags[n][place] = between is not None and self.counts(mine[n, place][-1])
        return flags

    def settle(self, finding: Finding, case: Case) -> tuple[Finding, tuple[int, ...]] | None:
        """Return the finding of a case with one load, with its final limit, and the seeds.

        The first of the seeds shows it best, and the finding is about the boot with that seed. If
        no seed shows the violation, more seeds are tried, because it may depend on chance. None if
        no seed shows it, or the reference kernel is not apart.
        """
        theirs: list[Finding] | None = []
        if self.reference is not None:
            theirs = self._values(finding, case, self.reference, self.seeds)
        if theirs is None:
            return None
        shown: dict[int, Finding] = {}
        for seeds in (self.seeds, *((self.seeds[-1] + n,) for n in range(1, MORE_SEEDS + 1))):
            values = self._values(finding, case, self.bench, seeds) or []
            for seed, value in zip(seeds, values, strict=False):
                if self.counts(value) and limit_between([value], theirs) is not None:
                    shown[seed] = value
            if shown:
                break
        limit = limit_between(list(shown.values()), theirs) if shown else None
        if limit is None:
            return None
        best_first = sorted(shown, key=lambda seed: -shown[seed].value)
        best = shown[best_first[0]]
        text = _beside(best, theirs)
        best = replace(best, text=text, most=limit, suspect=None, differential=False)
        return best, tuple(best_first)

    def _values(
        self, finding: Finding, case: Case, bench: HuntBench, seeds: Sequence[int]
    ) -> list[Finding] | None:
        """Return a property's finding in a boot with each seed; None if a boot was not judged."""
        place = None if finding.load is None else 0
        boots: list[Boot] = [(case, bench, seed) for seed in seeds]
        results = boot_beside(self.workers, boots, finding.prop, self.reference)
        values = [result.of(finding.prop, place) for result in results]
        judged = [value for value in values if value is not None]
        return judged if len(judged) == len(values) else None

    @property
    def _benches(self) -> list[HuntBench]:
        return [self.bench, *([self.reference] if self.reference is not None else [])]
