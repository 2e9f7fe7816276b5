"""Who ran where, merged to what a drawing can show."""

import polars as pl

from lab.analysis.window import Window

_KEY = ["cpu", "node", "pid", "comm"]


def timeline(
    spans: pl.DataFrame, window: Window, *, columns: int = 1200, max_rows: int = 20_000
) -> pl.DataFrame:
    """Merge spans for a drawing that is `columns` wide: cpu, node, start_ns, end_ns, pid, comm.

    The window is cut in `columns` equal parts. Each part of a CPU shows the task that had most of
    it (the lower pid of two alike); idle and unknown time is a hole, and neighbouring parts of one
    task are one row. There are at most `max_rows` rows: where there would be more, the parts are
    made twice as long until there are not. `spans` is what `occupancy.spans` gave.
    """
    merged = _merge(spans, window, columns)
    while merged.height > max_rows and columns > 1:
        columns = (columns + 1) // 2
        merged = _merge(spans, window, columns)
    return merged.head(max_rows)


def _merge(spans: pl.DataFrame, window: Window, columns: int) -> pl.DataFrame:
    part = max(1, -(-window.length_ns // columns))
    since = pl.col("start_ns") - window.start_ns
    until = pl.col("end_ns") - window.start_ns
    parts = spans.with_columns(
        part=pl.int_ranges(since // part, (until + part - 1) // part)
    ).explode("part", empty_as_null=False, keep_nulls=False)
    left = window.start_ns + pl.col("part") * part
    shown = (
        parts.with_columns(
            had=pl.min_horizontal("end_ns", left + part) - pl.max_horizontal("start_ns", left)
        )
        .group_by(*_KEY, "part")
        .agg(pl.col("had").sum())
        .sort(["cpu", "part", "had", "pid"], descending=[False, False, True, False])
        .group_by("cpu", "part", maintain_order=True)
        .first()
    )
    runs = shown.with_columns(
        new=(
            (pl.col("part") != pl.col("part").shift(1) + 1)
            | pl.col("pid").ne_missing(pl.col("pid").shift(1))
            | pl.col("comm").ne_missing(pl.col("comm").shift(1))
        )
        .over("cpu")
        .fill_null(value=True)
    ).with_columns(run=pl.col("new").cum_sum().over("cpu"))
    return (
        runs.filter(pl.col("pid").is_not_null() & (pl.col("pid") != 0))
        .group_by("cpu", "run", maintain_order=True)
        .agg(
            pl.col("node").first(),
            start_ns=window.start_ns + pl.col("part").first() * part,
            end_ns=(window.start_ns + (pl.col("part").last() + 1) * part).clip(
                upper_bound=window.end_ns
            ),
            pid=pl.col("pid").first(),
            comm=pl.col("comm").first(),
        )
        .select("cpu", "node", "start_ns", "end_ns", "pid", "comm")
    )
