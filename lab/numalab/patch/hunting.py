"""The hunt for a case in which the patched kernel is worse than the baseline."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from statistics import fmean

from numalab.errors import LabError
from numalab.hunt.boot_case import HuntBench
from numalab.hunt.compare.noise import ratio_of_means
from numalab.hunt.compare.outcomes import Suspicion
from numalab.hunt.direction.direction import HuntDirection
from numalab.hunt.finding import Finding
from numalab.hunt.hunting import Aim, Hunter
from numalab.hunt.outcome import ConfirmedViolation, Hunt
from numalab.hunt.property import LOST, absolute_property_names
from numalab.hunt.store_case import store_case
from numalab.hunt.workers import CaseWorkers
from numalab.statistics.sequential import LEVEL, LOOKS, FreshSample, decide

ATTEMPTS = 3  # violations to test with fresh seeds, at most
_FRESH = 1001  # the first seed of the final test: no hunt uses it
_RESERVED = 0.15  # of the time, for the final test


@dataclass(frozen=True)
class FoundCase:
    """A small case in which the patched kernel is worse, in fresh boots of both kernels.

    `before` and `after` are the values of the property; a larger value is worse.
    """

    prop: str
    sentence: str
    file: Path
    nodes: int
    cpus: int
    tasks: int
    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def command(self) -> str:
        """The command that repeats it."""
        return f"numalab run {quote(str(self.file))}"


@dataclass(frozen=True)
class HuntOutcome:
    """The case that was found, if any, how much was searched, and why it ended early (`failed`).

    `losses` are lost guests of the patched kernel where the baseline lost none, and what became of
    them; no `case` has them.
    """

    case: FoundCase | None = None
    machines: int = 0
    loads: int = 0
    boots: int = 0
    failed: str = ""
    losses: tuple[Suspicion, ...] = ()

    @property
    def may_fail(self) -> bool:
        """Whether the patched kernel may lose guests: fresh boots of a hunt confirmed it, or had no
        time. The final test does not refute it: its boots begin in other states of the machine."""
        return any(loss.confirmed or not loss.samples for loss in self.losses)


@dataclass(frozen=True)
class PatchHunt:
    """The inputs of the hunt: both kernels, the workers, and the folder for cases.

    `shaken` are benches of baseline and patched kernel whose boots start in a state that the seed
    decides: two kernels differ a little after any boot, by whatever was changed. `direction`
    returns a new direction for each attempt.
    """

    bench: HuntBench
    baseline: HuntBench
    shaken: tuple[HuntBench, HuntBench]
    crew: CaseWorkers
    folder: Path
    tell: Callable[[str], None]
    direction: Callable[[], HuntDirection] | None = None

    def run(self, deadline: float) -> HuntOutcome:
        """Hunt until a case is confirmed by fresh seeds, or until `deadline` (monotonic time).

        The final test of each of at most three violations may spend a third of the level, so that
        the whole hunt keeps it. An error ends the hunt, and is in its outcome.
        """
        machines = loads = 0
        case, failed, losses = None, "", list[Suspicion]()
        for attempt in range(1, ATTEMPTS + 1):
            left = deadline - time.monotonic()
            if left <= 0 or case is not None:
                break
            hunt = Hunt()
            try:
                hunter = self._hunter(attempt, left * (1 - _RESERVED))
                hunt = hunter.hunt
                hunter.run()
                for violation in hunt.violations[:1]:
                    case = self._tested(violation)
            except LabError as error:  # the experiment has its verdict
                failed = str(error).partition("\n")[0]
            machines, loads = machines + hunt.machines, loads + hunt.loads
            losses += [item for item in hunt.suspicions if item.finding.prop == LOST]
            if case is not None and case.prop == LOST:
                losses.clear()
            if failed:
                break
        return HuntOutcome(case, machines, loads, self.crew.requested, failed, tuple(losses))

    def _hunter(self, seed: int, seconds: float) -> Hunter:
        aim = Aim(
            seed, frozenset(absolute_property_names()), seconds, first_only=True, trends=False
        )
        direction = self.direction() if self.direction is not None else None
        return Hunter(aim, self.bench, self.crew, self.tell, self.baseline, direction)

    def _tested(self, violation: ConfirmedViolation) -> FoundCase | None:
        """Test a violation with fresh seeds; None if the patched kernel is not worse."""
        self.crew.deadline = None  # the test has time of its own
        before, after = (self._values(violation, bench) for bench in self.shaken)
        if not _is_worse(before, after, violation.finding):
            self.tell(f"not confirmed by fresh seeds: {violation.finding.text}")
            return None
        file = store_case(self.folder, violation, [self.bench, self.baseline], self.crew)
        machine = violation.case.machine
        return FoundCase(
            violation.finding.prop,
            violation.finding.text,
            file,
            len(machine.nodes),
            machine.cpu_count,
            sum(load.tasks for load in violation.case.loads),
            tuple(before),
            tuple(after),
        )

    def _values(self, violation: ConfirmedViolation, bench: HuntBench) -> Sequence[float]:
        seeds = range(_FRESH, _FRESH + LOOKS[0])
        boots = self.crew.boot([(violation.case, bench, seed) for seed in seeds])
        place = None if violation.finding.load is None else 0
        values = (result.of(violation.finding.prop, place) for result in boots)
        return [finding.value for finding in values if finding is not None]


def _is_worse(before: Sequence[float], after: Sequence[float], finding: Finding) -> bool:
    """Return whether fresh boots show that the second side is worse.

    The means differ by the factor that confirms such a finding in a hunt. An invariant has the
    limit 0, and no boot of a sound kernel violates it: two of them are enough. Nothing is shown
    where more than one boot of the baseline has no value.
    """
    if len(before) < LOOKS[0] - 1 or not after:
        return False
    if finding.most <= 0:
        return sum(value > 0 for value in after) >= 2 and not any(before)
    decision = decide([FreshSample(before, after)], LEVEL / ATTEMPTS)[0]
    return decision.shown and fmean(after) >= ratio_of_means(finding) * fmean(before)
