"""Sums of the memory model's counts over parts of the window.

The model counts in slices of 10 ms. A slice that lies partly in a part of the window counts in
proportion.
"""

from collections.abc import Sequence

import polars as pl

from numalab.recording.window import Slices

LINE_BYTES = 64


def sum_within(
    table: pl.DataFrame, start_ns: int, end_ns: int, keys: Sequence[str], values: Sequence[str]
) -> pl.DataFrame:
    """Sum `values` of slices (start_ns, end_ns) from `start_ns` to `end_ns`, by `keys`."""
    overlap = pl.min_horizontal("end_ns", pl.lit(end_ns)) - pl.max_horizontal(
        "start_ns", pl.lit(start_ns)
    )
    inside = table.with_columns(_weight=overlap / (pl.col("end_ns") - pl.col("start_ns"))).filter(
        pl.col("_weight") > 0
    )
    return _sum_weighted(inside, keys, values)


def sum_by_slice(
    table: pl.DataFrame, slices: Slices, keys: Sequence[str], values: Sequence[str]
) -> pl.DataFrame:
    """Sum `values` of slices of the model by `keys` and slice of the window: keys, slice, values.

    A slice of the window is no shorter than one of the model.
    """
    step = slices.step_ns
    begin, end = pl.col("start_ns") - slices.start_ns, pl.col("end_ns") - slices.start_ns
    first, last = begin // step, (end - 1) // step
    parts = []
    for slice_, lies in ((first, pl.lit(1) == 1), (last, last != first)):
        from_ns, to_ns = (
            slice_ * step,
            pl.min_horizontal((slice_ + 1) * step, pl.lit(slices.end_ns - slices.start_ns)),
        )
        overlap = pl.min_horizontal(end, to_ns) - pl.max_horizontal(begin, from_ns)
        parts.append(
            table.filter(lies).select(*keys, *values, slice=slice_, _weight=overlap / (end - begin))
        )
    numbered = pl.concat(parts).filter(
        (pl.col("_weight") > 0) & pl.col("slice").is_between(0, slices.count - 1)
    )
    return _sum_weighted(numbered, (*keys, "slice"), values)


def _sum_weighted(table: pl.DataFrame, keys: Sequence[str], values: Sequence[str]) -> pl.DataFrame:
    """Sum `values` by `keys` in the order of the rows.

    polars gives each of its threads a part of a group_by that only sums; float sums of parts would
    differ in their last digits with the number of threads. `cum_sum` is never split.
    """
    weighted = {value: pl.col(value) * pl.col("_weight") for value in values}
    if not keys:
        return table.rechunk().select(value.sum().alias(name) for name, value in weighted.items())
    return table.group_by(keys, maintain_order=True).agg(
        value.cum_sum().last().alias(name) for name, value in weighted.items()
    )


def with_locality(counts: pl.DataFrame, nodes: Sequence[int]) -> pl.DataFrame:
    """Add to counts with `node` (of the CPU) lines from each node (`from_<node>`), their sum
    (`lines`), and those from the CPU's own node (`local`).
    """
    table = counts.with_columns(
        (pl.col(f"memory_{node}") + pl.col(f"cache_{node}")).alias(f"from_{node}") for node in nodes
    )
    own = [pl.when(pl.col("node") == node).then(f"from_{node}").otherwise(0) for node in nodes]
    return table.with_columns(
        lines=pl.sum_horizontal(f"from_{node}" for node in nodes), local=pl.sum_horizontal(own)
    )
