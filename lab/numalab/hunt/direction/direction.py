"""The direction of a hunt: which cases it draws, by the outcomes of earlier boots."""

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from numalab.hunt.case import Case
from numalab.hunt.direction.corpus import Corpus
from numalab.hunt.direction.coverage import HuntCoverage, hunt_coverage
from numalab.hunt.direction.fit import fitted
from numalab.hunt.direction.hints import Bias
from numalab.hunt.direction.relevance import Relevance
from numalab.hunt.finding import CallsByLoad
from numalab.hunt.generate.cases import LOADS, Near, draw_case
from numalab.hunt.generate.families import draw_loads, first_families
from numalab.hunt.generate.machines import draw_machine
from numalab.hunt.generate.mutate import combined, varied
from numalab.hunt.loads.kinds import load_traits, trend_kinds
from numalab.hunt.loads.load import Load
from numalab.reach.line_table import LineTable
from numalab.reach.merge import merged
from numalab.reach.model import PatchReach, RunReach
from numalab.topology.topology import Topology

# Shares of all cases: as in a hunt without direction, new ones by the hints, varied ones the rest.
# One in so many is close to an earlier suspicion. Where few loads run the change, most cases are
# for those.
_PLAIN, _PLAIN_RARE = (0.3, 3), (0.1, 6)
_HINTED = 0.2
_MACHINES = 6  # drawn for each case by the hints
_SMT = 0.25
_POOL = 5  # times that each family of loads is drawn for a case
_UNREACHED = 3.0  # the power of the weights until a changed line has run
# The hunches of two equal kernels stay below 2 for most kinds.
_LEAST_HUNCH, _HUNCH = 2.0, 8.0
_KINDS = ("loads", "machine", "combined")  # of variations


@dataclass
class HuntDirection:
    """Draws cases by the outcomes of the changed code in earlier boots.

    `table` is what a boot counts, `bias` what the changed code reads. Cases depend on the seed, on
    the results that `take` received, in their order, and on `hunches`: how strongly loads of a
    kind, or on a kind of machine, differ from the reference kernel's so far, in what they do and in
    lines of the changed functions. Kinds that run the
    changed code more often than others are drawn more often. Without `steers`, they
    are those of a hunt without direction; executions are counted all the same.
    """

    table: LineTable
    bias: Bias
    steers: bool = True
    corpus: Corpus = field(default_factory=Corpus)
    hunches: Sequence[Mapping[str, float]] = ()
    relevance: Relevance = field(default_factory=Relevance)
    total: PatchReach | None = None

    @property
    def coverage(self) -> HuntCoverage | None:
        """What the boots executed; None before the first one."""
        return None if self.total is None else hunt_coverage(self.total, self.corpus)

    def draw(self, seed: int, number: int, *, timed: bool, near: Sequence[Near], most: int) -> Case:
        """Return case `number` of a seed; arguments as for `draw_case`."""
        rng = random.Random(f"{seed}-{number}-direction")
        share = rng.random()
        rare = self.relevance.is_rare
        plain, period = _PLAIN_RARE if rare else _PLAIN
        close = bool(near) and number % period == period - 1
        if share < plain or close or timed or not self.steers:
            return draw_case(seed, number, timed=timed, near=near, most=most)
        most = most or LOADS
        if share < plain + _HINTED or not self.corpus.cases:
            machine = self._machine(rng)
            first = first_families(seed, number)
            return self._case(rng, machine, draw_loads(rng, machine, len(first), first), most)
        return self._varied(rng, most)

    def take(
        self, number: int, case: Case, reach: RunReach | None, calls: CallsByLoad | None = None
    ) -> None:
        """Add a booted case to the corpus, and its executions to the sum."""
        self.relevance.take(case, calls or {})
        if reach is None:
            return
        self.corpus.add(number, case, reach)
        before = self.total.patched if self.total is not None else None
        self.total = merged([("", run) for run in (before, reach) if run is not None])

    @property
    def _power(self) -> float:
        """The power of the weights: what the code reads matters most until it runs at all."""
        return 1.0 if self.corpus.has_run else _UNREACHED

    def _hunch(self, kinds: Collection[str]) -> float:
        """Return the weight of what is of these kinds by the strongest hunch, 1 to _HUNCH."""
        own = (hunches.get(kind, 0.0) for hunches in self.hunches for kind in kinds)
        strongest = max(own, default=0.0)
        return float(min(_HUNCH, max(1.0, 4.0 ** (strongest - _LEAST_HUNCH))))

    def _weight(self, kinds: Collection[str]) -> float:
        """Return how often to draw what is of these kinds, by all earlier boots."""
        return self._hunch(kinds) * self.relevance.weight(kinds)

    def _machine(self, rng: random.Random) -> Topology:
        """Return one of several machines, weighted by what the changed code reads, and hunches."""
        smt = rng.random() < _SMT
        drawn = [draw_machine(rng, smt=smt) for _ in range(_MACHINES)]
        if "SMT" in self.bias.machines or self._hunch({"SMT"}) > 1:
            drawn.append(draw_machine(rng, smt=True))
        power = self._power
        weights = [
            self.bias.of_machine(machine) ** power * self._weight(trend_kinds(machine))
            for machine in drawn
        ]
        return rng.choices(drawn, weights)[0]

    def _varied(self, rng: random.Random, most: int) -> Case:
        """Vary a case of the corpus: its loads, its machine, or both with another case."""
        chosen = self.corpus.choose(rng).case
        kind = rng.choice(_KINDS)
        machine = self._machine(rng) if kind == "machine" else chosen.machine
        loads = [load for load in chosen.loads if rng.random() < 0.5] or [chosen.loads[0]]
        if kind == "machine":
            loads = _fitted(rng, chosen.machine, machine, loads)
        elif kind == "combined":
            other = self.corpus.choose(rng).case
            companions = _fitted(rng, other.machine, machine, other.loads) or loads
            loads = [combined(load, rng.choice(companions)) for load in loads]
        else:
            loads = [varied(rng, load, machine) for load in loads]
        return self._case(rng, machine, loads, most)

    def _case(
        self, rng: random.Random, machine: Topology, loads: Sequence[Load], most: int
    ) -> Case:
        """Return a case with these loads and new ones by the hints, machine changes last."""
        power = self._power
        chosen = list(dict.fromkeys(loads))[:most]
        drawn = [load for _ in range(_POOL) for load in draw_loads(rng, machine, 2 * LOADS)]
        pool = [load for load in dict.fromkeys(drawn) if load not in chosen]
        weights = [
            self.bias.of_load(machine, load) ** power * self._weight(load_traits(machine, load))
            for load in pool
        ]
        while pool and len(chosen) < most:
            place = rng.choices(range(len(pool)), weights)[0]
            weights.pop(place)
            chosen.append(pool.pop(place))
        return Case(machine, tuple(chosen)).with_machine_changes_last()


def _fitted(rng: random.Random, old: Topology, new: Topology, loads: Sequence[Load]) -> list[Load]:
    """Return the loads of one machine that run on another one."""
    return [moved for load in loads if (moved := fitted(rng, old, new, load)) is not None]
