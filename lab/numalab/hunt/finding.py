"""Results of a boot: for each property and load, how close the value came to the limit."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from numalab.guest.console import printable
from numalab.hunt.compare.facts import Fact
from numalab.hunt.compare.run_queues import RunQueues, Word, word_of
from numalab.reach.model import RunReach
from numalab.units import counted

CallsByLoad = Mapping[int, Mapping[str, int]]  # by function, without those of none
APART = 1.5  # smallest ratio to the reference kernel that exceeds the spread of seeds


@dataclass(frozen=True)
class Finding:
    """The value of one property of one load (None: of the whole boot), and its limit `most`.

    `text` describes the observation in a sentence. A `weak` finding may be intended behaviour: it
    counts only if the reference kernel does not show it. With a reference kernel, a value above
    `suspect` (if set) is already `suspected`, and the two kernels are compared. It must be `apart`
    times the value of the reference kernel. A `differential` one has no limit of its own: only this
    comparison counts. Its `value` only serves to compare; what was measured is in `measured`.
    """

    prop: str
    load: int | None
    value: float
    most: float
    text: str
    weak: bool = False
    suspect: float | None = None
    apart: float = APART
    differential: bool = False
    measured: float | None = None
    unit: str = ""

    def __post_init__(self) -> None:
        """Remove control characters: the text may come from a guest or a stored boot."""
        for name in ("prop", "text"):
            one_line = re.sub(r"\s", " ", getattr(self, name))
            object.__setattr__(self, name, printable(one_line))

    @property
    def figure(self) -> float:
        """The value for people, in its `unit`."""
        return self.value if self.measured is None else self.measured

    def with_unit(self, figure: float) -> str:
        """Write a figure of this property for people."""
        return f"{figure:.4g} {self.unit}".rstrip()

    @property
    def violated(self) -> bool:
        """Whether the property is violated."""
        return not self.differential and self.value > self.most

    @property
    def suspected(self) -> bool:
        """Whether to compare with the reference kernel."""
        return self.violated or (self.suspect is not None and self.value > self.suspect)

    @property
    def closeness(self) -> float:
        """Return the value as a share of the limit; above 1, the property is violated.

        Where the limit is 0, between 1 and 2 for a violation, more for a larger value. 0 for a
        differential finding, which has no limit.
        """
        if self.differential:
            return 0.0
        if self.most <= 0:
            return 2.0 - 1.0 / (1.0 + self.value) if self.violated else 0.0
        return self.value / self.most


def limit_between(mine: Sequence[Finding], theirs: Sequence[Finding]) -> float | None:
    """Return a limit between the kernel's findings and those of the reference kernel.

    None if one of `mine` is not suspected, one of `theirs` violates the property as well, or the
    two are less than the factor `apart` apart.
    """
    if not all(finding.suspected for finding in mine) or any(
        finding.violated for finding in theirs
    ):
        return None
    low = min(finding.value for finding in mine)
    high = max((finding.value for finding in theirs), default=0.0)
    if low < max(finding.apart for finding in mine) * high:
        return None
    if all(finding.violated for finding in mine):
        return mine[0].most
    return float(f"{(low + high) / 2:.4g}")


@dataclass(frozen=True)
class BootResult:
    """The result of one boot: findings, or the `error` of this host or of numalab.

    With an error about the recording, what the kernel log and the machine show is still judged.
    `failures` explains, by property, which properties of plug-ins failed. `reach` is set where the
    boot counted the changed lines of a patch. `facts` are values that the kernel
    computed about the machine. `calls` are those of functions, by load, where they were counted.
    `run_queues` are what the kernel's run queues held at the end. `unjudged` loads had lost events,
    or did not start.
    """

    findings: tuple[Finding, ...]
    seconds: float
    error: str = ""
    failures: Mapping[str, str] = field(default_factory=dict)
    reach: RunReach | None = None
    facts: tuple[Fact, ...] = ()
    calls: CallsByLoad = field(default_factory=dict)
    run_queues: RunQueues | None = None
    unjudged: int = 0

    @property
    def violations(self) -> tuple[Finding, ...]:
        """The findings that violate their property, the worst first."""
        violated = [finding for finding in self.findings if finding.violated]
        return tuple(sorted(violated, key=lambda finding: -finding.closeness))

    def of(self, prop: str, load: int | None) -> Finding | None:
        """Return the worst finding about a property of a load, or about a word of run queues."""
        if load is None and (word := word_of(prop)) is not None:
            return self._left_in(word)
        findings = [
            finding for finding in self.findings if (finding.prop, finding.load) == (prop, load)
        ]
        return max(findings, key=lambda finding: finding.closeness, default=None)

    def worst(self, prop: str) -> Finding | None:
        """Return the worst finding about a property of any load, or of the whole boot."""
        loads = {None, *(finding.load for finding in self.findings)}
        findings = [finding for load in loads if (finding := self.of(prop, load)) is not None]
        return max(findings, key=lambda finding: finding.closeness, default=None)

    def _left_in(self, word: Word) -> Finding | None:
        """Return the finding about a word; None if it could not be read, or is another one."""
        left = self.run_queues
        if left is None or left.size != word.size:
            return None
        cpus = left.held.get(word.offset, 0)
        text = f"{word} is not 0 on {counted(cpus, 'CPU')} after all tasks have ended"
        return Finding(word.prop, None, float(cpus), 0.0, text)


BOOT_RESULT = TypeAdapter(BootResult)
