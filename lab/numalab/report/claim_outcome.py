"""The verdict on a claim of a study, with the figures behind it."""

from dataclasses import dataclass
from typing import Literal

from pydantic import computed_field

from numalab.measure import ClaimVerdict
from numalab.report.json_fields import Measured, NotInJson
from numalab.statistics.scale import Scale
from numalab.statistics.verdict import Family

Standing = Literal["for", "against", "neither"]


@dataclass(frozen=True)
class ClaimTestFigures:
    """The figures of the rule that gave a verdict.

    `p_value` is that of the hypothesis that the claim denies. `interval` holds `change`; both are
    in percent, with scale `linear` in the unit of the measure, and null where unbounded. `level`
    is that of the test and of the interval, after the correction for the `size` claims of the
    family. `seeds` is how many would decide.
    """

    p_value: float
    family: Family
    size: int
    level: float
    scale: Scale
    change: Measured
    interval: tuple[Measured, Measured]
    seeds: int | None = None


@dataclass(frozen=True)
class ClaimOutcome:
    """A claim of the study, the measured figures, and the verdict.

    `verdict` is empty for bounds without a direction. With `cannot be seen` it has a `reason`,
    which is that of the mode if `by_mode`, or, as some others, a `detail`. `published` is the
    figure that the source gives. A claim that is not `required` always holds; one of `each_run`
    bounds every run of a variant. `unjudged` is why bounds without a value do not hold.
    """

    text: str
    expected: str
    measured: str
    holds: bool
    measure: str = ""
    kind: str = ""
    published: str = ""
    verdict: NotInJson[ClaimVerdict | Literal[""]] = ""
    required: bool = True
    each_run: NotInJson[bool] = False
    reason: NotInJson[str] = ""
    by_mode: NotInJson[bool] = True
    detail: NotInJson[str] = ""
    figures: ClaimTestFigures | None = None
    unjudged: NotInJson[str] = ""

    @property
    def standing(self) -> Standing:
        """Whether the result supports the source, contradicts it, or neither."""
        if self.unjudged:
            return "neither"
        if not self.holds or self.verdict == "refuted":
            return "against"
        return "for" if self.verdict in {"", "reproduced", "direction only"} else "neither"

    @computed_field(alias="verdict")
    @property
    def verdict_text(self) -> str:
        """The verdict in words, with its reason."""
        if self.unjudged:
            return f"not judged ({self.unjudged})"
        why = f" because {self.reason}" if self.reason else ""
        return f"{self.verdict_in_mode}{why}{f' ({self.detail})' if self.detail else ''}"

    @property
    def verdict_in_mode(self) -> str:
        """The verdict in words, without its reason."""
        if self.unjudged:
            return "not judged"
        return f"{self.verdict} in this mode" if self.reason and self.by_mode else self.verdict
