"""Time cut into slices of one length: what happened in each of them, summed up."""

from dataclasses import dataclass

import polars as pl

from numalab.analysis.findings import MAX_SLICES
from numalab.analysis.tables.window import Window

_LEAST_NS = 10_000_000  # shorter slices would show the clock tick, not the scheduler


@dataclass(frozen=True)
class Slices:
    """`count` slices of `step_ns` from `start_ns` on; the last one ends with the window."""

    start_ns: int
    end_ns: int
    step_ns: int
    count: int

    @property
    def ends_ms(self) -> tuple[float, ...]:
        """The end of each slice in milliseconds since the window's begin."""
        ends = [min((i + 1) * self.step_ns, self.end_ns - self.start_ns) for i in range(self.count)]
        return tuple(end / 1e6 for end in ends)

    def lengths_ns(self) -> list[int]:
        """Return the length of each slice; only the last one may be shorter."""
        whole = self.end_ns - self.start_ns
        return [min(self.step_ns, whole - i * self.step_ns) for i in range(self.count)]


def cut(window: Window, most: int = MAX_SLICES) -> Slices:
    """Cut a window into at most `most` slices of 10 ms or more."""
    step = max(_LEAST_NS, -(-window.length_ns // most), 1)
    return Slices(window.start_ns, window.end_ns, step, -(-window.length_ns // step))


def by_slice(spans: pl.DataFrame, slices: Slices, *keys: str, weight: str = "") -> pl.DataFrame:
    """Sum the lengths of spans (start_ns, end_ns) by `keys` and slice: keys, slice, ns.

    A span that crosses the end of a slice counts in each with its part. With `weight` a span counts
    that many times.
    """
    start, end = (pl.col(name) - slices.start_ns for name in ("start_ns", "end_ns"))
    step = slices.step_ns
    numbered = spans.select(
        *keys,
        *([weight] if weight else []),
        start=start,
        end=end,
        first=start // step,
        last=(end - 1) // step,
    ).filter(pl.col("end") > pl.col("start"))
    inside = numbered.filter(pl.col("first") == pl.col("last")).rename({"first": "slice"})
    across = (
        numbered.filter(pl.col("first") < pl.col("last"))
        .with_columns(slice=pl.int_ranges("first", pl.col("last") + 1))
        .explode("slice")
        .with_columns(
            start=pl.max_horizontal("start", pl.col("slice") * step),
            end=pl.min_horizontal("end", (pl.col("slice") + 1) * step),
        )
    )
    length = (pl.col("end") - pl.col("start")) * (pl.col(weight) if weight else 1)
    names = [*keys, "slice"]
    parts = [part.select(*names, ns=length) for part in (inside, across)]
    return pl.concat(parts).group_by(names).agg(pl.col("ns").sum())
