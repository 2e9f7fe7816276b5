"""The rows of `make bench`: names, units and targets, all of them here."""

from dataclasses import dataclass
from enum import IntEnum


class Form(IntEnum):
    """How much is measured; each form has all rows of the forms before it."""

    SHORT = 0  # `make bench-short`: every row once and small, at most 3 minutes
    LONG = 1  # `make bench`: what the table shows
    SUITE = 2  # `make bench-suite`: `make check test` too


@dataclass(frozen=True)
class Row:
    """One line of the table.

    `key` names the row in speed.jsonl for good. `reference` runs beside it; the ratio is ours in
    multiples of it. The target bounds the ratio (`of_ratio`) or ours: at most, or at least.
    """

    key: str
    what: str
    unit: str = "s"
    reference: str = ""
    most: float | None = None
    least: float | None = None
    of_ratio: bool = False

    @property
    def label(self) -> str:
        """The row in plain text, with its reference if the target is about both."""
        text = f"{self.what} / {self.reference}" if self.of_ratio else self.what
        return text.replace("`", "")

    @property
    def target(self) -> str:
        """The target as text; empty if there is none."""
        unit = "" if self.of_ratio else f" {self.unit}"
        if self.most is not None:
            return f"<= {self.most:g}{unit}"
        return "" if self.least is None else f">= {self.least:g}{unit}"

    def share(self, figure: "Figure") -> float | None:
        """Return the figure in multiples of the target; above 1 misses it, also if it is a least.

        None without a target, or without the reference that the target is about.
        """
        value = figure.ratio if self.of_ratio else figure.ours
        if not value:
            return None
        if self.most is not None:
            return value / self.most
        return None if self.least is None else self.least / value


@dataclass(frozen=True)
class Figure:
    """A measured row, in its unit."""

    key: str
    ours: float
    reference: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours in multiples of the reference."""
        return self.ours / self.reference if self.reference else None


ROWS = (
    Row("boot-tcg", "`numalab boot ring-4`, `tcg`, start to answer", most=0.8),
    Row(
        "boot-tcg-cpu", "CPU time of a boot in `tcg`", reference="virtme-ng",
        most=0.35, of_ratio=True,
    ),
    Row("boot-icount", "`numalab boot ring-4`, `icount`, start to answer", most=0.8),
    Row("boot-icount-cpu", "CPU time of a boot in `icount`"),
    Row("boot-tcg-cold", "a cold boot in `tcg`", reference="from a saved guest"),
    Row("boot-tcg-cold-cpu", "CPU time of a cold boot in `tcg`", reference="from a saved guest"),
    Row("boot-icount-cold", "a cold boot in `icount`", reference="from a saved guest"),
    Row(
        "boot-icount-cold-cpu", "CPU time of a cold boot in `icount`",
        reference="from a saved guest",
    ),
    Row("boot-python-cpu", "CPU time of a boot outside of QEMU", reference="`python -c pass`"),
    Row(
        "boot-init", "start to the guest's init", reference="the same QEMU by hand",
        most=1.1, of_ratio=True,
    ),
    Row("outside", "a run outside of the guest: prepare, start, collect, decode", most=1.5),
    Row("small-guests", "small guests one after the other", "per second", least=2.0),
    Row("small-guests-cpu", "CPU time of a small guest outside of QEMU"),
    Row("hunt-load-cpu", "CPU time of a load in a hunt", most=0.6),
    Row("run-cpu", "CPU time of a run of group-construction", most=2.5),
    Row("jobs-2", "runs with `--jobs 1`", reference="`--jobs 2`", least=1.7, of_ratio=True),
    Row("jobs-4", "runs with `--jobs 1`", reference="`--jobs 4`", least=3.6, of_ratio=True),
    Row("help", "`numalab --help`", reference="`python -c pass`", most=0.15),
    Row("show", "`numalab topology show ring-4`", reference="`python -c pass`", most=0.5),
    Row("site", "`make site`", most=30.0),
    Row(
        "decode", "decode a recording", reference="`trace-cmd report`", most=0.25, of_ratio=True
    ),
    Row("decode-cpu", "CPU time of decoding", reference="`trace-cmd report`"),
    Row("decode-start", "CPU time to import the decoder", reference="`python -c pass`"),
    Row("measures", "take the measures and findings of the recording"),
    Row("memory", "memory at the peak of decoding and measures", "MiB", most=1024),
    Row("long", "`numalab trace` of 100 million events", "min"),
    Row("long-memory", "memory of `numalab trace` of 100 million events", "MiB", most=1024),
    Row("list", "list 10,000 runs", most=1.0),
    Row("query", "a query over the measures of 10,000 runs", most=2.0),
    Row("report", "report of 30 runs with 1,000,000 events", most=20.0),
    Row("report-memory", "memory of that report", "MiB", most=1024),
    Row("report-ready", "page of that report ready in Chromium", most=2.0),
    Row("predict", "predict 64 nodes with 256 CPUs, the slowest shape", most=2.0),
    Row("predict-memory", "memory of that prediction", "MiB", most=300),
    Row(
        "timed-8", "CPU time of loops on 8 vCPUs, `timed`", reference="`icount`",
        most=1.1, of_ratio=True,
    ),
    Row("timed-model-8", "the same with the model, 8 vCPUs", reference="`icount`"),
    Row(
        "timed-16", "CPU time of loops on 16 vCPUs, `timed`",
        reference="`icount`", most=1.1, of_ratio=True,
    ),
    Row("timed-model-16", "the same with the model, 16 vCPUs", reference="`icount`"),
    Row("suite", "`make check test`, warm caches, two cores", "min", most=12.0),
    Row("suite-bare", "`make check test`, bare caches, two cores", "min", most=30.0),
)  # fmt: skip
BY_KEY = {row.key: row for row in ROWS}
