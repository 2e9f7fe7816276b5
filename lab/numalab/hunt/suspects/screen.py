"""Screen suspects: one more boot of each kernel, which most suspicions do not survive."""

from collections.abc import Sequence
from dataclasses import dataclass

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.case import Case
from numalab.hunt.compare.noise import excess
from numalab.hunt.compare.outcomes import Suspicion, suspicion
from numalab.hunt.confirm import in_context
from numalab.hunt.finding import Finding
from numalab.hunt.suspects.suspect import Suspect
from numalab.hunt.workers import Boot, CaseWorkers

# The smallest excess in the new boots: less than that at which a value is suspected, since the
# clearest of many values are clearer than the next ones. A trend has only to go the same way.
_LEAST, _LEAST_OF_TREND = 0.6, 0.05
_SEED = 40  # above the hunt's seed: the boots that confirm have others


@dataclass(frozen=True)
class Screened:
    """The suspects that are left, by machine, and what became of the others."""

    left: tuple[tuple[Suspect, ...], ...]
    dropped: tuple[Suspicion, ...]


def screen(
    workers: CaseWorkers,
    bench: HuntBench,
    reference: HuntBench,
    seed: int,
    groups: Sequence[Sequence[Suspect]],
) -> Screened:
    """Boot the suspects of each machine once more, and return those that show it again.

    The loads of a machine run in one boot, each after the load before it. The kernel boots first
    and is compared with the reference kernel's earlier boot, so that the reference kernel boots for
    few of them.
    """
    dropped: list[Suspicion] = []
    new: dict[Suspect, Finding] = {}
    left = [tuple(group) for group in groups]
    for side in (bench, reference):
        left = [group for group in left if group]
        boots: list[Boot] = [(_case(group), side, seed + _SEED) for group in left]
        for place, result in enumerate(workers.boot(boots)):
            kept = []
            for suspect in left[place]:
                at = len(order := _order(left[place])) - 1 - order[::-1].index(_load(suspect))
                value = result.of(suspect.finding.prop, at)
                if side is bench:
                    pair = value, suspect.theirs
                    new.update({suspect: value} if value is not None else {})
                else:
                    pair = new[suspect], value
                if _shows(suspect, *pair):
                    kept.append(suspect)
                else:
                    mine, theirs = ([item] if item is not None else [] for item in pair)
                    dropped.append(suspicion(suspect.finding, mine, theirs, confirmed=False))
            left[place] = tuple(kept)
    return Screened(tuple(group for group in left if group), tuple(dropped))


def _shows(suspect: Suspect, mine: Finding | None, theirs: Finding | None) -> bool:
    least = _LEAST_OF_TREND if suspect.trend else _LEAST
    return mine is not None and theirs is not None and excess(mine, theirs) >= least


def _load(suspect: Suspect) -> int:
    assert suspect.finding.load is not None
    return suspect.finding.load


def _order(group: Sequence[Suspect]) -> list[int]:
    return in_context(group[0].case, {_load(item) for item in group})


def _case(group: Sequence[Suspect]) -> Case:
    case = group[0].case
    return case.only(*(case.loads[n] for n in _order(group)))
