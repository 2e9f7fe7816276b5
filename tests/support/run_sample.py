"""A run of which nothing was traced, for what is read beside the trace."""

import polars as pl

from numalab.analysis.analyse import analyse
from numalab.measure import Measure
from numalab.recording.events import SCHEMA
from numalab.recording.recording import CommandData, Recording


def measures_of(command: CommandData) -> dict[str, Measure]:
    """Return the measures of a run that only left this of its command."""
    measures = analyse(
        Recording(pl.DataFrame(schema=SCHEMA), None, tasks=(), command=command)
    ).measures
    return {measure.name: measure for measure in measures}
