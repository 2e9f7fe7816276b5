"""Recordings made up row by row, for tests of properties."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from numalab.hunt.case import machine_of
from numalab.hunt.loads.load_text import parse_loads
from numalab.hunt.recording import MS, LoadRecording
from numalab.recording.intervals import Spans
from numalab.recording.window import Window
from numalab.topology.predict.prediction import predict
from numalab.topology.sched_domains import CpuDomains

Row = tuple[int, str, int, float, float]


@dataclass(frozen=True, eq=False, kw_only=True)
class WrittenRecording(LoadRecording):
    """A recording whose spans and stays are given, not computed from events."""

    rows_of_spans: pl.DataFrame = field(default_factory=pl.DataFrame)
    rows_of_stays: pl.DataFrame = field(default_factory=pl.DataFrame)
    printed_domains: tuple[CpuDomains, ...] = ()

    @cached_property
    def spans(self) -> pl.DataFrame:
        return self.rows_of_spans

    @cached_property
    def stays(self) -> pl.DataFrame:
        return self.rows_of_stays

    @cached_property
    def domains(self) -> tuple[CpuDomains, ...]:
        return self.printed_domains or predict(self.topology).cpus

    @cached_property
    def ran_until_stopped(self) -> Mapping[int, Spans]:
        return self._by_task(self.rows_of_spans)

    @cached_property
    def ready_until_stopped(self) -> Mapping[int, Spans]:
        return self._by_task(self.rows_of_stays)


def recording(
    load: str, rows: Sequence[Row], *, cpus: Sequence[int] = (2, 2), threads: int = 1
) -> LoadRecording:
    """Return a load of one second as it would be recorded on nodes with so many CPUs each.

    A row is a task: its number, its name, and from when to when (in ms) it ran on a CPU; one whose
    name begins with `-` was runnable there all that time and ran for none of it.
    """
    (parsed,) = parse_loads(load)
    text = f'summary = "s"\nnodes = {len(cpus)}\ncpus = {list(cpus)}\nmemory_mib = 256\n'
    text += f"[cpu]\nsockets = {len(cpus)}\nthreads = {threads}\n" if threads > 1 else ""
    machine = machine_of(text + '[shape]\nkind = "full"\ndistances = [10, 20]\n')
    assert machine is not None
    schema = {"pid": pl.Int32, "comm": pl.String, "cpu": pl.Int16} | dict.fromkeys(
        ("start_ns", "end_ns"), pl.Int64
    )
    stays = pl.DataFrame(
        [
            (pid, comm.lstrip("-"), cpu, int(low * MS), int(high * MS))
            for pid, comm, cpu, low, high in rows
        ],
        schema=schema,
        orient="row",
    )
    ran = pl.Series([not comm.startswith("-") for _, comm, *_ in rows], dtype=pl.Boolean)
    return WrittenRecording(
        table=pl.DataFrame(),
        part=Window(0, 1000 * MS),
        topology=machine,
        number=0,
        load=parsed,
        rows_of_spans=stays.filter(ran),
        rows_of_stays=stays.with_columns(runnable=pl.lit(value=True)),
    )
