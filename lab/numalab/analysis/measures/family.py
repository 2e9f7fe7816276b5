"""What a family of measures means, and how families that are computed together are held."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from numalab.errors import UserError
from numalab.measure import (
    Direction,
    Measure,
    MeasureInfo,
    MeasureKind,
    MeasureSource,
    Number,
    SourceKind,
)
from numalab.plugins import Registry
from numalab.recording.recording import Recording

LOWER, HIGHER, NONE = Direction.LOWER, Direction.HIGHER, Direction.NONE
WINDOW = "the window (from `numalab: begin` to `numalab: end`)"


def trace(*events: str) -> MeasureSource:
    """Name events of the recording as a source."""
    return MeasureSource(SourceKind.TRACE, ", ".join(events))


def guest(what: str) -> MeasureSource:
    """Name something that was read in the guest as a source."""
    return MeasureSource(SourceKind.GUEST, what)


@dataclass(frozen=True)
class MeasureFamily:
    """The meaning of measures that share a name; name and definition may hold places (`{node}`).

    With `needs_nodes` the measure is None without a topology. With `may_be_never` None can also
    mean that something never happened, although all was recorded.
    """

    name: str
    unit: str
    direction: Direction
    definition: str
    sources: tuple[MeasureSource, ...]
    kind: MeasureKind = MeasureKind.PLACEMENT
    needs_nodes: bool = False
    may_be_never: bool = False

    @property
    def source(self) -> str:
        """The sources as one text."""
        return "; ".join(map(str, self.sources))

    def of(self, value: Number, **places: int | str) -> Measure:
        """Make the measure with this value, the family's places filled in."""
        return Measure(self._info(self.name.format(**places), places), value)

    def explain(self, name: str) -> MeasureInfo | None:
        """Return what the measure `name` means if it is of this family."""
        parts = re.split(r"\{(\w+)\}", self.name)
        pattern = "".join(
            re.escape(part) if i % 2 == 0 else f"(?P<{part}>\\w+)" for i, part in enumerate(parts)
        )
        match = re.fullmatch(pattern, name)
        return self._info(name, match.groupdict()) if match else None

    def _info(self, name: str, places: dict[str, int | str] | dict[str, str]) -> MeasureInfo:
        text = self.definition.format(**places)
        return MeasureInfo(name, self.unit, self.direction, self.kind, text, self.sources)


@dataclass(frozen=True)
class MeasureGroup:
    """Families that one function computes; `name` is the heading of their table in the docs."""

    name: str
    families: tuple[MeasureFamily, ...]
    compute: Callable[[Recording], Iterable[Measure]]


# In the order in which the measures of a run are stored and shown; modules not named here follow.
MEASURES: Registry[MeasureGroup] = Registry(
    "group of measures",
    __package__,
    first=(
        "placement", "convergence", "work_conservation", "migrations", "numa_balancing",
        "task_faults", "locality", "memory", "counters", "command",
    ),
)  # fmt: skip


def register_measures(
    name: str, families: Sequence[MeasureFamily], compute: Callable[[Recording], Iterable[Measure]]
) -> MeasureGroup:
    """Add measures that one function computes together; `register_measure` adds a single one.

    Raises UserError for the name of a group or measure that is taken.
    """
    group = MeasureGroup(name, tuple(families), compute)
    _refuse_taken(group)
    MEASURES.add(name, group, compute)
    return group


def register_measure(
    name: str,
    *,
    unit: str,
    direction: Direction | str = NONE,
    kind: MeasureKind | str = MeasureKind.PLACEMENT,
    events: Sequence[str] = (),
) -> Callable[[Callable[[Recording], Number]], Callable[[Recording], Number]]:
    """Add one measure; a decorator of the function that computes it.

    The function's docstring is the definition that reports show. `direction` is `lower`, `higher`
    or `none`: which way is better. `kind` is `placement` or `timing`. The value is None for a run
    that did not record all of `events`, such as `sched_wakeup`.

        @register_measure("exits", unit="tasks", events=["sched_process_exit"])
        def exits(run: Recording) -> int:
            '''How many tasks ended in the window.'''
            return run.events("sched_process_exit").height
    """

    def add(function: Callable[[Recording], Number]) -> Callable[[Recording], Number]:
        definition = " ".join((inspect.getdoc(function) or name).split())
        family = MeasureFamily(
            name, unit, Direction(direction), definition.replace("{", "{{").replace("}", "}}"),
            (trace(*events),) if events else (MeasureSource(SourceKind.TRACE),), MeasureKind(kind),
        )  # fmt: skip

        def compute(run: Recording) -> Iterable[Measure]:
            yield family.of(function(run) if run.has(*events) else None)

        group = MeasureGroup(name, (family,), compute)
        _refuse_taken(group)
        MEASURES.add(name, group, function)
        return function

    return add


def _refuse_taken(group: MeasureGroup) -> None:
    taken = {family.name for other in MEASURES.registered().values() for family in other.families}
    for family in group.families:
        if family.name in taken:
            raise UserError(f"there is a measure called {family.name!r} already")
