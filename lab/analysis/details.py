"""From tables to `Findings`: what a reader can look deeper into."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from lab.analysis.decisions import matrices
from lab.analysis.findings import (
    MAX_DECISIONS,
    MAX_LISTED,
    MAX_TASKS,
    Decision,
    Findings,
    Level,
    Matrix,
    Series,
    Violation,
)
from lab.analysis.ground import Ground
from lab.analysis.locality import fault_series, page_series
from lab.analysis.moves import storms, who_moved
from lab.analysis.residence import CONVERGED_PERCENT, Ranges, Resident, describe, residents
from lab.analysis.totals import Totals, Wanted
from lab.analysis.window import Window
from lab.capture.samples import Samples

# Of tasks first, because of them there are always some; a process or group needs its members known.
LEVELS: tuple[Level, ...] = ("task", "process", "group")


@dataclass(frozen=True)
class Details:
    """The tables of a run; see `analyse_run` for how each is made."""

    ground: Ground
    window: Window
    wanted: Wanted
    totals: Totals
    decided: pl.DataFrame
    done: pl.DataFrame
    moved: pl.DataFrame
    returned: pl.DataFrame
    residents: Mapping[str, tuple[Resident, ...]]
    samples: Samples | None


def known_residents(
    totals: Totals,
    wanted: Wanted,
    ground: Ground,
    samples: Samples | None,
    decided: pl.DataFrame,
) -> dict[str, tuple[Resident, ...]]:
    """Return the CPU time of tasks, and of processes and NUMA groups as far as members are known.

    sched_switch names no process. The decisions of NUMA balancing and the samples of tasks do; what
    is said last about a task's group counts.
    """
    process: dict[int, int] = {}
    group: dict[int, int] = {}
    tables = [decided.select("pid", "tgid", "ngid")]
    if samples is not None:
        tables.append(samples.tasks.select("pid", "tgid", "ngid"))
    for pid, tgid, ngid in pl.concat(tables).iter_rows():
        if tgid is not None and tgid > 0:
            process[pid] = tgid
        if ngid is not None and ngid > 0:
            group[pid] = ngid
    members = {"task": None, "process": process, "group": group}
    names = totals.names
    return {
        level: residents(
            totals.time,
            level,
            Ranges(ground.nodes, wanted.slices),
            names=names if level != "group" else {},
            member_of=members[level],
        )
        for level in LEVELS
    }


def describe_run(run: Details) -> Findings:
    """Put together everything that `Findings` holds."""
    slices, start = run.wanted.slices, run.window.start_ns
    listed = [
        describe(each, run.ground.nodes, slices)
        for level in LEVELS
        for each in run.residents[level][:MAX_TASKS]
    ]
    gusts = storms(run.moved, run.ground.cpu_counts, start) if run.ground.nodes else ()
    return Findings(
        nodes=run.ground.nodes,
        length_ms=run.window.length_ns / 1e6,
        slice_ends_ms=slices.ends_ms,
        convergence_percent=CONVERGED_PERCENT,
        matrices=_matrices(run),
        series=_series(run),
        decisions=_decisions(run),
        decisions_in_all=run.decided.height,
        residence=tuple(listed) if run.ground.nodes else (),
        tasks_in_all=len(run.residents["task"]),
        violations=tuple(
            Violation(cpu, (begin - start) / 1e6, (end - begin) / 1e6, busy, pid, comm or "")
            for cpu, begin, end, busy, pid, comm in run.totals.longest.head(MAX_LISTED).iter_rows()
        ),
        violations_in_all=run.totals.violations,
        storms=gusts[:MAX_LISTED],
        storms_in_all=len(gusts),
        moves=who_moved(run.moved, run.returned),
        notes=_notes(run),
    )


def _matrices(run: Details) -> tuple[Matrix, ...]:
    ground = run.ground
    tables = (
        ("moves", "Moves by NUMA balancing", run.done.filter(pl.col("kind") == "move")),
        ("swaps", "Tasks swapped by NUMA balancing", run.done.filter(pl.col("kind") == "swap")),
        ("migrations", "Moves of any task between nodes", run.returned),
    )
    if not ground.nodes:
        return ()
    return tuple(
        each for name, title, moved in tables for each in matrices(moved, name, title, ground)
    )


def _series(run: Details) -> tuple[Series, ...]:
    slices, ground = run.wanted.slices, run.ground
    lengths = slices.lengths_ns()

    def by_node(
        name: str, title: str, unit: str, table: pl.DataFrame, scale: float
    ) -> list[Series]:
        ns = {(node, number): value for node, number, value in table.iter_rows()}
        return [
            Series(
                name,
                title,
                unit,
                f"node {node}",
                slices.ends_ms,
                tuple(
                    round(scale * ns.get((node, number), 0) / length / per_cpu, 4)
                    for number, length in enumerate(lengths)
                ),
            )
            for node in ground.nodes
            if (per_cpu := len(ground.cpus_of[node]) if scale == 100 else 1)
        ]

    found = [
        *by_node("runnable", "Runnable tasks by node", "tasks", run.totals.queued, 1),
        *by_node("busy", "Busy share of the node's CPUs", "%", run.totals.busy, 100),
    ]
    if run.samples is not None:
        found += fault_series(run.samples.vmstat, run.window)
        found += page_series(run.samples.pages, run.window, ground.nodes)
    return tuple(found)


def _decisions(run: Details) -> tuple[Decision, ...]:
    start, names = run.window.start_ns, run.totals.names
    taken_back = {
        (pid, to_cpu, time): by for pid, to_cpu, time, by in _carried_out(run).iter_rows()
    }
    change = {
        (decision, pid): value
        for decision, pid, value in run.done.select("decision", "pid", "nearer").iter_rows()
    }
    found = []
    for number, row in enumerate(run.decided.head(MAX_DECISIONS).iter_rows(named=True)):
        undone = "failed" if row["failed"] else ""
        if (row["pid"], row["to_cpu"], row["time_ns"]) in taken_back:
            undone = "moved back"
        found.append(
            Decision(
                (row["time_ns"] - start) / 1e6,
                row["kind"],
                row["pid"],
                names.get(row["pid"], ""),
                row["from_cpu"],
                row["from_node"],
                row["to_cpu"],
                row["to_node"],
                row["other_pid"],
                names.get(row["other_pid"], ""),
                row["reason"],
                undone,
                change.get((number, row["pid"])),
            )
        )
    return tuple(found)


def _carried_out(run: Details) -> pl.DataFrame:
    """Return the decisions whose migration was taken back: pid, to_cpu, time_ns, back_by."""
    back = run.returned.filter((pl.col("mover") == "numa") & pl.col("back_by").is_not_null())
    announced = run.done.select("pid", "to_cpu", "time_ns", decided="time_ns").sort("time_ns")
    met = back.sort("time_ns").join_asof(
        announced,
        on="time_ns",
        by=["pid", "to_cpu"],
        check_sortedness=False,  # both are sorted; polars cannot tell with `by`
    )
    return met.select("pid", "to_cpu", "decided", "back_by")


def _notes(run: Details) -> tuple[str, ...]:
    notes = []
    if not run.ground.nodes:
        notes.append("nobody knows which node a CPU is on: nothing here is by node")
    if not run.residents["process"]:
        notes.append(
            "which task belongs to which process is not known; `sample` with `tasks` tells it"
        )
    if run.samples is None:
        notes.append("nothing was sampled: no locality over time, no distance to preferred nodes")
    if run.decided.height > MAX_DECISIONS:
        notes.append(f"the first {MAX_DECISIONS} of {run.decided.height} decisions are listed")
    return tuple(notes)
