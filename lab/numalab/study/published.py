"""The figures in the text of a published change: pairs of numbers, and signed percentages."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from numalab.statistics.scale import Scale, on_scale, shift_of
from numalab.statistics.summary import change_percent

VALID = "`16 to 1`, `63 to 43 us` in the unit of the measure, `-30%`, `+7% to +15%`, or words"
_NUMBER = r"\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?"
_BEFORE = r"(?: ?(?P<unit>%|1/\w+|[A-Za-z]\S*))?"
# After the second number any word may follow; of those after a blank only these are units.
_AFTER = r"(?P<after>%|[A-Za-z]+(?:/\w+)?| (?:%|[mnu]?s\b|\w+/\w+))?"
_PAIR = re.compile(
    rf"(?<![\w.+-])(?P<old>{_NUMBER}){_BEFORE} ?(?:\bto|->|→) ?(?P<new>{_NUMBER}){_AFTER}"
)
_SIGNED = re.compile(rf"(?<![\w.])(?P<change>[+-]{_NUMBER}) ?%")
_PERCENTAGE = re.compile(rf"(?P<change>{_NUMBER}) ?%")
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
    """The figures of a text: its pairs, or else its signed percentages; none for words."""

    text: str

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs of values."""
        return tuple(map(_pair, _PAIR.finditer(self.text)))

    def shifts(self, scale: Scale, *, rounded: bool = False) -> tuple[float, float] | None:
        """The smallest and largest change, as shifts on the scale; None for words.

        With `rounded` those of all figures that round to the published ones; a count is exact.
        """
        shifts: list[float] = []
        for pair in self.pairs:
            with suppress(ValueError):
                shifts += pair.shifts(scale, rounded=rounded)
        if not shifts:
            for change in _SIGNED.findall(self.text):
                shifts += [shift_of(end, scale) for end in _ends(change, rounded=rounded)]
        return (min(shifts), max(shifts)) if shifts else None

    def problems(self, unit: str) -> Iterator[str]:
        """Yield why numbers of the text cannot be read as changes of a measure in this unit."""
        rest = _PAIR.sub("", self.text)
        for pair in self.pairs:
            for other in set(pair.units) - {unit}:
                yield f"{other!r} in {pair.text!r} is not the unit of the measure, {unit}"
        if self.pairs:
            for change in (match["change"] for match in _PERCENTAGE.finditer(rest)):
                if not any(pair.has_change(change) for pair in self.pairs):
                    yield f"{change}% is not the change of {self.pairs[0].text!r}"
            return
        words = _SIGNED.sub("", rest)
        signed = words != rest
        if _LEFT.search(words) or (not signed and _DIGIT.search(_THINGS.sub("", words))):
            yield f"{self.text!r} has a number that is not read as a change"


def _pair(match: re.Match[str]) -> Pair:
    units = (unit.strip() for unit in (match["unit"], match["after"]) if unit)
    return Pair(match[0], match["old"], match["new"], tuple(units))


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
