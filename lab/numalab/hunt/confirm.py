"""Confirm suspected violations in fresh boots: other seeds, and the reference kernel."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.benches import for_properties
from numalab.hunt.case import Case
from numalab.hunt.compare.kernel_samples import KernelSamples, mean_of
from numalab.hunt.compare.pairs import boot_beside
from numalab.hunt.finding import Finding, limit_between
from numalab.hunt.property import FACTS
from numalab.hunt.workers import Boot, CaseWorkers

SEEDS = 3  # of the boots that confirm
SEEDS_AFTER = 4  # of the later boots that confirm independently
REPEATED = 3  # times each of these boots runs the load
MORE_SEEDS = 6  # tried until one of them shows a violation that depends on chance
# Boots that decide about the clearest finding that is still open, by the mean of each. Equal
# kernels reach this share of pairs with 0.02 %; below the least one after four, they are given up.
_BOOTS, _SEED_OF_BOOTS, _SHARE_OF_BOOTS = 12, 20, 0.9
_FIRST_BOOTS, _LEAST_SHARE_OF_BOOTS = 4, 0.7
TREND_RATIO = 1.1  # smallest ratio of a finding of a property with a trend, all pairs apart
QUICK = 2  # boots of each smaller case, which runs its load once


def _beside(best: Finding, theirs: Sequence[Finding]) -> str:
    """Return the text of a finding with the value of the other kernel, which decides with it."""
    if not theirs or best.most <= 0:
        return best.text
    nearest = max(theirs, key=attrgetter("value"))
    if best.differential:
        return f"{best.text}, with the reference kernel {nearest.text.rpartition(': ')[2]}"
    return f"{best.text}; with the reference kernel {nearest.with_unit(nearest.value)}"


@dataclass(frozen=True)
class Confirmed:
    """The confirmed findings, and the number of seeds that each tried finding passed.

    `samples` are the values of each tried finding in the boots of the first seeds.
    """

    shown: tuple[Finding, ...]
    passed: Mapping[Finding, int]
    samples: Mapping[Finding, KernelSamples]

    def limited(self, finding: Finding) -> Finding:
        """Return a finding without a limit of its own, or within it, with one between the means."""
        between = self.between(finding)
        if finding.differential:
            return replace(finding, most=between.most)
        return finding if finding.violated else between

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
        apart, or if later boots confirm it again; those run only if nothing else counts. Where all
        are open after the first seeds, more boots decide about the clearest one.
        """
        passed = dict.fromkeys(findings, 0)
        first = {finding: self._no_samples(finding in trends) for finding in findings}
        open_samples = self._sample(case, passed, self.seeds, first)
        shown = [finding for finding, samples in open_samples.items() if samples.show()]
        if self.reference is not None:
            sure = [finding for finding in shown if open_samples[finding].is_sure]
            if not shown:
                sure = self._decided(case, open_samples)
            elif not sure:
                again = {finding: self._no_samples(finding in trends) for finding in shown}
                later = self._sample(case, passed, self.seeds_after, again, stop_early=False)
                sure = [finding for finding, samples in later.items() if samples.show_again()]
            shown = sure
        return Confirmed(tuple(shown), passed, first)

    def _decided(self, case: Case, samples_of: Mapping[Finding, KernelSamples]) -> list[Finding]:
        """Return the clearest of these differences if the means of more boots show it."""
        differences = (item for item, samples in samples_of.items() if not samples.is_invariant)
        finding = max(differences, key=lambda item: samples_of[item].share, default=None)
        if finding is None:
            return []
        samples, means = samples_of[finding], KernelSamples(with_reference=True)
        for number in range(_BOOTS):
            of_boot = KernelSamples(with_reference=True)
            self._sample_boot(case, self.seed + _SEED_OF_BOOTS + number, {finding: of_boot})
            samples.mine.extend(of_boot.mine)
            samples.theirs.extend(of_boot.theirs)
            if of_boot.lacks_values or any(item.violated for item in samples.theirs):
                return []
            means.mine.append(mean_of(of_boot.mine))
            means.theirs.append(mean_of(of_boot.theirs))
            if number + 1 >= _FIRST_BOOTS and means.share < _LEAST_SHARE_OF_BOOTS:
                return []
        return [finding] if means.show(_SHARE_OF_BOOTS) else []

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
