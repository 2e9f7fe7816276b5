"""A run of which nothing was traced, for what is read beside the trace."""

import polars as pl

from numalab.analysis.analyse import compute_measures
from numalab.analysis.measures.run_data import CommandData
from numalab.analysis.tables.event_table import SCHEMA
from numalab.measure import Measure


def measures_of(command: CommandData) -> dict[str, Measure]:
    """Return the measures of a run that only left this of its command."""
    found = compute_measures(pl.DataFrame(schema=SCHEMA), None, tasks=(), command=command)
    return {each.name: each for each in found}
