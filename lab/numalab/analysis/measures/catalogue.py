"""The one registry of measures: those of this package, and those of plug-ins."""

from collections.abc import Iterator

from numalab.analysis.measures.family import MEASURES, MeasureFamily, MeasureGroup
from numalab.errors import UserError
from numalab.measure import Measure, MeasureInfo
from numalab.recording.recording import Recording


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


def explain(name: str) -> MeasureInfo:
    """Return what a measure means by its full name, its places filled in.

    A family of just this name goes before one with places. Raises UserError with the names there
    are for a name that no family gives.
    """
    every = sorted(families(), key=lambda family: family.name != name)
    for family in every:
        if info := family.explain(name):
            return info
    raise UserError(
        f"no measure is called {name!r}", choices=[family.name for family in families()]
    )


def compute_measures(run: Recording) -> tuple[Measure, ...]:
    """Compute every measure of a run."""
    return tuple(measure for group in groups() for measure in group.compute(run))
