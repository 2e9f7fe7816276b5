"""What a hunt has done and confirmed so far."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from numalab.hunt.case import Case
from numalab.hunt.compare.outcomes import Closest, Suspicion, closest
from numalab.hunt.finding import BootResult, Finding
from numalab.hunt.loads.kinds import classes
from numalab.hunt.property import CALLS, LEFT, OF_BOOT
from numalab.units import counted


@dataclass(frozen=True)
class ConfirmedViolation:
    """A violation that was confirmed and shrunk.

    `first` is the original case, `case` the smallest; boots of the smallest with each of `seeds`
    show `finding`. `minutes` and `boots` are the wall time and the boots, stored ones included,
    from the start of the hunt to the confirmation, `shrunk_minutes` and `shrunk_boots` to the end
    of shrinking. `after` is the number of machines up to the original case.
    """

    first: Case
    case: Case
    finding: Finding
    seeds: tuple[int, ...]
    minutes: float
    shrunk_minutes: float
    after: int
    boots: int
    shrunk_boots: int


@dataclass
class Hunt:
    """The progress of a hunt: machines and loads booted, and the closeness by property.

    `covered` counts the classes of machines and the kinds of loads that were judged, `different`
    the boots of each machine: a machine whose loads came close is booted again with other loads.
    `unjudged` of the `loads` had lost events, or did not start. `lone_machines` and `lone_loads`
    have no value of a selected property, or the reference kernel, if any, has none; `reason` is why
    the first machine is one. `never` are the selected properties without any value.
    """

    machines: int = 0
    loads: int = 0
    unjudged: int = 0
    lone_machines: int = 0
    lone_loads: int = 0
    reason: str = ""
    judged: set[str] = field(default_factory=set)
    never: Sequence[str] = ()
    suspicions: list[Suspicion] = field(default_factory=list)
    violations: list[ConfirmedViolation] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    covered: Counter[str] = field(default_factory=Counter)
    different: Counter[str] = field(default_factory=Counter)
    closest: dict[str, Closest] = field(default_factory=dict)

    def count(
        self, case: Case, result: BootResult, other: BootResult | None, properties: frozenset[str]
    ) -> None:
        """Count a boot of the search; `other` is that of the reference kernel, if any."""
        self.machines += 1
        self.loads += len(case.loads)
        self.unjudged += result.unjudged
        values = [item for item in result.findings if item.prop in properties]
        is_lone = self._is_lone(case, result, other, properties)
        if result.error:
            self.failed.append(result.error)
            return
        self.covered.update([] if is_lone else classes(case))
        self.different[case.only().text] += 1
        for finding in values:
            if not finding.differential:
                self.values.setdefault(finding.prop, []).append(finding.closeness)
                before, now = self.closest.get(finding.prop), closest(finding, other)
                if now.stands_out and (before is None or now.closeness > before.closeness):
                    self.closest[finding.prop] = now

    def _is_lone(
        self, case: Case, result: BootResult, other: BootResult | None, properties: frozenset[str]
    ) -> bool:
        """Return whether a boot has no value to compare, and count it and its loads without one."""
        sides = [result, *([other] if other is not None else [])]
        theirs = {(item.prop, item.load): item for item in sides[-1].findings}
        loads, of_boot = set[int](), False
        for item in result.findings:
            beside = theirs.get((item.prop, item.load))
            if item.prop in properties and beside is not None:
                self.judged.add(item.prop)
                loads |= {item.load} if item.load is not None else set()
                of_boot |= item.load is None and (other is None or not beside.violated)
        of_boot |= CALLS in properties and all(side.calls for side in sides)
        of_boot |= LEFT in properties and all(side.run_queues for side in sides)
        if is_lone := not (loads or of_boot):
            self.lone_machines += 1
        if is_lone or properties - OF_BOOT.keys():
            self.lone_loads += len(case.loads) - len(loads)
        if is_lone or not loads:
            self.reason = self.reason or _reason(sides)
        return is_lone

    @property
    def booted(self) -> str:
        """The numbers of machines and loads, and of those that were compared if these are fewer."""
        text = f"{counted(self.machines, 'machine')}, {counted(self.loads, 'load')}"
        if self.lone_machines or self.lone_loads:
            machines = counted(self.machines - self.lone_machines, "machine")
            text += f" ({machines} and {counted(self.loads - self.lone_loads, 'load')} compared)"
        return text

    @property
    def remark(self) -> str:
        """Which selected properties no boot had a value of, in a sentence; "" for none."""
        return f"No boot had a value of {', '.join(self.never)}." if self.never else ""

    @property
    def compares_nothing(self) -> bool:
        """Whether it booted machines and no load, or nothing else that is selected, has a value."""
        lost = bool(self.unjudged or self.failed or not self.judged)
        all_loads = lost and 0 < self.loads == self.lone_loads
        return self.machines > 0 and (self.lone_machines == self.machines or all_loads)

    @property
    def untried(self) -> str:
        """What follows an outcome without a finding: how many suspicions had no fresh boots."""
        count = sum(item.over for item in self.suspicions)
        over = f"; the budget was over before {counted(count, 'suspicion')} could be tried"
        return over if count else ""

    @property
    def line(self) -> str:
        """What was done so far, and which values came closest to their limits, in one line."""
        close = sorted(self.closest.items(), key=lambda item: -item[1].closeness)[:3]
        shown = ", ".join(f"{name} {value}" for name, value in close)
        return f"{self.booted}, {len(self.violations)} found; closest: {shown or 'none'}"

    @property
    def all_failed(self) -> bool:
        """Whether it booted machines, could judge none, and not even a kernel log shows a fault."""
        return 0 < self.machines == len(self.failed) and not self.violations

    @property
    def unconfirmed(self) -> list[Finding]:
        """The suspected findings that fresh boots did not confirm."""
        return [item.finding for item in self.suspicions if not item.confirmed]


def _reason(sides: Sequence[BootResult]) -> str:
    """Return why boots have no value to compare."""
    names = ["", "the reference kernel: "][: len(sides)]
    errors = [name + side.error.splitlines()[0]
              for name, side in zip(names, sides, strict=True) if side.error]  # fmt: skip
    lost = [name + item.text for name, side in zip(names, sides, strict=True)
            for item in side.violations if item.load is None]  # fmt: skip
    unjudged = ["events were lost, or tasks did not start"] if sides[0].unjudged else []
    return [*errors, *lost, *unjudged, "no selected property has a value"][0]
