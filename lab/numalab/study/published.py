"""The figures in the text of a published change: pairs of numbers, and signed percentages."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from numalab.statistics.scale import Scale, on_scale, shift_of
from numalab.statistics.summary import change_percent

VALID = (
    "`16 to 1`, `63 to 43 us` in the unit of the measure, `98 ± 2 to 55 ± 1`, `-30%`,"
    " `+7% to +15%`, each alone or with words after a comma or in parentheses, or words without"
    " figures"
)
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][+-]?\d+)?"
_UNIT = r"%|1/\w+|[A-Za-z][^\s,;]*"
_PAIR = re.compile(
    rf"(?:from )?(?P<old>{_NUMBER})(?: ?(?P<unit>{_UNIT}))? ?(?:\bto|->|→)"
    rf" ?(?P<new>{_NUMBER})(?: ?(?P<after>{_UNIT}))?"
)
_SIGNED = re.compile(rf"(?P<least>[+-]{_NUMBER}) ?%(?: to (?P<most>[+-]{_NUMBER}) ?%)?")
_PERCENTAGE = re.compile(rf"(?P<change>{_NUMBER}) ?%")
# The deviation of a mean, or the error of a change, is no change itself.
_ERROR = rf"(?:±|\+/?-) ?{_NUMBER}"
_DEVIATION = re.compile(rf" ?\({_ERROR} ?(?:%|\w*)\)| ?{_ERROR}(?:%|[A-Za-z]+)?")
_NOTE = re.compile(r"\(([^()]*)\)")
_ENDS = re.compile(r"[,;:](?: |$)")  # of a part: the comma in 1,714 is of the number
_RANGE = re.compile(rf"{_NUMBER}(?: ?(?:{_UNIT}))? ?(?:\bto|->|→) ?{_NUMBER}")
_LEFT = re.compile(r"(?<![\w.])[+-]\d|\d ?%")
_DIGIT = re.compile(r"(?<![A-Za-z])\d|\b[x×]\d")  # not that of a name, such as ext4
# Words may have a number of things: "2-hops apart on an 8 nodes machine".
_THINGS = re.compile(r"\b\d{1,2}[ -](?!times\b|percent|[mnu]?s\b)[A-Za-z]{2,}")


@dataclass(frozen=True)
class Pair:
    """A value before and one after, as they are written, and the units beside them."""

    text: str
    old: str
    new: str
    units: tuple[str, ...]

    def shifts(self, scale: Scale, *, rounded: bool) -> tuple[float, float]:
        """Return the least and the largest shift. Raises ValueError where the scale has none."""
        inexact = rounded and scale != "count"
        old, new = (on_scale(_ends(part, rounded=inexact), scale) for part in (self.old, self.new))
        return new[0] - old[1], new[1] - old[0]

    def has_change(self, percentage: str) -> bool:
        """Return whether a percentage may be the change, rounded or cut, or a change in points.

        Its sign may say better and worse.
        """
        number, step = abs(_number(percentage)), _step(percentage)
        olds, news = (_ends(part, rounded=True) for part in (self.old, self.new))
        changes = [change_percent(old, new) for old in olds for new in news]
        ranges = [[change for change in changes if change is not None]]
        if "%" in self.units:
            ranges.append([new - old for old in olds for new in news])
        return any(
            min(ends) <= high and low <= max(ends)
            for ends in ranges
            for low, high in (
                (number - step / 2, number + step),
                (-number - step, step / 2 - number),
            )
            if ends
        )


@dataclass(frozen=True)
class PublishedChange:
    """The figures of a text: its pairs, or else its signed percentages; none for words.

    They are whole parts of the text, or of its notes in parentheses if no other part is one.
    """

    text: str

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of values."""
        return self._figures[0]

    @property
    def percentages(self) -> tuple[str, ...]:
        """The signed percentages, without their signs for percent."""
        return self._figures[1]

    @property
    def has_zero(self) -> bool:
        """Whether a value before or after is 0, which has no logarithm."""
        return any(_number(end) == 0 for pair in self.pairs for end in (pair.old, pair.new))

    @cached_property
    def _figures(self) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
        for parts in self._parts:
            pairs = tuple(_pair(match) for part in parts if (match := _PAIR.fullmatch(part)))
            signed = [match for part in parts if (match := _SIGNED.fullmatch(part))]
            if pairs or signed:
                ends = (end for match in signed for end in match.groups() if end)
                return pairs, tuple(ends)
        return (), ()

    @cached_property
    def _parts(self) -> tuple[tuple[str, ...], ...]:
        """The parts of the text, and those of its notes in parentheses; without deviations."""
        text = _DEVIATION.sub("", self.text)
        notes = _NOTE.findall(text)
        return tuple(
            tuple(part.strip() for whole in texts for part in _ENDS.split(whole))
            for texts in ([_NOTE.sub(" ", text)], notes)
        )

    def shifts(self, scale: Scale, *, rounded: bool = False) -> tuple[float, float] | None:
        """The smallest and largest change, as shifts on the scale; None for words.

        With `rounded` those of all figures that round to the published ones; a count is exact.
        """
        shifts: list[float] = []
        for pair in self.pairs:
            with suppress(ValueError):
                shifts += pair.shifts(scale, rounded=rounded)
        if not shifts:
            for change in self.percentages:
                shifts += [shift_of(end, scale) for end in _ends(change, rounded=rounded)]
        return (min(shifts), max(shifts)) if shifts else None

    def problems(self, unit: str | None = None) -> Iterator[str]:
        """Yield why numbers of the text cannot be read as changes of a measure, in this unit."""
        rest = [part for parts in self._parts for part in parts if not _is_figure(part)]
        if self.pairs:
            for pair in self.pairs:
                for other in set(pair.units) - {unit} if unit is not None else ():
                    yield f"{other!r} in {pair.text!r} is not the unit of the measure, {unit}"
            for change in _PERCENTAGE.findall(_PAIR.sub("", _DEVIATION.sub("", self.text))):
                if not any(pair.has_change(change) for pair in self.pairs):
                    yield f"{change}% is not the change of {self.pairs[0].text!r}"
            return
        words = " ".join(rest)
        only_words = not self.percentages
        if _LEFT.search(words) or (
            only_words and (_RANGE.search(words) or _DIGIT.search(_THINGS.sub("", words)))
        ):
            yield f"{self.text!r} has a number that is not read as a change"


def _is_figure(part: str) -> bool:
    return bool(_PAIR.fullmatch(part) or _SIGNED.fullmatch(part))


def _pair(match: re.Match[str]) -> Pair:
    units = (unit for unit in (match["unit"], match["after"]) if unit)
    return Pair(match[0].removeprefix("from "), match["old"], match["new"], tuple(units))


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _step(text: str) -> float:
    """Return one unit of the last digit of a number."""
    mantissa, _, exponent = text.lower().partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


def _ends(text: str, *, rounded: bool) -> tuple[float, float]:
    """Return the number, twice, or the least and the largest that `rounded` to it."""
    number = _number(text)
    half = 0.5 * _step(text) if rounded else 0.0
    return number - half, number + half
