"""A measure: one number of one run, and its meaning."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

Number = float | int | None
LARGEST_NUMBER = 1 << 63  # what every number of a run is below: tables hold it, and sums have room


class Direction(StrEnum):
    """Which way a measure is better; `none` where neither way is."""

    LOWER = "lower"
    HIGHER = "higher"
    NONE = "none"


# What became of a claim about how a measure changes (docs/explanation/statistics.md).
ClaimVerdict = Literal[
    "reproduced",
    "direction only",
    "refuted",
    "inconclusive",
    "not reached",
    "cannot be seen",
    "vacuous",
]


class MeasureKind(StrEnum):
    """How far a figure is valid.

    `placement` (which CPU or node, how often) holds in every mode, and on hardware as far as the
    clock of the mode is like hardware's; `modelled` is a time or count of the model of mode timed;
    `timing` comes from a clock or counters of the CPU. An `identifier` (a CPU number, a task, an
    address) is a name: it has no mean, and is never compared.
    """

    PLACEMENT = "placement"
    MODELLED = "modelled"
    TIMING = "timing"
    IDENTIFIER = "identifier"


# A figure in one of these units, which are in the singular, is the number of one such thing.
IDENTIFIER_UNITS = frozenset(
    {"address", "core", "cpu", "cpu number", "id", "identifier", "node", "pid", "tid"}
)


class SourceKind(StrEnum):
    """Where a figure was read."""

    TRACE = "trace"
    GUEST = "guest"
    VMSTAT = "/proc/vmstat"
    PERF = "perf stat"
    WORKLOAD = "workload"
    MODEL = "memory model"


@dataclass(frozen=True)
class MeasureSource:
    """One place that a measure comes from, and what was read there: events, counters, a file."""

    kind: SourceKind
    what: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}" if self.what else str(self.kind)


def parse_sources(text: str) -> tuple[MeasureSource, ...]:
    """Read sources as `MeasureInfo.source` writes them: `trace: sched_switch; guest: clock`.

    Raises ValueError for a kind of source that there is not.
    """
    pairs = (part.partition(": ") for part in text.split("; "))
    return tuple(MeasureSource(SourceKind(kind), what) for kind, _, what in pairs)


@dataclass(frozen=True)
class MeasureInfo:
    """What a measure means: its unit, its better direction, what it is worth, where it is from."""

    name: str
    unit: str
    direction: Direction
    kind: MeasureKind
    definition: str
    sources: tuple[MeasureSource, ...]

    @property
    def source(self) -> str:
        """The sources as one text, which `parse_sources` reads."""
        return "; ".join(map(str, self.sources))

    @property
    def is_identifier(self) -> bool:
        """Whether a figure is a name, by its kind or by a unit without a better direction."""
        unit = self.direction is Direction.NONE and self.unit.casefold() in IDENTIFIER_UNITS
        return self.kind is MeasureKind.IDENTIFIER or unit

    def comes_from(self, kind: SourceKind) -> bool:
        """Say whether some of it was read at this kind of source."""
        return any(source.kind == kind for source in self.sources)


def differing(infos: Iterable[MeasureInfo]) -> list[str]:
    """Name what several meanings of one measure differ in; empty where its values compare.

    The text of a definition is its version, which changes with the values of ordinary recordings.
    """
    every = tuple(infos)
    return [
        what
        for what in ("definition", "direction", "unit")
        if len({getattr(info, what) for info in every}) > 1
    ]


@dataclass(frozen=True)
class Measure:
    """One number of one run. `value` is None when the run could not give it, which is not 0."""

    info: MeasureInfo
    value: Number

    @property
    def name(self) -> str:
        """The measure's full name."""
        return self.info.name


def modelled(measure: Measure) -> Measure:
    """Return a measure of mode timed: what a clock said there, its model said."""
    if measure.info.kind is not MeasureKind.TIMING:
        return measure
    return replace(measure, info=replace(measure.info, kind=MeasureKind.MODELLED))


_SHARE_OF_CPU_TIME = re.compile(r"(\w+_)?(user|system)_time", re.ASCII)


def valid_in(measures: Mapping[str, Measure], mode: str) -> Mapping[str, Measure]:
    """Return measures by name, without values that the mode of their run cannot give.

    In mode icount all CPUs share one clock, and enter their ticks together: the tick of each seems
    to last until all have executed theirs, and the kernel charges busy loops half of their time as
    system time (docs/results/cpu-time.md). The sum of both times is right, but neither of them is.
    """
    if mode != "icount":
        return measures
    return {
        name: replace(measure, value=None) if _SHARE_OF_CPU_TIME.fullmatch(name) else measure
        for name, measure in measures.items()
    }


def percent(part: float, whole: float) -> Number:
    """Return a part of a whole in percent; None of nothing."""
    return 100 * part / whole if whole else None
