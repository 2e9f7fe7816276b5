"""Table rows: the nodes of tasks, processes and NUMA groups over time, and the balance of CPUs."""

from collections.abc import Iterable
from typing import Any

from numalab.recording.migrations import Moves
from numalab.report.document import CellReport, RunFindings

MOST_ROWS = 10  # of a list of moments, the longest ones
Json = dict[str, Any]


def residence_rows(report: CellReport) -> list[Json]:
    """Return the residence in the first run of each variant: groups, processes, then tasks."""
    order = ("group", "process", "task")
    rows = [
        {"variant": first.variant, "place": place, "residence": residence}
        for place, first in report.first_findings()
        for residence in first.findings.residence
    ]
    return sorted(rows, key=lambda row: order.index(row["residence"].level))


def balance(report: CellReport) -> Json | None:
    """Return the balance of tasks over CPUs in all runs; None when no run was analysed.

    The counts of violations and storms are of all runs together, None where the events were not
    recorded; only the longest are listed.
    """
    runs = report.findings
    if not runs:
        return None
    notes = dict.fromkeys(f"{run.run}: {note}" for run in runs for note in run.findings.notes)
    return {
        "movers": list(_movers(report)),
        "violations": _longest(moment for run in runs for moment in _violations(run)),
        "violation_count": _sum(run.findings.violations_in_all for run in runs),
        "storms": _longest(moment for run in runs for moment in _storms(run)),
        "storm_count": _sum(run.findings.storms_in_all for run in runs),
        "notes": list(notes),
    }


def _sum(counts: Iterable[int | None]) -> int | None:
    recorded = [count for count in counts if count is not None]
    return sum(recorded) if recorded else None


def _violations(run: RunFindings) -> Iterable[Json]:
    for idle in run.findings.violations:
        text = f"CPU {idle.cpu} idle, CPU {idle.busy_cpu} overloaded"
        if idle.pid is not None:
            text += f"; {idle.task}/{idle.pid} waited there"
        yield {"run": run, "moment": idle, "text": text}


def _storms(run: RunFindings) -> Iterable[Json]:
    for storm in run.findings.storms:
        target = f"{'CPU' if storm.to == 'cpu' else 'node'} {storm.id}"
        text = f"{storm.moves} moves of {storm.tasks} tasks to {target}"
        yield {"run": run, "moment": storm, "text": text}


def _longest(rows: Iterable[Json]) -> list[Json]:
    return sorted(rows, key=lambda row: -row["moment"].length_ms)[:MOST_ROWS]


def _movers(report: CellReport) -> Iterable[Json]:
    """Yield the mean number of moves of tasks by each mover in a run of each variant."""
    for variant in report.variants:
        runs = [run.findings for run in report.findings if run.variant == variant.name]
        by_mover: dict[str, list[Moves]] = {}
        for moves in (moves for run in runs for moves in run.moves):
            by_mover.setdefault(moves.mover, []).append(moves)
        for mover, moves_of in by_mover.items():
            back: dict[str, float] = {}
            for moves in moves_of:
                for other, count in moves.taken_back_by.items():
                    back[other] = back.get(other, 0) + count / len(runs)
            yield {
                "variant": variant.name,
                "mover": mover,
                "moves": sum(moves.moves for moves in moves_of) / len(runs),
                "between_nodes": sum(moves.between_nodes for moves in moves_of) / len(runs),
                "taken_back": {other: count for other, count in back.items() if count},
            }
