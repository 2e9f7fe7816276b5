"""What looking at a case gave: for each property and load how close it came to not holding."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter

from numalab.guest.console import printable

APART = 1.5  # times what the rival shows, at least, is more than the difference of two seeds


@dataclass(frozen=True)
class Finding:
    """One property of one load (None: of the whole boot): its value and the most it may be.

    `text` says in words for people what was seen. A `weak` one may be how the kernel is meant to
    be: it counts only beside a rival kernel that does not show it. Beside a rival a value is
    `suspected` above `suspect` already, if that is given: the two kernels are compared then.
    """

    prop: str
    load: int | None
    value: float
    most: float
    text: str
    weak: bool = False
    suspect: float | None = None

    def __post_init__(self) -> None:
        """Take control characters out: the text may be of a guest, or of a stored boot."""
        for name in ("prop", "text"):
            one_line = re.sub(r"\s", " ", getattr(self, name))
            object.__setattr__(self, name, printable(one_line))

    @property
    def violated(self) -> bool:
        """Whether the property does not hold."""
        return self.value > self.most

    @property
    def suspected(self) -> bool:
        """Whether a rival is to be asked."""
        return self.violated or (self.suspect is not None and self.value > self.suspect)

    @property
    def closeness(self) -> float:
        """How close it came: 0 not at all, 1 just so; above 1 it is violated."""
        if self.most <= 0:
            return 2.0 if self.violated else 0.0
        return self.value / self.most


def limit_between(mine: Sequence[Finding], theirs: Sequence[Finding]) -> float | None:
    """Return a value that each of `mine` exceeds and none of the rival's comes near.

    None where there is none: one of mine is not suspected, one of theirs violates the property as
    well, or the two are not apart.
    """
    if not all(finding.suspected for finding in mine) or any(
        finding.violated for finding in theirs
    ):
        return None
    low = min(finding.value for finding in mine)
    high = max((finding.value for finding in theirs), default=0.0)
    if low < APART * high:
        return None
    if all(finding.violated for finding in mine):
        return mine[0].most
    return float(f"{(low + high) / 2:.4g}")


@dataclass(frozen=True)
class BootResult:
    """What came of one boot: findings, or why there are none (`error`, of this host or numalab)."""

    findings: tuple[Finding, ...]
    seconds: float
    error: str = ""

    @property
    def violations(self) -> tuple[Finding, ...]:
        """Those that do not hold, the worst first."""
        violated = [finding for finding in self.findings if finding.violated]
        return tuple(sorted(violated, key=lambda finding: -finding.closeness))

    def of(self, prop: str, load: int | None) -> Finding | None:
        """Return the finding about a property of a load, the worst if there are several."""
        findings = [
            finding for finding in self.findings if (finding.prop, finding.load) == (prop, load)
        ]
        return max(findings, key=lambda finding: finding.closeness, default=None)


BOOT_RESULT = TypeAdapter(BootResult)
