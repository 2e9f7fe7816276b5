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
    found: Residence


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
        ResidenceRow(first.variant, place, each)
        for place, first in report.first_findings()
        for each in first.findings.residence
    ]
    return sorted(rows, key=lambda row: order.index(row.found.level))


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
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _violations(run: RunFindings) -> list[Moment]:
    return [
        Moment(
            run.variant, run.run, each.at_ms, each.length_ms,
            f"CPU {each.cpu} idle, CPU {each.busy_cpu} overloaded"
            + (f"; {each.task}/{each.pid} waited there" if each.pid is not None else ""),
        )
        for each in run.findings.violations
    ]  # fmt: skip


def _storms(run: RunFindings) -> list[Moment]:
    return [
        Moment(
            run.variant, run.run, each.at_ms, each.length_ms,
            f"{each.moves} moves of {each.tasks} tasks to {'CPU' if each.to == 'cpu' else 'node'} "
            f"{each.id}",
        )
        for each in run.findings.storms
    ]  # fmt: skip


def _longest(moments: list[Moment]) -> tuple[Moment, ...]:
    return tuple(sorted(moments, key=lambda each: -each.length_ms)[:MOST_ROWS])


def _movers(report: CellReport) -> list[MoverRow]:
    rows = []
    for variant in report.variants:
        runs = [run.findings for run in report.findings if run.variant == variant.name]
        by_mover: dict[str, list[Moves]] = {}
        for run in runs:
            for each in run.moves:
                by_mover.setdefault(each.mover, []).append(each)
        for mover, found in by_mover.items():
            back: dict[str, float] = {}
            for each in found:
                for other, count in each.taken_back_by.items():
                    back[other] = back.get(other, 0) + count / len(runs)
            rows.append(
                MoverRow(
                    variant.name,
                    mover,
                    sum(each.moves for each in found) / len(runs),
                    sum(each.between_nodes for each in found) / len(runs),
                    tuple((other, count) for other, count in back.items() if count),
                )
            )
    return rows
