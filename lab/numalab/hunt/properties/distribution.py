"""Over how many nodes and CPUs a load is distributed, beside the reference kernel.

The number is the effective one, 1 / sum of squared shares (E. H. Simpson, Nature 163, 1949, 688):
n for n equal shares, 1 if one node has all.
"""

import polars as pl

from numalab.hunt.compare.quantity import Quantity, register_difference
from numalab.hunt.recording import MS, LoadRecording

_FEWEST = 20  # children, for shares to mean something
_LEAST_NS = 50 * MS  # of CPU time


@register_difference(Quantity("effective-nodes", "nodes", 0.2, apart=1.6))
def effective_nodes(run: LoadRecording) -> float | None:
    """Over how many nodes the CPU time of the load is distributed, by Simpson's index."""
    return _effective(run, _times(run), nodes=True)


@register_difference(Quantity("effective-cpus", "CPUs", 0.5, apart=1.3))
def effective_cpus(run: LoadRecording) -> float | None:
    """Over how many CPUs the CPU time of the load is distributed, by Simpson's index."""
    return _effective(run, _times(run), nodes=False)


@register_difference(Quantity("effective-nodes-of-children", "nodes", 0.2, apart=1.7))
def effective_nodes_of_children(run: LoadRecording) -> float | None:
    """Over how many nodes the first turns of children are distributed, by Simpson's index."""
    children = [pid for pid, task in run.load_tasks.items() if task.kind == "child"]
    if len(children) < _FEWEST:
        return None
    spans = run.load_spans.filter(pl.col("pid").is_in(children)).sort("start_ns")
    first = spans.unique("pid", keep="first").select("cpu", amount=pl.lit(1.0))
    return _effective(run, first, nodes=True)


def _times(run: LoadRecording) -> pl.DataFrame:
    length = (pl.col("end_ns") - pl.col("start_ns")).cast(pl.Float64)
    times = run.load_spans.select("cpu", amount=length)
    return times if times["amount"].sum() >= _LEAST_NS else times.clear()


def _effective(run: LoadRecording, table: pl.DataFrame, *, nodes: bool) -> float | None:
    """Return the effective number of nodes or CPUs of amounts by CPU; None without any."""
    places = run.places(nodes=nodes)
    if table.is_empty() or len(set(places.values())) < 2:
        return None
    where = pl.col("cpu").replace_strict(places, default=-1, return_dtype=pl.Int64)
    sums = table.group_by(where).agg(pl.col("amount").sum())["amount"].to_list()
    return float(sum(sums) ** 2 / sum(amount**2 for amount in sums))
