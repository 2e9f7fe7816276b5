"""What became of a suspicion, and how close values came to limits, beside the reference kernel."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from numalab.hunt.compare.kernel_samples import KernelSamples
from numalab.hunt.finding import APART, BootResult, Finding


@dataclass(frozen=True)
class Suspicion:
    """A suspected finding after its fresh boots: whether they confirmed it, and their values.

    `value` and `reference` are means over `samples` and `reference_samples` (None: no sample), in
    the finding's unit. With `over` the budget was over before the last of these boots. One that
    `differs` was not replicated, as another one of its case is confirmed.
    """

    finding: Finding
    confirmed: bool
    value: float | None
    reference: float | None
    samples: int
    reference_samples: int
    differs: bool = False
    over: bool = False

    @property
    def outcome(self) -> str:
        """Whether it was confirmed, with the means of both kernels."""
        if self.over:
            return "not tried to the end: the budget is over"
        text = "confirmed" if self.confirmed else "not confirmed"
        text = "differs, not replicated" if self.differs else text
        text += f": {self._mean(self.value, self.samples)}"
        if self.reference_samples:
            text += f"; reference kernel: {self._mean(self.reference, self.reference_samples)}"
        return text

    def _mean(self, value: float | None, samples: int) -> str:
        if value is None:
            return "no value in fresh boots"
        return (
            f"mean {self.finding.with_unit(value)} in {samples} sample{'s' if samples > 1 else ''}"
        )

    def __str__(self) -> str:
        """Write it in one line."""
        where = "" if self.finding.load is None else f" in load {self.finding.load}"
        return f"{self.finding.prop}{where} {self.outcome}"


def suspicion(
    finding: Finding, mine: Sequence[Finding], theirs: Sequence[Finding], *, confirmed: bool
) -> Suspicion:
    """Return what became of a finding, of its samples on the kernel and on the reference kernel."""
    value, reference = (
        fmean(sample.figure for sample in samples) if samples else None
        for samples in (mine, theirs)
    )
    return Suspicion(finding, confirmed, value, reference, len(mine), len(theirs))


def untried(finding: Finding) -> Suspicion:
    """Return that the budget was over before the last fresh boot of a finding."""
    return Suspicion(finding, False, None, None, 0, 0, over=True)


def outcome_of(
    finding: Finding, samples: KernelSamples, confirmed: Collection[Finding]
) -> Suspicion:
    """Return what became of a finding about a case of which some findings are confirmed."""
    outcome = suspicion(finding, samples.mine, samples.theirs, confirmed=finding in confirmed)
    return replace(outcome, differs=bool(confirmed) and not outcome.confirmed and samples.show())


@dataclass(frozen=True)
class Closest:
    """The value of a property that came closest to its limit, and the reference kernel's.

    `closeness` is the value as a share of the limit (`Finding.closeness`).
    """

    value: float
    limit: float
    reference: float | None
    closeness: float
    unit: str = ""

    @property
    def stands_out(self) -> bool:
        """Whether the reference kernel's value is clearly smaller; true if there is none."""
        return self.reference is None or self.value > APART * self.reference

    def __str__(self) -> str:
        """Write it in one line."""
        beside = "" if self.reference is None else f", reference kernel {self.reference:.4g}"
        value = f"{self.value:.4g} {self.unit}".rstrip()
        return f"{value} (limit {self.limit:.4g}{beside})"


def closest(finding: Finding, other: BootResult | None) -> Closest:
    """Return a finding's value with the value of the reference kernel's boot, if it booted."""
    theirs = other.of(finding.prop, finding.load) if other is not None else None
    reference = None if theirs is None else theirs.value
    return Closest(finding.value, finding.most, reference, finding.closeness, finding.unit)


def beside(finding: Finding, theirs: Finding | None) -> str:
    """Return a finding's sentence, and what the reference kernel's boot shows."""
    if theirs is None:
        return finding.text
    if finding.differential:
        return f"{finding.text}, reference kernel {theirs.text.rpartition(': ')[2]}"
    value = finding.with_unit(finding.value)
    return f"{finding.text} (value {value}, reference kernel {theirs.value:.4g})"
