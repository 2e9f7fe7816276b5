"""What looking at a case gave: for each property and load how close it came to not holding."""

from dataclasses import dataclass

from pydantic import TypeAdapter


@dataclass(frozen=True)
class Finding:
    """One property of one load (None: of the whole boot): its value and the most it may be.

    `text` says in words for people what was seen. A `weak` one may be how the kernel is meant to
    be: it counts only beside a rival kernel that does not show it.
    """

    prop: str
    load: int | None
    value: float
    most: float
    text: str
    weak: bool = False

    @property
    def violated(self) -> bool:
        """Whether the property does not hold."""
        return self.value > self.most

    @property
    def closeness(self) -> float:
        """How close it came: 0 not at all, 1 just so; above 1 it is violated."""
        if self.most <= 0:
            return 2.0 if self.violated else 0.0
        return self.value / self.most


@dataclass(frozen=True)
class Examined:
    """What came of one boot: findings, or why there are none (`error`, of this host or numalab)."""

    findings: tuple[Finding, ...]
    seconds: float
    error: str = ""

    @property
    def violations(self) -> tuple[Finding, ...]:
        """Those that do not hold, the worst first."""
        found = [each for each in self.findings if each.violated]
        return tuple(sorted(found, key=lambda each: -each.closeness))

    def of(self, prop: str, load: int | None) -> Finding | None:
        """Return the finding about a property of a load, the worst if there are several."""
        found = [each for each in self.findings if (each.prop, each.load) == (prop, load)]
        return max(found, key=lambda each: each.closeness, default=None)


EXAMINED = TypeAdapter(Examined)
