"""Where tasks, processes and NUMA groups stayed, and how evenly CPUs were used, as table rows."""

from collections.abc import Iterable
from dataclasses import dataclass

from numalab.analysis.findings import Residence
from numalab.recording.migrations import Moves
from numalab.report.document import CellReport, RunFindings

MOST_ROWS = 10  # of a list of moments, the longest ones


@dataclass(frozen=True)
class ResidenceRow:
    """Where one task, process or group of a run was, by node; `place` is its variant's."""

    variant: str
    place: int
    residence: Residence


@dataclass(frozen=True)
class MoverRow:
    """How often one mover moved tasks in the runs of a variant, in the mean of a run."""

    variant: str
    mover: str
    moves: float
    between_nodes: float
    taken_back: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Moment:
    """Something that went on for a while in a run: when, how long, and what."""

    variant: str
    run: str
    at_ms: float
    length_ms: float
    what: str


@dataclass(frozen=True)
class Balance:
    """Who moved tasks, when CPUs were idle beside overloaded ones, and storms of moves.

    The counts are of all runs together, None where no recording tells; of the moments only the
    longest are listed.
    """

    movers: tuple[MoverRow, ...]
    violations: tuple[Moment, ...]
    violation_count: int | None
    storms: tuple[Moment, ...]
    storm_count: int | None
    notes: tuple[str, ...]


def residence_rows(report: CellReport) -> list[ResidenceRow]:
    """Return where everything stayed in one run of each variant: groups, processes, then tasks."""
    order = ("group", "process", "task")
    rows = [
        ResidenceRow(first.variant, place, residence)
        for place, first in report.first_findings()
        for residence in first.findings.residence
    ]
    return sorted(rows, key=lambda row: order.index(row.residence.level))


def balance(report: CellReport) -> Balance | None:
    """Return how tasks were balanced over CPUs in all runs; None when no run was analysed."""
    if not report.findings:
        return None
    violations, storms = [], []
    for run in report.findings:
        violations += _violations(run)
        storms += _storms(run)
    notes = dict.fromkeys(
        f"{run.run}: {note}" for run in report.findings for note in run.findings.notes
    )
    return Balance(
        movers=tuple(_movers(report)),
        violations=_longest(violations),
        violation_count=_sum(run.findings.violations_in_all for run in report.findings),
        storms=_longest(storms),
        storm_count=_sum(run.findings.storms_in_all for run in report.findings),
        notes=tuple(notes),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    recorded = [count for count in counts if count is not None]
    return sum(recorded) if recorded else None


def _violations(run: RunFindings) -> list[Moment]:
    return [
        Moment(
            run.variant, run.run, idle.at_ms, idle.length_ms,
            f"CPU {idle.cpu} idle, CPU {idle.busy_cpu} overloaded"
            + (f"; {idle.task}/{idle.pid} waited there" if idle.pid is not None else ""),
        )
        for idle in run.findings.violations
    ]  # fmt: skip


def _storms(run: RunFindings) -> list[Moment]:
    return [
        Moment(
            run.variant, run.run, storm.at_ms, storm.length_ms,
            f"{storm.moves} moves of {storm.tasks} tasks to "
            f"{'CPU' if storm.to == 'cpu' else 'node'} {storm.id}",
        )
        for storm in run.findings.storms
    ]  # fmt: skip


def _longest(moments: list[Moment]) -> tuple[Moment, ...]:
    return tuple(sorted(moments, key=lambda moment: -moment.length_ms)[:MOST_ROWS])


def _movers(report: CellReport) -> list[MoverRow]:
    rows = []
    for variant in report.variants:
        runs = [run.findings for run in report.findings if run.variant == variant.name]
        by_mover: dict[str, list[Moves]] = {}
        for run in runs:
            for moves in run.moves:
                by_mover.setdefault(moves.mover, []).append(moves)
        for mover, residence in by_mover.items():
            back: dict[str, float] = {}
            for moves in residence:
                for other, count in moves.taken_back_by.items():
                    back[other] = back.get(other, 0) + count / len(runs)
            rows.append(
                MoverRow(
                    variant.name,
                    mover,
                    sum(moves.moves for moves in residence) / len(runs),
                    sum(moves.between_nodes for moves in residence) / len(runs),
                    tuple((other, count) for other, count in back.items() if count),
                )
            )
    return rows
