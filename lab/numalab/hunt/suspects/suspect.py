"""Suspects: findings of a round of cases to try again in fresh boots, the clearest first."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from numalab.hunt.case import Case
from numalab.hunt.compare.noise import excess
from numalab.hunt.compare.trend import Trends
from numalab.hunt.finding import BootResult, Finding, limit_between

_MOST_UNTRIED = 5
_LOADS = 12  # of a round
_LOADS_OF_MACHINE = 6
_LOADS_AT_ONCE = 6
_LOADS_OF_INVARIANT = 2  # in which one property is violated: one new sample is enough
_TRENDS = 3  # loads of a round that are tried because of trends
_PLAUSIBLE = 8.0  # the largest factor of a score for a hunch about its property
# Of 126 suspicions in two hunts, the 18 above it were about the bug; 4.9 was the most by chance.
_CLEAR = 5.0
_WORN = 0.2  # how much the score of a property falls with each suspicion that was not confirmed


@dataclass(frozen=True)
class Suspect:
    """A finding to try again, the reference kernel's in the same boot, and a score.

    The score is the excess above the reference kernel in units of the noise; without a reference
    kernel it is the closeness. A `trend` shows in many loads, each of which differs by little.
    """

    case: Case
    finding: Finding
    theirs: Finding | None
    score: float
    trend: bool = False

    @property
    def is_sure(self) -> bool:
        """Whether it violates an invariant, or is about a whole boot: it is rarely chance."""
        return self.finding.most <= 0 or self.finding.load is None


def suspects_of(
    case: Case, suspected: Sequence[Finding], other: BootResult | None
) -> list[Suspect]:
    """Return the suspected findings that the reference kernel does not show in the same boot.

    They differ by more than the noise, or violate an invariant.
    """
    suspects = []
    for finding in suspected:
        if other is None:
            suspects.append(Suspect(case, finding, None, finding.closeness))
            continue
        theirs = other.of(finding.prop, finding.load)
        if theirs is None or limit_between([finding], [theirs]) is None:
            continue
        suspect = Suspect(case, finding, theirs, excess(finding, theirs))
        if suspect.is_sure or suspect.score >= 1:
            suspects.append(suspect)
    return suspects


def clearest(suspects: Sequence[Suspect]) -> list[Finding]:
    """Return the clearest suspected finding of each property, at most `_MOST_UNTRIED`."""
    best: dict[str, Suspect] = {}
    for suspect in sorted(suspects, key=lambda item: (not item.is_sure, -item.score)):
        best.setdefault(suspect.finding.prop, suspect)
    return [suspect.finding for suspect in best.values()][:_MOST_UNTRIED]


def at_once(suspects: Sequence[Suspect], *, everything: bool) -> list[list[Suspect]]:
    """Return the suspects of a case to confirm before others, those that share boots together.

    These are violated invariants, findings about the whole boot, each alone, and what is far above
    the noise; with `everything` the clearest of the others, too.
    """
    alone = [[item] for item in suspects if item.finding.load is None]
    of_loads = [item for item in suspects if item.finding.load is not None]
    clear = [item for item in of_loads if everything or item.score >= _CLEAR]
    groups = [
        ([item for item in of_loads if item.is_sure], _LOADS_OF_INVARIANT),
        ([item for item in clear if not item.is_sure], _LOADS_AT_ONCE),
    ]
    return [*alone, *(_few_loads(group, most) for group, most in groups if group)]


def _few_loads(group: Sequence[Suspect], most: int) -> list[Suspect]:
    """Return the suspects in six loads: the clearest of each property first, then the second.

    Of a property there are at most `most`.
    """
    rank = Counter[str]()
    ranked = list[tuple[int, Suspect]]()
    for item in sorted(group, key=lambda item: -item.score):
        ranked.append((rank[item.finding.prop], item))
        rank[item.finding.prop] += 1
    ordered = [item for place, item in sorted(ranked, key=lambda pair: pair[0]) if place < most]
    loads = list(dict.fromkeys(item.finding.load for item in ordered))[:_LOADS_AT_ONCE]
    return [item for item in ordered if item.finding.load in loads]


def chosen(
    suspects: Sequence[Suspect],
    trends: Trends,
    properties: Collection[str],
    failed: Mapping[str, int],
    tried: set[tuple[str, Finding]],
) -> list[list[Suspect]]:
    """Return the suspects of a round to try, those of a machine together, the clearest first.

    A suspect is clearer if other loads of its kinds differ in the same direction, each by little,
    and if no load differs as much in the other direction. `failed` counts the suspicions of each
    property that fresh boots did not confirm. Loads with a trend come from all rounds; those that
    were `tried` are left out, and the chosen ones are added.
    """

    def worn(prop: str) -> float:
        return 1 + _WORN * failed.get(prop, 0)

    def plausible(item: Suspect) -> float:
        hunch = trends.hunch(item.case, item.finding)
        return float(min(_PLAUSIBLE, max(1.0, 2.0 ** (hunch - 1))))

    def clear(item: Suspect) -> float:
        prop = item.finding.prop
        return item.score * plausible(item) / worn(prop) / trends.by_chance(prop)

    ordered = sorted((item for item in suspects if not item.is_sure), key=clear, reverse=True)
    groups: dict[str, list[Suspect]] = {}
    for item in ordered:
        _add(groups, item, tried, _LOADS)
    more = sum(map(len, map(_loads, groups.values()))) + _TRENDS
    strong = sorted(trends.strong(properties, worn), key=lambda pair: (-pair[0], -pair[1].excess))
    for strength, pair in strong:
        item = Suspect(pair.case, pair.finding, pair.theirs, strength, trend=True)
        _add(groups, item, tried, more)
    return list(groups.values())


def _add(
    groups: dict[str, list[Suspect]], item: Suspect, tried: set[tuple[str, Finding]], most: int
) -> None:
    """Add a suspect if there is room for its load, and it was not tried."""
    key = item.case.text
    if (key, item.finding) in tried:
        return
    group = groups.get(key, [])
    if item.finding.load not in _loads(group):
        if len(_loads(group)) >= _LOADS_OF_MACHINE:
            return
        if sum(len(_loads(other)) for other in groups.values()) >= most:
            return
    groups.setdefault(key, []).append(item)
    tried.add((key, item.finding))


def _loads(group: Sequence[Suspect]) -> set[int | None]:
    return {item.finding.load for item in group}
