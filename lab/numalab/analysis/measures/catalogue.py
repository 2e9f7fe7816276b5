"""The one registry of measures: those of this package, and those of plug-ins."""

from collections.abc import Iterator

from numalab.analysis.measures import (
    command,
    convergence,
    counters,
    locality,
    memory,
    migrations,
    numa_balancing,
    placement,
    task_faults,
    work_conservation,
)
from numalab.analysis.measures.family import MeasureFamily, MeasureGroup
from numalab.errors import UserError
from numalab.measure import Measure, MeasureInfo
from numalab.plugins import Registry
from numalab.recording.recording import Recording

# In the order in which the measures of a run are stored and shown.
BUILT_IN = (
    placement.GROUP,
    convergence.GROUP,
    work_conservation.GROUP,
    migrations.GROUP,
    numa_balancing.GROUP,
    task_faults.GROUP,
    locality.GROUP,
    memory.GROUP,
    *counters.GROUPS,
    *command.GROUPS,
)
_REGISTRY: Registry[MeasureGroup] = Registry("group of measures")
for _group in BUILT_IN:
    _REGISTRY.add(_group.name, _group)


def register(group: MeasureGroup) -> None:
    """Add measures, as a plug-in does. Raises UserError for a name that is taken."""
    known = {family.name for family in families()}
    for family in group.families:
        if family.name in known:
            raise UserError(f"there is a measure called {family.name!r} already")
    _REGISTRY.add(group.name, group)


def groups() -> tuple[MeasureGroup, ...]:
    """Return all measures by group, those of plug-ins last."""
    return tuple(_REGISTRY.all().values())


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
