"""A run of which nothing was traced, for what is read beside the trace."""

import polars as pl

from numalab.analysis.analyse import analyse_run
from numalab.analysis.measures.run_data import CommandData
from numalab.measure import Measure
from numalab.recording.events import SCHEMA


def measures_of(command: CommandData) -> dict[str, Measure]:
    """Return the measures of a run that only left this of its command."""
    found = analyse_run(pl.DataFrame(schema=SCHEMA), None, tasks=(), command=command).measures
    return {each.name: each for each in found}
