"""The hunt: draws cases, examines them, confirms what is violated, and makes it small.

Cases come in rounds of a fixed size. What a round draws depends on the seed and on what came of the
rounds before it, which in icount mode depends on the seed alone; so the same seed gives the same
cases and verdicts, however many workers there are and wherever a hunt was stopped.
"""

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench
from numalab.hunt.finding import Examined, Finding
from numalab.hunt.generate.loads import draw_loads
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.load import Load
from numalab.hunt.shrink import shrink
from numalab.hunt.workers import Examiners
from numalab.machine.model import DETERMINISTIC

ROUND = 6  # machines
LOADS = 5  # on each
_CLOSE = 0.4  # from here on a case is worth another look
_KEPT = 8  # of the closest
PURSUED = 3  # violations of a property by one machine
CONFIRMED = 2  # fresh boots, each with another seed, in all of which a violation is seen


@dataclass(frozen=True)
class Hunted:
    """A violation that was confirmed and shrunk.

    `first` is the case in which it was met, `case` the smallest; `finding` what the smallest
    shows, in boots with each of `seeds`. `minutes` is the wall time since the hunt began until it
    was met, and `shrunk_minutes` until it was small. `after` counts the boots until it was met.
    """

    first: Case
    case: Case
    finding: Finding
    seeds: tuple[int, ...]
    minutes: float
    shrunk_minutes: float
    after: int


@dataclass
class Hunt:
    """How far a hunt is: machines and loads examined, and by property how close each came."""

    machines: int = 0
    loads: int = 0
    unconfirmed: list[Finding] = field(default_factory=list)
    found: list[Hunted] = field(default_factory=list)
    values: dict[str, list[float]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    @property
    def closest(self) -> dict[str, float]:
        """How close each property came to not holding."""
        return {name: round(max(values), 3) for name, values in self.values.items()}


@dataclass(frozen=True)
class Aim:
    """What to hunt for, and how long: `seconds` of wall time, or `machines` (0: no such bound).

    A `survey` only examines: nothing is confirmed or shrunk.
    """

    seed: int
    properties: frozenset[str]
    seconds: float
    machines: int = 0
    first_only: bool = False
    survey: bool = False


Tell = Callable[[str], None]
Near = tuple[float, Case, int]  # how close it came, and with which load


@dataclass
class Hunter:
    """A hunt under way: what for, with what, and how far.

    With a `rival`, only what it violates in none of the fresh boots counts: a smaller case must not
    be one that shows something else, which both kernels do.
    """

    aim: Aim
    bench: HuntBench
    workers: Examiners
    tell: Tell
    rival: HuntBench | None = None
    hunt: Hunt = field(default_factory=Hunt)
    began: float = field(default_factory=time.monotonic)

    def goes_on(self) -> bool:
        """Whether there is time left."""
        return time.monotonic() - self.began < self.aim.seconds

    def run(self) -> Hunt:
        """Hunt until the time or the machines are used up, and return what came of it."""
        near: list[Near] = []
        aim, hunt = self.aim, self.hunt
        number = 0
        while self.goes_on() and not (aim.machines and hunt.machines >= aim.machines):
            cases = [draw_case(aim.seed, number + i, self.bench, near) for i in range(ROUND)]
            number += ROUND
            results = self.workers.examine(cases, self.bench, aim.seed)
            for case, examined in zip(cases, results, strict=True):
                self._take(case, examined)
                near += _near(case, examined, aim)
                if hunt.found and aim.first_only:
                    return hunt
            near = sorted(near, key=lambda each: -each[0])[:_KEPT]
            self.tell(self._line())
        return hunt

    def _take(self, case: Case, examined: Examined) -> None:
        hunt = self.hunt
        hunt.machines += 1
        hunt.loads += len(case.loads)
        if examined.error:
            hunt.failed.append(examined.error)
            return
        for finding in examined.findings:
            if finding.prop in self.aim.properties:
                hunt.values.setdefault(finding.prop, []).append(finding.closeness)
        if self.aim.survey:
            return
        known = {found.finding.prop for found in hunt.found}
        for finding in _worst(self._counting(examined), self.aim.properties):
            if finding.prop in known:
                continue
            met = self._minutes()
            pursued = self._pursue(case, finding)
            if pursued is None:
                hunt.unconfirmed.append(finding)
                self.tell(f"not confirmed: {finding.prop}: {finding.text}")
                continue
            small, shown = pursued
            known.add(shown.prop)
            hunt.found.append(
                Hunted(case, small, shown, self.seeds, met, self._minutes(), hunt.machines)
            )
            self.tell(f"found: {shown.prop}: {shown.text}")

    def _counting(self, examined: Examined) -> tuple[Finding, ...]:
        """Return the violations that count: weak ones only with a rival."""
        return tuple(each for each in examined.violations if self.rival or not each.weak)

    def _pursue(self, case: Case, finding: Finding) -> tuple[Case, Finding] | None:
        """Confirm a violation in fresh boots with other seeds, and shrink it."""
        self.tell(f"violated: {finding.prop}: {finding.text}; trying other seeds")

        def violates(cases: Sequence[Case]) -> list[list[bool]]:
            return self._violates(finding, cases)

        if finding.load is None:
            alone = _fewest_loads(case, violates)
        else:
            alone = case.only(case.loads[finding.load])
        if not violates([alone])[0][0]:
            return None
        self.tell("confirmed; shrinking")
        small = shrink(alone, violates, self.goes_on).case
        shown = self.workers.examine([small], self.bench, self.seeds[0])[0].violations
        return small, next(each for each in shown if each.prop == finding.prop)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of the fresh boots."""
        return tuple(self.aim.seed + 1 + place for place in range(CONFIRMED))

    def _violates(self, finding: Finding, cases: Sequence[Case]) -> list[list[bool]]:
        """Say of each load of some cases whether it violates the property of a finding.

        That is in every fresh boot, and in none of the rival's.
        """
        bad = [[True] * max(1, len(case.loads)) for case in cases]
        for seed in self.seeds:
            bad = self._still(bad, finding, cases, self.bench, seed, violated=True)
        if self.rival is not None:
            for seed in self.seeds:
                bad = self._still(bad, finding, cases, self.rival, seed, violated=False)
        return bad

    def _still(
        self,
        bad: list[list[bool]],
        finding: Finding,
        cases: Sequence[Case],
        bench: HuntBench,
        seed: int,
        *,
        violated: bool,
    ) -> list[list[bool]]:
        """Boot the cases that have a bad load so far; bad stays what comes out as it should.

        What cannot be judged never does.
        """
        some = [case for case, flags in zip(cases, bad, strict=True) if any(flags)]
        seen = iter(self.workers.examine(some, bench, seed))
        return [
            [
                was and self._seen(finding, examined, place) is violated
                for place, was in enumerate(flags)
            ]
            if any(flags) and (examined := next(seen))
            else flags
            for flags in bad
        ]

    def _seen(self, finding: Finding, examined: Examined, load: int) -> bool | None:
        """Whether a load, or the boot, violates the property; None where it was not judged."""
        found = examined.of(finding.prop, None if finding.load is None else load)
        if found is None:
            return None
        return found.violated and (self.rival is not None or not found.weak)

    def _minutes(self) -> float:
        return round((time.monotonic() - self.began) / 60, 2)

    def _line(self) -> str:
        hunt = self.hunt
        close = sorted(hunt.closest.items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{name} {value:.0%}" for name, value in close)
        left = max(0.0, self.aim.seconds / 60 - self._minutes())
        return (
            f"{hunt.machines} machines, {hunt.loads} loads, {len(hunt.found)} found;"
            f" closest: {shown or 'none'}; {left:.0f} min left"
        )


def draw_case(seed: int, number: int, bench: HuntBench, near: Sequence[Near] = ()) -> Case:
    """Draw case `number` of a seed: a new machine, or, each third time, one that came close."""
    rng = random.Random(f"{seed}-{number}")
    if near and number % 3 == 2:
        weights = [closeness for closeness, _, _ in near]
        _, case, load = rng.choices(near, weights)[0]
        kept = [_varied(rng, case.loads[load])]
        drawn = draw_loads(rng, case.machine, LOADS - 1)
        return Case(case.machine, (*kept, *_possible(drawn, bench)))
    machine = draw_machine(rng)
    return Case(machine, tuple(_possible(draw_loads(rng, machine, LOADS), bench)))


def _possible(loads: Sequence[Load], bench: HuntBench) -> Iterator[Load]:
    """Leave out hotplug where a CPU that comes back stops the guest (QEMU's icount mode)."""
    for load in loads:
        if not load.hotplug or bench.choice.mode not in DETERMINISTIC:
            yield load


def _varied(rng: random.Random, load: Load) -> Load:
    parts = list(load.parts)
    place = rng.randrange(len(parts))
    part = parts[place]
    count = max(1, part.count + rng.choice((-2, -1, 1, 2)))
    return Load(load.ms, (*parts[:place], type(part)(**{**vars(part), "count": count}),
                          *parts[place + 1 :]), load.hotplug, load.cpuset)  # fmt: skip


def _near(case: Case, examined: Examined, aim: Aim) -> list[Near]:
    return [
        (min(1.0, finding.closeness), case, finding.load)
        for finding in examined.findings
        if finding.load is not None
        and finding.prop in aim.properties
        and finding.closeness >= _CLOSE
    ]


def _worst(violations: Sequence[Finding], properties: Collection[str]) -> list[Finding]:
    """Return the violations to pursue: of each property the worst of some loads."""
    found: dict[str, dict[int | None, Finding]] = {}
    for finding in violations:
        if finding.prop in properties:
            found.setdefault(finding.prop, {}).setdefault(finding.load, finding)
    return [each for loads in found.values() for each in list(loads.values())[:PURSUED]]


def _fewest_loads(case: Case, violates: Callable[[Sequence[Case]], list[list[bool]]]) -> Case:
    """Return the machine without loads if that is enough, else with the one that is, else all."""
    idle = case.only(Load(100, case.loads[0].parts[:1])) if case.loads else case
    candidates = [idle, *(case.only(load) for load in case.loads)]
    for one in candidates:
        if violates([one])[0][0]:
            return one
    return case
