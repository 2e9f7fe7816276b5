"""The hunt: draws cases, examines them, confirms what is violated, and makes it small.

Cases come in rounds of a fixed size. What a round draws depends on the seed and on what came of the
rounds before it, which in icount mode depends on the seed alone; so the same seed gives the same
cases and verdicts, however many workers there are and wherever a hunt was stopped.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from numalab.hunt.case import Case
from numalab.hunt.examine import HuntBench
from numalab.hunt.finding import Examined, Finding, limit_between
from numalab.hunt.generate.loads import draw_loads
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.load import Load
from numalab.hunt.pursuit.shrink import shrink
from numalab.hunt.pursuit.trial import Trial
from numalab.hunt.workers import Examiners

ROUND = 4  # machines
LOADS = 5  # on each
_CLOSE = 0.4  # from here on a case is worth another look
_KEPT = 8  # of the closest
PURSUED = 2  # violations of a property by one machine


@dataclass(frozen=True)
class Hunted:
    """A violation that was confirmed and shrunk.

    `first` is the case in which it was met, `case` the smallest; `finding` what the smallest
    shows, in boots with each of `seeds`. `minutes` is the wall time since the hunt began until it
    was met, and `shrunk_minutes` until it was small; `boots` and `shrunk_boots` are how many boots
    that took, stored ones among them. `after` counts the machines until it was met.
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

    @property
    def trial(self) -> Trial:
        """Where what was seen is tried again."""
        return Trial(self.workers, self.bench, self.rival, self.aim.seed)

    def run(self) -> Hunt:
        """Hunt until the time or the machines are used up, and return what came of it."""
        near: list[Near] = []
        aim, hunt = self.aim, self.hunt
        number = 0
        while self.goes_on() and not (aim.machines and hunt.machines >= aim.machines):
            cases = [draw_case(aim.seed, number + i, self.bench, near) for i in range(ROUND)]
            number += ROUND
            results = self.workers.examine([(case, self.bench, aim.seed) for case in cases])
            beside = self._beside(cases, results)
            for case, examined, other in zip(cases, results, beside, strict=True):
                self._take(case, examined, other)
                near += _near(case, examined, aim)
                if hunt.found and aim.first_only:
                    return hunt
            near = sorted(near, key=lambda each: -each[0])[:_KEPT]
            self.tell(self._line())
        return hunt

    def _beside(self, cases: Sequence[Case], results: Sequence[Examined]) -> list[Examined | None]:
        """Boot the cases in which something is suspected on the rival, too, with the same seed."""
        wanted = [
            (case, self.rival, self.aim.seed)
            for case, examined in zip(cases, results, strict=True)
            if self.rival is not None and self._suspected(examined) and not self.aim.survey
        ]
        booted = {case.text: other for (case, _, _), other
                  in zip(wanted, self.workers.examine(wanted), strict=True)}  # fmt: skip
        return [booted.get(case.text) for case in cases]

    def _suspected(self, examined: Examined) -> list[Finding]:
        """Return what is worth fresh boots, of the properties that are not found yet."""
        known = {found.finding.prop for found in self.hunt.found}
        return [
            each
            for each in examined.findings
            if self.trial.counts(each) and each.prop in self.aim.properties - known
        ]

    def _take(self, case: Case, examined: Examined, other: Examined | None) -> None:
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
        for finding in _worst(self._suspected(examined), other):
            if not self.goes_on() or (hunt.found and self.aim.first_only):
                return
            if finding.prop in {found.finding.prop for found in hunt.found}:
                continue
            met, boots = self._minutes(), self.workers.asked
            pursued = self._pursue(case, finding)
            if pursued is None:
                hunt.unconfirmed.append(finding)
                self.tell(f"not confirmed: {finding.prop}: {finding.text}")
                continue
            small, shown, seeds = pursued
            hunt.found.append(
                Hunted(
                    case,
                    small,
                    shown,
                    seeds,
                    met,
                    self._minutes(),
                    hunt.machines,
                    boots,
                    self.workers.asked,
                )
            )
            self.tell(f"found: {shown.prop}: {shown.text}")

    def _pursue(self, case: Case, finding: Finding) -> tuple[Case, Finding, tuple[int, ...]] | None:
        """Confirm a violation in fresh boots with other seeds, and shrink it."""
        self.tell(f"suspected: {finding.prop}: {finding.text}; trying other seeds")
        trial = self.trial

        def violates(cases: Sequence[Case]) -> list[list[bool]]:
            return trial.shows(finding, cases)

        if finding.load is None:
            alone = _fewest_loads(case, violates)
        else:
            alone = case.only(case.loads[finding.load])
        if not trial.confirms(finding, alone):
            return None
        self.tell("confirmed; shrinking")

        def settles(case: Case) -> bool:
            return trial.settle(finding, case) is not None

        small = shrink(alone, violates, self.goes_on, settles).case
        settled = trial.settle(finding, small)
        return None if settled is None else (small, *settled)

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
    """Leave out hotplug in timed mode, whose emulator was not tried with a CPU that comes back."""
    for load in loads:
        if not load.hotplug or bench.choice.mode != "timed":
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


def _worst(suspected: Sequence[Finding], other: Examined | None) -> list[Finding]:
    """Return what to pursue, the clearest first: of each property the worst of some loads.

    What the rival showed in the same boot, or came near, is left out.
    """
    clear: list[tuple[float, Finding]] = []
    for finding in suspected:
        theirs = other.of(finding.prop, finding.load) if other is not None else None
        if other is not None and theirs is None:
            continue
        beside = [theirs] if theirs is not None else []
        if limit_between([finding], beside) is not None:
            least = max([each.value for each in beside], default=0.0) or finding.value / 100
            clear.append((finding.violated * 100 + finding.value / least, finding))
    found: dict[str, list[Finding]] = {}
    for _, finding in sorted(clear, key=lambda each: -each[0]):
        found.setdefault(finding.prop, []).append(finding)
    return [each for one in found.values() for each in one[:PURSUED]]


def _fewest_loads(case: Case, violates: Callable[[Sequence[Case]], list[list[bool]]]) -> Case:
    """Return the machine without loads if that is enough, else with the one that is, else all."""
    idle = case.only(Load(100, case.loads[0].parts[:1])) if case.loads else case
    candidates = [idle, *(case.only(load) for load in case.loads)]
    for one in candidates:
        if violates([one])[0][0]:
            return one
    return case
