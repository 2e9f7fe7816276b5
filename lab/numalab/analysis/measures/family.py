"""The registry of measures: families of measures, and groups that one function computes."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from numalab.errors import LabError, UserError
from numalab.measure import (
    Direction,
    Measure,
    MeasureInfo,
    MeasureKind,
    MeasureSource,
    Number,
    SourceKind,
)
from numalab.plugins import Registry, explain_fault
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
    mean that something never happened, although all was recorded. With `any_event` one of the
    events of its sources is enough.
    """

    name: str
    unit: str
    direction: Direction
    definition: str
    sources: tuple[MeasureSource, ...]
    kind: MeasureKind = MeasureKind.PLACEMENT
    needs_nodes: bool = False
    may_be_never: bool = False
    any_event: bool = False

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
        place = r"[\w.-]+" if "." in self.name else r"\w+"  # of a scheduler's statistics
        pattern = "".join(
            re.escape(part) if i % 2 == 0 else f"(?P<{part}>{place})"
            for i, part in enumerate(parts)
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
    first=("placement", "work_conservation", "migrations", "numa_balancing", "memory", "command"),
)


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
    or `none`: which way is better. `kind` is `placement`, `timing`, or `identifier` for a figure
    that is a name, such as a CPU number, and is not compared. The value is None for a run that did
    not record all of `events`, such as `sched_wakeup`.

        @register_measure("exits", unit="tasks", events=["sched_process_exit"])
        def exits(run: Recording) -> int:
            '''How many tasks ended in the window.'''
            return run.events("sched_process_exit").height
    """

    if not re.fullmatch(r"[A-Za-z]\w{0,63}", name, re.ASCII):
        raise UserError(f"{name[:80]!r} is no name of a measure: use letters, digits and _")
    if kind == MeasureKind.IDENTIFIER and direction != NONE:
        raise UserError(f"{name} is an identifier and needs direction='none': no name is better")

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


def groups() -> tuple[MeasureGroup, ...]:
    """Return all measures by group, those of plug-ins last."""
    return tuple(MEASURES.all().values())


def families() -> Iterator[MeasureFamily]:
    """Yield all families of measures."""
    for group in groups():
        yield from group.families


def families_of_nodes() -> tuple[str, ...]:
    """Return the names of what cannot be measured without knowing which node a CPU is on."""
    return tuple(family.name for family in families() if family.needs_nodes)


def families_that_may_be_never() -> tuple[str, ...]:
    """Return the names of those whose None may say that something never happened."""
    return tuple(family.name for family in families() if family.may_be_never)


def family_of(name: str) -> MeasureFamily | None:
    """Return the family of a measure; one of just this name goes before one with places."""
    every = sorted(families(), key=lambda family: family.name != name)
    return next((family for family in every if family.explain(name)), None)


def explain(name: str) -> MeasureInfo:
    """Return what a measure means by its full name, its places filled in.

    Raises UserError with the names there are for a name that no family gives.
    """
    family = family_of(name)
    if family is not None and (info := family.explain(name)):
        return info
    raise UserError(
        f"no measure is called {name!r}", choices=[family.name for family in families()]
    )


def compute_measures(run: Recording) -> tuple[tuple[Measure, ...], tuple[str, ...]]:
    """Compute every measure of a run; also return a note for each group that failed.

    A measure of a plug-in that fails has no value. It does not fail the run.
    """
    measures: list[Measure] = []
    notes: list[str] = []
    for group in groups():
        try:
            measures += compute_group(group, run)
        except LabError as error:
            if MEASURES.is_built_in(group.name):
                raise
            notes.append(str(error))
            measures += [family.of(None) for family in group.families if "{" not in family.name]
    return tuple(measures), tuple(notes)


def compute_group(group: MeasureGroup, run: Recording) -> list[Measure]:
    """Compute the measures of a group. Raises UserError where a plug-in fails."""
    try:
        measures: list[Any] = list(group.compute(run))
    except (LabError, MemoryError):
        raise
    # A plug-in may raise anything, and polars panics at some events.
    except (Exception, SystemExit, pl.exceptions.PanicException) as error:
        if MEASURES.is_built_in(group.name):
            raise
        fault = explain_fault(error)
        reason = fault or f"{type(error).__name__}: {str(error)[:200]}"
        file = None if fault else MEASURES.file(group.name)  # which the fault names
        raise UserError(f"the measure {group.name!r} failed: {reason}", file=file) from error
    for measure in measures:
        value = measure.value if isinstance(measure, Measure) else measure
        if not isinstance(measure, Measure) or not _is_value(value):
            shown = f"{type(value).__name__} {_text(value)!r}"
            reason = f"the measure {group.name!r} gave {shown}, not a finite number or None"
            raise UserError(reason, file=MEASURES.file(group.name))
    return measures


def _is_value(value: object) -> bool:
    """Whether it is None, or a number that a float can hold."""
    if value is None:
        return True
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of more than 1024 bits
        return False


def _text(value: object) -> str:
    try:
        return str(value)[:60]
    except ValueError:  # an integer of more than 4300 digits (int.__str__)
        return "of many digits"
