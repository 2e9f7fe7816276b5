"""Table rows: the nodes of tasks, processes and NUMA groups over time, and the balance of CPUs."""

from collections.abc import Iterable
from dataclasses import dataclass

from numalab.analysis.findings import Residence
from numalab.recording.migrations import Moves
from numalab.report.document import CellReport, RunFindings

MOST_ROWS = 10  # of a list of moments, the longest ones


@dataclass(frozen=True)
class ResidenceRow:
    """The time of one task, process or group on each node; `place` is its variant's index."""

    variant: str
    place: int
    residence: Residence


@dataclass(frozen=True)
class MoverRow:
    """The mean number of moves of tasks by one mover in a run of a variant."""

    variant: str
    mover: str
    moves: float
    between_nodes: float
    taken_back: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Moment:
    """An event of a run that lasted: its time, its length, and a description."""

    variant: str
    run: str
    at_ms: float
    length_ms: float
    what: str


@dataclass(frozen=True)
class Balance:
    """The movers of tasks, idle CPUs beside overloaded ones, and storms of moves.

    The counts are of all runs together, None where the events were not recorded; only the longest
    moments are listed.
    """

    movers: tuple[MoverRow, ...]
    violations: tuple[Moment, ...]
    violation_count: int | None
    storms: tuple[Moment, ...]
    storm_count: int | None
    notes: tuple[str, ...]


def residence_rows(report: CellReport) -> list[ResidenceRow]:
    """Return the residence in the first run of each variant: groups, processes, then tasks."""
    order = ("group", "process", "task")
    rows = [
        ResidenceRow(first.variant, place, residence)
        for place, first in report.first_findings()
        for residence in first.findings.residence
    ]
    return sorted(rows, key=lambda row: order.index(row.residence.level))


def balance(report: CellReport) -> Balance | None:
    """Return the balance of tasks over CPUs in all runs; None when no run was analysed."""
    runs = report.findings
    if not runs:
        return None
    notes = dict.fromkeys(f"{run.run}: {note}" for run in runs for note in run.findings.notes)
    return Balance(
        movers=tuple(_movers(report)),
        violations=_longest(moment for run in runs for moment in _violations(run)),
        violation_count=_sum(run.findings.violations_in_all for run in runs),
        storms=_longest(moment for run in runs for moment in _storms(run)),
        storm_count=_sum(run.findings.storms_in_all for run in runs),
        notes=tuple(notes),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    recorded = [count for count in counts if count is not None]
    return sum(recorded) if recorded else None


def _violations(run: RunFindings) -> Iterable[Moment]:
    for idle in run.findings.violations:
        text = f"CPU {idle.cpu} idle, CPU {idle.busy_cpu} overloaded"
        if idle.pid is not None:
            text += f"; {idle.task}/{idle.pid} waited there"
        yield Moment(run.variant, run.run, idle.at_ms, idle.length_ms, text)


def _storms(run: RunFindings) -> Iterable[Moment]:
    for storm in run.findings.storms:
        target = f"{'CPU' if storm.to == 'cpu' else 'node'} {storm.id}"
        text = f"{storm.moves} moves of {storm.tasks} tasks to {target}"
        yield Moment(run.variant, run.run, storm.at_ms, storm.length_ms, text)


def _longest(moments: Iterable[Moment]) -> tuple[Moment, ...]:
    return tuple(sorted(moments, key=lambda moment: -moment.length_ms)[:MOST_ROWS])


def _movers(report: CellReport) -> Iterable[MoverRow]:
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
            yield MoverRow(
                variant.name,
                mover,
                sum(moves.moves for moves in moves_of) / len(runs),
                sum(moves.between_nodes for moves in moves_of) / len(runs),
                tuple((other, count) for other, count in back.items() if count),
            )
