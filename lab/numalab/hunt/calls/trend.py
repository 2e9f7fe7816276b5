"""Which functions are called more or less often than with the reference kernel, in which loads.

A patch may change a decision that no trace and no counter shows, but then other functions run. A
boot has hundreds of functions, and the calls of most vary by chance. So those come first that
differ in the same direction in many loads (`numalab.hunt.compare.trend`), and the loads in which
they differ most are tried again.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from numalab.hunt.boot_case import HuntBench
from numalab.hunt.calls.findings import FLOOR, quantity_of
from numalab.hunt.calls.functions import CountedFunctions
from numalab.hunt.case import Case
from numalab.hunt.compare.quantity import Change
from numalab.hunt.compare.trend import ALL, trend_strength
from numalab.hunt.finding import BootResult
from numalab.hunt.loads.kinds import load_traits, trend_kinds
from numalab.hunt.property import function_in, is_line, is_part
from numalab.hunt.suspects.suspect import Suspect

_Floats = npt.NDArray[np.float64]
_IGNORED, _MOST = 0.02, 1.0  # of the logarithm of a ratio: nothing, and enough
# In changed functions the compiler may let a line share the code of another one.
_IGNORED_LINE = 0.2
_FEWEST = 8  # loads of a trend
_STRENGTH = 3.5  # of the trend of a function that is tried
# Of a trend to look for in other boots, more after each one. The other boots alone decide: a lower
# bar costs time, and no false positive.
_STRONG, _RAISED = 3.4, 0.2
_SAME_WAY = 2.0  # of the trends of other functions that are tried with it
_LEAST = 0.35  # the logarithm of the smallest ratio in the load that is tried
_FUNCTIONS = 12  # tried in one load
_LOADS = 2  # tried in one round
_CASES, _LOADS_AGAIN = 5, 10  # at most in which a trend is looked for again; loads of each case
_CLEAR = 4  # loads that may show a trend alone
_WORN = 0.2  # how much the strength of a function falls with each load that was not confirmed


@dataclass(frozen=True)
class CallTrend:
    """A function that is called more (or less) often in the loads of a kind (ALL: in all loads).

    `strength` is that of all loads so far, `larger` of `count` loads in which it was called differ
    in the same direction. `cases` are the machines where that shows most, with these loads only;
    `clear` are the loads that differ most, the clearest first. `place` is file and line of a block.
    """

    function: str
    kind: str
    change: Change
    strength: float
    larger: int
    count: int
    cases: tuple[Case, ...]
    clear: tuple[Suspect, ...]
    place: str = ""

    @property
    def clearest(self) -> Suspect:
        """The load that differs most."""
        return self.clear[0]


@dataclass(frozen=True, eq=False)
class _Load:
    """A load on both kernels: calls by function, and the kinds of the load and its machine."""

    case: Case
    number: int
    mine: _Floats
    theirs: _Floats
    ignored: _Floats
    kinds: frozenset[str]

    @property
    def ratios(self) -> _Floats:
        """The logarithms of the ratios that findings about the load have."""
        logs: _Floats = np.log((self.mine + FLOOR) / (self.theirs + FLOOR))
        return logs

    @property
    def differences(self) -> _Floats:
        return differences(self.mine, self.theirs, self.ignored)

    def suspect(self, function: str, place: int, score: float, change: Change) -> Suspect:
        quantity = quantity_of(function)
        mine, theirs = (
            quantity.finding(self.number, float(side[place]), change)
            for side in (self.mine, self.theirs)
        )
        return Suspect(self.case, mine, theirs, score)


def differences(mine: _Floats, theirs: _Floats, ignored: _Floats) -> _Floats:
    """Return how calls differ: logarithms of ratios, at most 1, so that no load decides alone.

    Those below `ignored` are 0.
    """
    logs: _Floats = np.clip(np.log((mine + 1) / (theirs + 1)), -_MOST, _MOST)
    logs[np.abs(logs) < ignored] = 0.0
    return logs


def ignored_of(name: str) -> float:
    """Return the logarithm of a ratio that is nothing, of a function, block or line."""
    return _IGNORED_LINE if is_line(name) else _IGNORED


@dataclass
class _Sums:
    """Sums over the loads of a kind, for each function."""

    total: _Floats
    squares: _Floats
    count: int = 0

    def add(self, ratios: _Floats) -> None:
        self.total += ratios
        self.squares += ratios**2
        self.count += 1

    @property
    def hunch(self) -> _Floats:
        """The strength in either direction, with one unit added, so that few loads have one."""
        return np.asarray(np.abs(self.total) / np.sqrt(1.0 + self.squares))

    @property
    def strength(self) -> _Floats:
        """0 for too few loads."""
        if self.count < _FEWEST:
            return np.zeros_like(self.total)
        return trend_strength(self.total, self.squares)


@dataclass
class CallTrends:
    """The calls of functions on both kernels: `mine` and `theirs` are what their boots count.

    `places` are file and line of each block and line among them, `changed` the functions with a
    changed line.
    """

    mine: CountedFunctions
    theirs: CountedFunctions
    places: Mapping[str, str] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    _loads: list[_Load] = field(default_factory=list)
    _sums: dict[str, _Sums] = field(default_factory=dict)
    _tried: set[tuple[str, int]] = field(default_factory=set)
    _returned: list[str] = field(default_factory=list)
    _names: tuple[str, ...] = ()
    _ignored: _Floats = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        """Order the functions by name: their addresses differ between the kernels.

        What only one kernel has is not compared.
        """
        self._names = tuple(sorted(self.theirs.all_names))
        self._ignored = np.array([ignored_of(name) for name in self._names], np.float64)

    def counted_on(self, bench: HuntBench, reference: HuntBench) -> tuple[HuntBench, HuntBench]:
        """Return the benches whose boots count the functions."""
        return replace(bench, calls=self.mine), replace(reference, calls=self.theirs)

    def add(self, case: Case, mine: BootResult, theirs: BootResult) -> None:
        """Add the loads that both kernels were counted in."""
        for number in sorted(mine.calls.keys() & theirs.calls.keys()):
            traits = load_traits(case.machine, case.loads[number]) | trend_kinds(case.machine)
            load = _Load(case, number, self._counts(mine, number), self._counts(theirs, number),
                         self._ignored, traits)  # fmt: skip
            self._loads.append(load)
            differ = load.differences
            for kind in (ALL, *load.kinds):
                zeros = _Sums(np.zeros_like(differ), np.zeros_like(differ))
                self._sums.setdefault(kind, zeros).add(differ)

    def _counts(self, result: BootResult, load: int) -> _Floats:
        return np.array([result.calls[load].get(name, 0) for name in self._names], np.float64)

    def suspects(self, failed: Counter[str]) -> list[list[Suspect]]:
        """Return the functions to try again, those of a load together, the strongest trend first.

        Blocks are left to `strongest`: those of one function differ together. `failed` counts the
        findings of each property that fresh boots did not confirm.
        """
        worn = np.array(
            [
                np.inf if is_part(name) else 1 + _WORN * self._failures(name, failed)
                for name in self._names
            ]
        )
        strengths = {kind: sums.strength / worn for kind, sums in self._sums.items()}
        groups: list[list[Suspect]] = []
        while len(groups) < _LOADS and (load := self._clearest(strengths)) is not None:
            self._tried.add((load.case.text, load.number))
            groups.append(self._of_load(load, strengths))
        return groups

    def hunches(self) -> Mapping[str, float]:
        """Return for each kind how strongly lines of the changed functions differ, 0 for none."""
        lines = [
            place
            for place, name in enumerate(self._names)
            if is_line(name) and function_in(name) in self.changed
        ]
        if not lines:
            return {}
        return {kind: float(sums.hunch[lines].max()) for kind, sums in self._sums.items() if kind}

    def strongest(self, *, of_change: bool = False) -> CallTrend | None:
        """Return the strongest trend of another function than before; None if it is not strong.

        Blocks belong to their function, whose blocks mostly differ together. Each one returned
        raises what the next one needs: of many trends some are strong by chance. Lines of the
        changed functions themselves count only with `of_change`.
        """
        least = _STRONG + _RAISED * len(self._returned)
        tried = [
            function_in(name) in self._returned or (is_line(name) and not of_change)
            for name in self._names
        ]
        best: tuple[float, str, int] | None = None
        for kind, sums in sorted(self._sums.items()):
            values = np.abs(sums.strength)
            values[tried] = 0.0
            place = int(np.argmax(values))
            if values[place] >= least and (best is None or values[place] > best[0]):
                best = float(values[place]), kind, place
        if best is None:
            return None
        self._returned.append(function_in(self._names[best[2]]))
        return self._trend(*best)

    def _trend(self, strength: float, kind: str, place: int) -> CallTrend:
        sign = float(np.sign(self._sums[kind].total[place]))
        of_kind = (load for load in self._loads if kind in (ALL, *load.kinds))
        loads = [load for load in of_kind if load.mine[place] + load.theirs[place]]
        along = [sign * float(load.differences[place]) for load in loads]
        name, change = self._names[place], _change(sign)
        by_ratio = sorted(loads, key=lambda load: -sign * float(load.ratios[place]))[:_CLEAR]
        clear = tuple(load.suspect(name, place, strength, change) for load in by_ratio)
        larger = sum(value > 0 for value in along)
        cases = _clear_cases(loads, along)
        place_in_source = self.places.get(name, "")
        return CallTrend(
            name, kind, change, strength, larger, len(loads), cases, clear, place_in_source
        )

    def _failures(self, function: str, failed: Counter[str]) -> int:
        name = quantity_of(function).name
        return max(failed[f"more-{name}"], failed[f"less-{name}"])

    def _clearest(self, strengths: dict[str, _Floats]) -> _Load | None:
        """Return the load that shows the strongest trend best."""
        order = [
            (float(abs(values[place])), kind, int(place))
            for kind, values in strengths.items()
            for place in np.flatnonzero(np.abs(values) >= _STRENGTH)
        ]
        for _, kind, place in sorted(order, reverse=True):
            sign = np.sign(strengths[kind][place])
            loads = [
                load
                for load in self._loads
                if kind in (ALL, *load.kinds)
                and (load.case.text, load.number) not in self._tried
                and sign * load.ratios[place] >= _LEAST
            ]
            if loads:
                return max(loads, key=lambda load: sign * load.ratios[place])
        return None

    def _of_load(self, load: _Load, strengths: dict[str, _Floats]) -> list[Suspect]:
        """Return the functions that differ in a load as in others of its kinds."""
        ratios = load.ratios
        own = np.array([strengths[kind] for kind in (ALL, *sorted(load.kinds))])
        along = np.max(own * np.sign(ratios), axis=0)
        score = np.where((np.abs(ratios) >= _LEAST) & (along >= _SAME_WAY), along, 0.0)
        places = [int(place) for place in np.argsort(-score, kind="stable")[:_FUNCTIONS]]
        return [
            load.suspect(
                self._names[place], place, float(score[place]),
                _change(ratios[place]),
            )
            for place in places
            if score[place] > 0
        ]  # fmt: skip


def _change(difference: float) -> Change:
    return "more" if difference > 0 else "less"


def _clear_cases(loads: Sequence[_Load], along: Sequence[float]) -> tuple[Case, ...]:
    """Return the cases whose loads differ most in the direction of a trend, some loads of each."""
    by_case: dict[str, list[tuple[float, int]]] = {}
    cases = {load.case.text: load.case for load in loads}
    for load, value in zip(loads, along, strict=True):
        by_case.setdefault(load.case.text, []).append((-value, load.number))
    most = sorted(by_case, key=lambda text: sum(value for value, _ in by_case[text]))[:_CASES]
    chosen = {text: sorted(n for _, n in sorted(by_case[text])[:_LOADS_AGAIN]) for text in most}
    return tuple(
        cases[text].only(*(cases[text].loads[number] for number in numbers))
        for text, numbers in chosen.items()
    )
