"""Recordings made up row by row, for tests of properties."""

from collections.abc import Sequence

import polars as pl

from numalab.hunt.case import machine_of
from numalab.hunt.load import parse_loads, part_of_task
from numalab.hunt.recording import MS, LoadRecording, LoadTask
from numalab.recording.stays import queue_lengths
from numalab.recording.window import Window

Row = tuple[int, str, int, float, float]


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
    all_cpus = [cpu for node in machine.nodes for cpu in node.cpus]
    schema = {"pid": pl.Int32, "comm": pl.String, "cpu": pl.Int16} | dict.fromkeys(
        ("start_ns", "end_ns"), pl.Int64
    )
    each = [(pid, comm.lstrip("-"), cpu, int(low * MS), int(high * MS))
            for pid, comm, cpu, low, high in rows]  # fmt: skip
    there = pl.DataFrame(each, schema=schema, orient="row")
    ran = there.filter(
        pl.Series([not comm.startswith("-") for _, comm, *_ in rows], dtype=pl.Boolean)
    )
    tasks = {}
    for pid, comm, *_ in each:
        found = part_of_task(comm)
        assert found is not None
        tasks[pid] = LoadTask(pid, *found)
    stayed = there.with_columns(runnable=pl.lit(True))
    window = Window(0, 1000 * MS)
    return LoadRecording(
        0, parsed, machine, window, tasks, ran, stayed,
        queue_lengths(stayed, window, all_cpus), pl.DataFrame(), {}, {},
    )  # fmt: skip
