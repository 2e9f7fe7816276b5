"""Claims of a study: bounds for every run, and changes between variants."""

import operator
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Annotated, Literal

from pydantic import Field, model_validator

from numalab.document import Document
from numalab.measure import ClaimVerdict
from numalab.results.plan import Cell, PlannedRun
from numalab.statistics.scale import Scale, default_scale
from numalab.statistics.verdict import MARGIN, ClaimedChange
from numalab.study.published import PublishedChange
from numalab.units import unit_of_difference

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$", max_length=64)]
Bound = Annotated[float, Field(allow_inf_nan=False)]
MOST_PRIMARY = 6  # of a post: six claims share the level, and need five seeds
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}
_BEYOND = {">=": "<", "<=": ">", ">": "<=", "<": ">="}


class Claim(Document):
    """An expectation: bounds for one variant, or a change from one variant to another."""

    text: str
    """The claim as one sentence."""
    measure: str
    """A name from `numalab measures`, or a metric of the workload."""
    variant: Name | None = None
    """The variant whose runs must all be within the bounds."""
    from_variant: Name | None = Field(default=None, alias="from")
    """The variant that `to` is compared with."""
    to: Name | None = None
    """The variant that changes the measure."""
    direction: Literal["higher", "lower", "same"] | None = None
    """Where the mean of the measure goes."""
    published: str = Field(default="", max_length=200)
    """The change that the source reports: `555 to 8`, `+7% to +15%`, or words for a direction."""
    primary: bool = Field(default=False, exclude_if=lambda primary: not primary)
    """One of at most six claims, counted in each cell, that decide about a post."""
    scale: Scale | None = Field(default=None, exclude_if=lambda scale: scale is None)
    """`count` compares logarithms of counts + 0.5, `ratio` logarithms, `linear` values. By default
    `linear` for percentages, `ratio` for times, rates, decimals above 0, else `count`."""
    margin: float = Field(
        default=MARGIN,
        gt=0,
        lt=100,
        allow_inf_nan=False,
        exclude_if=lambda margin: margin == MARGIN,
    )
    """Changes up to this many percent are none; with `linear`, in the unit of the measure."""
    mechanism: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """A measure that is above 0 where the first variant acts; `same` needs it."""
    expect: tuple[ClaimVerdict, ...] = ()
    """Verdicts that are a success; any other one makes `numalab run` exit with 1."""
    topology: str | None = None
    """The topology that the claim is about; by default all."""
    workload: Name | None = None
    """The label that the claim is about; by default all."""
    at_least: Bound | None = None
    """Smallest value; for `from` and `to`, of the change in percent."""
    at_most: Bound | None = None
    """Largest value, likewise."""
    above: Bound | None = None
    """Exclusive lower bound."""
    below: Bound | None = None
    """Exclusive upper bound."""

    @model_validator(mode="after")
    def _of_one_kind(self) -> "Claim":
        ends = (self.from_variant, self.to)
        if self.variant is not None:
            if any(end is not None for end in ends) or self.direction or self.expect:
                raise ValueError("a claim has either variant, or from, to and direction")
            if not self.bounds:
                raise ValueError("a claim needs at_least, at_most, above or below")
        elif None in ends:
            raise ValueError("a claim needs variant, or both from and to")
        elif self.from_variant == self.to:
            raise ValueError("from and to are the same variant")
        elif not (self.bounds or self.direction):
            raise ValueError("a claim from one variant to another needs direction or bounds")
        elif self.expect and not self.direction:
            raise ValueError("expect needs direction")
        if self.primary and not self.direction:
            raise ValueError("primary needs direction")
        return self

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants in the claim."""
        ends = (self.variant, self.from_variant, self.to)
        return tuple(name for name in ends if name is not None)

    @property
    def bounds(self) -> tuple[tuple[str, float], ...]:
        """The bounds that are set, each with its sign."""
        signs = ((">=", self.at_least), ("<=", self.at_most), (">", self.above), ("<", self.below))
        return tuple((sign, bound) for sign, bound in signs if bound is not None)

    @property
    def bounds_text(self) -> str:
        """The bounds as a phrase."""
        return " and ".join(f"{sign} {bound:g}" for sign, bound in self.bounds)

    def _beyond(self, unit: str) -> str:
        """Return what violates the bounds, as a phrase."""
        return " or ".join(f"{_BEYOND[sign]} {bound:g}{unit}" for sign, bound in self.bounds)

    @property
    def interval(self) -> tuple[float, float]:
        """The least and the largest value within the bounds; infinite without one."""
        least = [bound for sign, bound in self.bounds if sign in (">=", ">")]
        most = [bound for sign, bound in self.bounds if sign in ("<=", "<")]
        return max(least, default=-inf), min(most, default=inf)

    def published_shifts(
        self, scale: Scale, *, rounded: bool = False
    ) -> tuple[float, float] | None:
        """The smallest and largest change in `published`, as shifts on the scale; None for words.

        With `rounded` those of all figures that round to the published ones; a count is exact.
        """
        return PublishedChange(self.published).shifts(scale, rounded=rounded)

    def change_on(self, scale: Scale) -> ClaimedChange:
        """Return the claimed change on a scale. Raises ValueError for a claim without direction."""
        if self.direction is None:
            raise ValueError("the claim has no direction")
        change = ClaimedChange(self.direction, scale, margin=self.margin)
        if self.direction == "same":
            return change
        published, rounded = (
            self.published_shifts(scale, rounded=rounded) for rounded in (False, True)
        )
        if rounded is not None and rounded[0] <= 0 <= rounded[1] and change.is_none(rounded):
            return change  # the published figures may be one, rounded: they say a direction only
        return replace(change, published=published, rounded=rounded)

    def scale_of(self, unit: str, values: Sequence[float] = ()) -> Scale:
        """Return the scale of the claim for a measure in this unit, with the measured values."""
        published_zero = PublishedChange(self.published).has_zero
        return self.scale or default_scale(unit, () if published_zero else values)

    def margin_of(self, unit: str) -> str:
        """Return the margin for a measure in this unit, with its own unit."""
        linear = self.scale_of(unit) == "linear"
        return f"{self.margin:g} {unit_of_difference(unit) if linear else '%'}"

    def refuted_by(self, unit: str) -> str:
        """Return the condition that refutes the claim about a measure in this unit, as a phrase."""
        if self.variant is not None:
            return f"FAILS with one run of {self.variant} {self._beyond('')}"
        if self.direction is None:
            return f"FAILS with a change {self._beyond(' %')}"
        if self.direction == "same":
            margin = self.margin_of(unit)
            return f"where {self.to} differs from {self.from_variant} by more than {margin}"
        if self.change_on(self.scale_of(unit)).published is not None:
            excluded = f"excludes {self.published}"
        else:
            towards = "increase" if self.direction == "higher" else "decrease"
            excluded = f"no {towards} by more than {self.margin_of(unit)}"
        return f"where the change is opposite, or its interval contains 0 and {excluded}"

    def holds(self, value: float | None) -> bool:
        """Return whether a value is within the bounds; a missing value is not."""
        if value is None:
            return False
        return all(_COMPARE[sign](value, bound) for sign, bound in self.bounds)

    def is_about(self, topology: str, label: str) -> bool:
        """Return whether the claim is about this cell."""
        return self.topology in (None, topology) and self.workload in (None, label)


def claims_about(
    claims: Iterable[Claim], cell: Cell, runs: Iterable[PlannedRun]
) -> tuple[Claim, ...]:
    """Return the claims about a cell whose variants have planned runs in it."""
    variants = {
        run.variant for run in runs if run.topology == cell.topology and run.workload == cell.label
    }
    return tuple(
        claim
        for claim in claims
        if claim.is_about(cell.topology, cell.label) and variants.issuperset(claim.variants)
    )
