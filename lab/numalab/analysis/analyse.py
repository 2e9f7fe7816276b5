"""All measures and findings of one run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from numalab.analysis.findings import (
    MAX_DECISIONS,
    MAX_TASKS,
    Decision,
    Findings,
    Matrix,
    Residence,
    TimeSeries,
    Undone,
    Violation,
    Weight,
)
from numalab.analysis.measures.family import compute_measures
from numalab.analysis.measures.memory import memory_matrix, memory_series, task_memory
from numalab.analysis.series import (
    added_series,
    fault_nodes,
    fault_series,
    page_series,
    waiting_series,
)
from numalab.errors import shown
from numalab.measure import Measure
from numalab.recording.events import describe_filtered, describe_lacking
from numalab.recording.migrations import who_moved
from numalab.recording.recording import (
    LEVELS,
    NUMA_EVENTS,
    WAITING_EVENTS,
    RecordedMachine,
    Recording,
)
from numalab.recording.residence import CONVERGED_PERCENT, Resident, converged_ms
from numalab.recording.spans import RunTimeline
from numalab.recording.sums import MAX_LISTED
from numalab.recording.window import Slices, Window, clip

# How the names of measures of the tasks of interest begin, where they could be 0.
OF_TASKS = ("task_", "tasks_", "memory_lines")
_MOST_NAMES = 8  # of tasks or CPUs in a note


@dataclass(frozen=True)
class Analysis:
    """The measures, findings and timeline of a run.

    `timeline` is None without sched_switch, and for recordings longer than `ROWS`. `notes` name the
    markers of the window that are missing, measures that failed, events that lack fields
    (`lacking`), tasks that were not recorded, process ids of several tasks, and CPUs that were off
    line.
    """

    measures: tuple[Measure, ...]
    findings: Findings
    window: Window
    timeline: RunTimeline | None = field(default=None, compare=False)
    notes: tuple[str, ...] = ()
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def analyse(run: Recording) -> Analysis:
    """Compute every measure of a run, and its findings.

    A measure of an event that was not recorded whole, or lacks a field, is None, not 0; and so is
    one of the tasks of interest where none was recorded.
    """
    measures, notes = compute_measures(run)
    notes = (*describe_lacking(run.lacking), *describe_filtered(run.filtered), *notes)
    notes = (*(run.command.notes if run.command else ()), *notes)
    absent = run.absent_tasks
    if absent and len(absent) == len(run.tasks):
        measures = tuple(map(_without_tasks, measures))
        notes = (describe_absent(absent, run.task_names), *notes)
    if reused := len(run.sums.reused):
        notes = (*notes, f"process ids used again: {reused}; tasks with the same one count as one")
    notes = (*_describe_window(run.window), *notes, *_describe_offline(run))
    findings = collect_findings(run)
    timeline = run.sums.timeline if run.has("sched_switch") else None
    return Analysis(measures, findings, run.window, timeline, notes, run.lacking)


def _describe_window(window: Window) -> Iterator[str]:
    """Say which markers are missing: a full buffer overwrites its oldest events."""
    ends = {"begin": window.begun, "end": window.ended}
    if missing := [name for name, is_marked in ends.items() if not is_marked]:
        names, verbs = " nor ".join(missing), " and ".join(f"{name}s" for name in missing)
        yield f"no marker numalab: {names}; the recording {verbs} the window"


def _describe_offline(run: Recording) -> Iterator[str]:
    """Say which allowed CPUs were off line, as measures of each CPU count them all the time."""
    away = clip(run.offline.filter(pl.col("cpu").is_in(run.allowed)), run.window)
    length = pl.col("end_ns") - pl.col("start_ns")
    rows = away.group_by("cpu").agg(100 * length.sum() / run.window.length_ns).sort("cpu")
    listed = [f"CPU {cpu} ({percent:.0f} % of the window)" for cpu, percent in rows.iter_rows()]
    if listed:
        more = ", ..." if len(listed) > _MOST_NAMES else ""
        cpus = ", ".join(listed[:_MOST_NAMES]) + more
        yield f"off line, and idle in task_busy_share and queue_imbalance: {cpus}"


def describe_absent(tasks: Sequence[str], names: Sequence[str]) -> str:
    """Say that no task has these names, with some of the names that tasks have."""
    examples = ", ".join(map(shown, names[:_MOST_NAMES]))
    return f"no task is called {', '.join(map(shown, tasks))} (there are: {examples}, ...)"


def _without_tasks(measure: Measure) -> Measure:
    return replace(measure, value=None) if measure.name.startswith(OF_TASKS) else measure


def collect_findings(run: Recording) -> Findings:
    """Put together everything that `Findings` holds."""
    slices, start = run.slices, run.window.start_ns
    ran, waited = run.has("sched_switch"), run.has(*WAITING_EVENTS)
    listed = [
        describe(resident, run.machine.nodes, slices)
        for level in LEVELS
        for resident in run.residents[level][:MAX_TASKS]
        if ran and run.machine.nodes
    ]
    idle = run.sums.longest.head(MAX_LISTED if waited else 0)
    movers = run.movers_known
    return Findings(
        nodes=run.machine.nodes,
        length_ms=run.window.length_ns / 1e6,
        slice_ends_ms=slices.ends_ms,
        convergence_percent=CONVERGED_PERCENT,
        matrices=(*_matrices(run), *memory_matrix(run)),
        series=(*memory_series(run), *_series(run)),
        decisions=_decisions(run),
        decisions_in_all=run.decisions.height if run.has(*NUMA_EVENTS) else None,
        residence=tuple(listed),
        tasks_in_all=len(run.residents["task"]) if ran else 0,
        violations=tuple(
            Violation(cpu, (begin - start) / 1e6, (end - begin) / 1e6, busy, pid, comm or "")
            for cpu, begin, end, busy, pid, comm in idle.iter_rows()
        ),
        violations_in_all=run.sums.violations if waited else None,
        storms=run.storms[: MAX_LISTED if movers else 0],
        storms_in_all=len(run.storms) if movers else None,
        moves=who_moved(run.migrations, run.node_migrations) if movers else (),
        memory=task_memory(run),
        notes=_notes(run),
    )


def _matrices(run: Recording) -> tuple[Matrix, ...]:
    machine = run.machine
    moves, swaps = (run.numa_moves.filter(pl.col("kind") == kind) for kind in ("move", "swap"))
    tables = (
        ("moves", "Moves by NUMA balancing", moves, "sched_move_numa"),
        ("swaps", "Tasks swapped by NUMA balancing", swaps, "sched_swap_numa"),
        ("migrations", "Moves of any task between nodes", run.node_migrations,
         "sched_migrate_task"),
    )  # fmt: skip
    if not machine.nodes:
        return ()
    return tuple(
        matrix
        for name, title, moved, event in tables
        if run.has(event)
        for matrix in matrices(moved, name, title, machine)
    )


def _series(run: Recording) -> tuple[TimeSeries, ...]:
    slices, machine = run.slices, run.machine
    lengths = run.sums.known_ns(slices)

    def by_node(
        name: str, title: str, unit: str, table: pl.DataFrame, scale: float
    ) -> list[TimeSeries]:
        ns = {(node, number): value for node, number, value in table.iter_rows()}
        return [
            TimeSeries(
                name,
                title,
                unit,
                node,
                slices.ends_ms,
                tuple(
                    round(scale * ns.get((node, number), 0) / length / per_cpu, 4)
                    if length
                    else None
                    for number, length in enumerate(lengths)
                ),
            )
            for node in machine.nodes
            if (per_cpu := len(machine.cpus_of[node]) if scale == 100 else 1)
        ]

    series: list[TimeSeries] = []
    if run.has(*WAITING_EVENTS):
        series += by_node("runnable", "Runnable tasks by node", "tasks", run.sums.queued, 1)
    if run.has("sched_switch"):
        series += by_node("busy", "Busy share of the node's CPUs", "%", run.sums.busy, 100)
    if run.samples is not None:
        series += fault_series(run.samples.vmstat, run.window)
        series += page_series(run.samples.pages, run.window, machine.nodes)
        series += fault_nodes(run)
        series += waiting_series(run.samples.schedstat, run.window, machine)
        series += added_series(run.samples.added, run.window, machine.nodes)
    return tuple(series)


def _decisions(run: Recording) -> tuple[Decision, ...]:
    start, names = run.window.start_ns, run.sums.names
    taken_back = set(_carried_out(run).iter_rows())
    change = {
        (decision, pid): value
        for decision, pid, value in run.numa_moves.select("decision", "pid", "nearer").iter_rows()
    }
    decisions = []
    for number, row in enumerate(run.decisions.head(MAX_DECISIONS).iter_rows(named=True)):
        undone: Undone = "failed" if row["failed"] else ""
        moved = (row["pid"], row["to_cpu"]), (row["other_pid"], row["from_cpu"])
        if any((*task, row["time_ns"]) in taken_back for task in moved):
            undone = "moved back"
        decisions.append(
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
    return tuple(decisions)


def _carried_out(run: Recording) -> pl.DataFrame:
    """Return the moves that were taken back: pid, to_cpu, and the time of their decision."""
    back = run.node_migrations.filter((pl.col("mover") == "numa") & pl.col("back_by").is_not_null())
    announced = run.numa_moves.select("pid", "to_cpu", "time_ns", decided="time_ns").sort("time_ns")
    met = back.sort("time_ns").join_asof(
        announced,
        on="time_ns",
        by=["pid", "to_cpu"],
        check_sortedness=False,  # both are sorted; polars cannot tell with `by`
    )
    return met.select("pid", "to_cpu", "decided")


def _notes(run: Recording) -> tuple[str, ...]:
    notes = []
    if not run.machine.nodes:
        notes.append("nobody knows which node a CPU is on: nothing here is by node")
    if not run.has("sched_switch") and "sched_switch" not in {*run.lacking, *run.filtered}:
        notes.append("sched_switch was not recorded: nothing tells who ran where, or waited")
    elif not run.residents["process"]:
        notes.append(
            "which task belongs to which process is not known; `sample` with `tasks` tells it"
        )
    if not run.sums.follow_tasks(run.window):
        lost = 100 * run.sums.lost_ns / run.window.length_ns
        notes.append(f"events were lost in {lost:.0f} % of the window: residence lacks this time")
    if run.samples is None:
        notes.append("nothing was sampled: no locality over time, no distance to preferred nodes")
    if run.decisions.height > MAX_DECISIONS:
        notes.append(f"the first {MAX_DECISIONS} of {run.decisions.height} decisions are listed")
    return tuple(notes)


def matrices(
    moved: pl.DataFrame, name: str, title: str, machine: RecordedMachine
) -> tuple[Matrix, Matrix, Matrix]:
    """Count moves between nodes: plain, times the hops, and times the distance.

    `moved` has a row for each move, with from_node and to_node.
    """
    place = {node: at for at, node in enumerate(machine.nodes)}
    counts = [[0.0] * len(place) for _ in place]
    for a, b, number in moved.group_by("from_node", "to_node").agg(n=pl.len()).iter_rows():
        if a in place and b in place:
            counts[place[a]][place[b]] += number

    def weighted(by: Weight, weights: Sequence[Sequence[int]]) -> Matrix:
        cells = tuple(
            tuple(n * w for n, w in zip(row, of, strict=True))
            for row, of in zip(counts, weights, strict=True)
        )
        return Matrix(by.of(name), f"{title}, times their {by}", str(by), cells)

    return (
        Matrix(name, title, "moves", tuple(map(tuple, counts))),
        weighted(Weight.HOPS, machine.table(machine.hops)),
        weighted(Weight.DISTANCE, machine.table(machine.distance)),
    )


def describe(resident: Resident, nodes: Sequence[int], slices: Slices) -> Residence:
    """Turn times into shares for the report."""
    whole = int(resident.ns.sum())
    by_node = resident.ns.sum(axis=0)
    rows: list[tuple[float, ...] | None] = []
    for row in resident.ns:
        total = int(row.sum())
        rows.append(tuple(round(100 * int(n) / total, 1) for n in row) if total else None)
    last = np.flatnonzero(resident.ns.sum(axis=1))
    final = nodes[int(np.argmax(resident.ns[last[-1]]))] if last.size else None
    return Residence(
        resident.level,
        resident.id,
        resident.name,
        round(whole / 1e6, 3),
        tuple(round(100 * int(n) / whole, 2) if whole else 0.0 for n in by_node),
        tuple(rows),
        converged_ms(resident.ns, slices),
        final,
    )
