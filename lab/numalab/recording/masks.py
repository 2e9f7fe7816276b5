"""The CPUs that tasks may use: by time, from samples, or by the names of bound threads."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import polars as pl

from numalab.cpulist import Cpulists

_ALWAYS, _EVER = -(1 << 62), 1 << 62
_BOUND = {"pid": pl.Int32, "since_ns": pl.Int64, "mask": pl.UInt32}


@dataclass(frozen=True)
class Masks:
    """`sets` are sets of CPUs; `bound` says which of them a task may use from when on: pid,
    since_ns, mask (its place in `sets`). Tasks without a row may use the set that `named` has for
    their name, or else all CPUs.
    """

    sets: tuple[frozenset[int], ...] = ()
    bound: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=_BOUND))
    named: Mapping[str, int] = field(default_factory=dict)

    def split(
        self, table: pl.DataFrame, cpus: frozenset[int]
    ) -> Mapping[frozenset[int], pl.DataFrame]:
        """Cut a table (pid, comm, start_ns, end_ns) where masks change; return its rows by mask.

        Masks are cut to `cpus`. All of them are keys, and `cpus` is the first one.
        """
        sets = {cpus: [-1]}
        for number, mask in enumerate(self.sets):
            sets.setdefault(mask & cpus, []).append(number)
        numbered = self._numbered(table)
        return {
            mask: numbered.filter(pl.col("mask").is_in(numbers)).select(table.columns)
            for mask, numbers in sets.items()
        }

    def barred(self, table: pl.DataFrame, cpu: int, at_ns: int) -> pl.Series:
        """Return which rows of a table (pid, comm) are of tasks that may not use a CPU then."""
        last = self.bound.filter(pl.col("since_ns") <= at_ns).group_by("pid").last()
        masks = table.select("pid", named=self._by_name()).join(
            last, on="pid", how="left", maintain_order="left"
        )
        numbers = [number for number, mask in enumerate(self.sets) if cpu not in mask]
        return masks.select(pl.coalesce("mask", "named").is_in(numbers)).to_series()

    def _numbered(self, table: pl.DataFrame) -> pl.DataFrame:
        """Cut rows where the mask of their task changes; `mask` is -1 for all CPUs."""
        free = table.join(self.bound, on="pid", how="anti").with_columns(mask=self._by_name())
        if free.height == table.height:
            return free
        bound = self.bound.with_columns(
            until_ns=pl.col("since_ns").shift(-1, fill_value=_EVER).over("pid"),
            number=pl.int_range(pl.len(), dtype=pl.Int64),
        )
        cut = table.join(self.bound, on="pid", how="semi")
        for place, time in (("first", pl.col("start_ns")), ("last", pl.col("end_ns") - 1)):
            cut = (
                cut.with_columns(at=time)
                .sort("at")
                .join_asof(
                    bound.select("pid", at="since_ns", **{place: "number"}).sort("at"),
                    on="at",
                    by="pid",
                    check_sortedness=False,  # both are sorted; polars cannot tell with `by`
                )
            )
        pieces = (
            cut.with_columns(number=pl.int_ranges("first", pl.col("last") + 1))
            .explode("number")
            .join(bound.drop("pid"), on="number")
            .with_columns(
                pl.max_horizontal("start_ns", "since_ns").alias("start_ns"),
                pl.min_horizontal("end_ns", "until_ns").alias("end_ns"),
                mask=pl.col("mask").cast(pl.Int32),
            )
        )
        return pl.concat([free, pieces.select(free.columns)])

    def _by_name(self) -> pl.Expr:
        """The mask of a task's name, -1 for all CPUs."""
        return pl.col("comm").replace_strict(self.named, default=-1, return_dtype=pl.Int32)


def masks_by_time(
    sampled: pl.DataFrame, named: Mapping[str, frozenset[int]] | None = None
) -> Masks:
    """Return the masks of samples: pid, time_ns, cpus (a cpulist; others are left out).

    `named` are the CPUs of tasks that were not sampled, by their names.

    Between two samples that differ a task may use only what both have: nobody knows when its mask
    changed. The first sample holds for the time before it, too.
    """
    lists, of_text = Cpulists(), dict[str, frozenset[int]]()
    for text in sampled["cpus"].unique():
        with suppress(ValueError):  # a guest wrote it
            of_text[text] = frozenset(lists.parse(text))
    rows = (
        sampled.filter(pl.col("cpus").is_in(list(of_text)))
        .sort("pid", "time_ns", maintain_order=True)
        .with_columns(later=pl.col("cpus").shift(-1).over("pid").fill_null(pl.col("cpus")))
        .filter(pl.struct("pid", "cpus", "later").rle_id().diff().fill_null(1) != 0)
    )
    sets, room = dict[frozenset[int], int](), lists.room
    names = {name: sets.setdefault(cpus, len(sets)) for name, cpus in (named or {}).items()}
    bound: dict[int, list[tuple[int, int, int]]] = {}
    for pid, time, cpus, later in rows.select("pid", "time_ns", "cpus", "later").iter_rows():
        mine = bound.setdefault(pid, [])
        both = of_text[cpus] & of_text[later]
        steps = [(time, both)]
        if not mine:
            steps = [(_ALWAYS, of_text[cpus]), *(steps if cpus != later else [])]
        for since_ns, mask in steps:
            # Of many sets of many CPUs, which a guest wrote, those without room are empty.
            fits = mask in sets or (room := room - len(mask)) >= 0
            kept = mask if fits else frozenset[int]()
            mine.append((pid, since_ns, sets.setdefault(kept, len(sets))))
    flat = [row for mine in bound.values() for row in mine]
    return Masks(tuple(sets), pl.DataFrame(flat, schema=_BOUND, orient="row"), names)
