"""Synthetic findings of the sample study's runs, as the analysis of real runs gives them."""

from collections.abc import Sequence
from dataclasses import replace

from numalab.analysis.findings import Decision, Findings, Matrix, Residence, TimeSeries, Violation
from numalab.recording.migrations import Moves, Storm

NODES = (0, 1, 2, 3)
SLICES = tuple(250.0 * (step + 1) for step in range(20))


def findings(variant: str, seed: int) -> Findings:
    """The findings of one run: before, tasks stay on node 1; after, half of them go to node 3."""
    moved = 3 + seed if variant == "after" else 0
    return Findings(
        nodes=NODES,
        length_ms=5000.0,
        slice_ends_ms=SLICES,
        convergence_percent=80.0,
        matrices=_matrices(moved, seed),
        series=_series(variant, seed),
        decisions=_decisions(moved),
        decisions_in_all=moved + 2,
        residence=_residence(variant),
        tasks_in_all=8,
        violations=(Violation(6, 120.5, 4210.0, 2, 101, "hog"),) if variant == "before" else (),
        violations_in_all=40 if variant == "before" else 0,
        storms=(Storm("node", 3, 130.0, 12.5, moved, moved),) if moved else (),
        storms_in_all=1 if moved else 0,
        moves=(
            Moves("numa", moved, moved, {"load balancer": 1} if moved else {}),
            Moves("load balancer", 12, 4, {}),
        ),
        notes=("page placement was not sampled",),
    )


def _matrices(moved: int, seed: int) -> tuple[Matrix, ...]:
    def cells(value: float) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(value if (a, b) == (1, 3) else 0.0 for b in range(4)) for a in range(4))

    migrations = tuple(
        tuple(float(moved * 2 + seed if {a, b} == {1, 3} else a == b) for b in range(4))
        for a in range(4)
    )
    return (
        Matrix("moves", "Moves by NUMA balancing", "moves", cells(moved)),
        Matrix("moves_hops", "Moves by NUMA balancing, weighted by hops", "hops", cells(2 * moved)),
        Matrix("swaps", "Swaps by NUMA balancing", "swaps", cells(0)),
        Matrix("migrations", "Migrations of tasks of interest", "migrations", migrations),
    )


def _series(variant: str, seed: int) -> tuple[TimeSeries, ...]:
    rising = tuple(
        min(100.0, 20 + step * (8 if variant == "after" else 1) + seed) for step in range(20)
    )
    runnable = [
        TimeSeries(
            "runnable",
            "Runnable tasks by node",
            "tasks",
            node,
            SLICES,
            tuple(_runnable(variant, node) + seed / 10 for _ in SLICES),
        )
        for node in NODES
    ]
    local = TimeSeries("local_faults", "Hinting faults that were local", "%", None, SLICES, rising)
    return (local, *runnable)


def _runnable(variant: str, node: int) -> float:
    busy = {1: 4.0, 3: 4.0} if variant == "after" else {1: 8.0}
    return busy.get(node, 0.0)


def _decisions(moved: int) -> tuple[Decision, ...]:
    return (
        *(
            Decision(130.0 + 3 * place, "move", place, "hog", 2, 1, 6, 3, nearer=0)
            for place in range(moved)
        ),
        Decision(900.0, "swap", 0, "hog", 2, 1, 6, 3, other_pid=4, other_task="hog", nearer=20),
        Decision(1500.0, "stick", 1, "hog", 3, 1, None, None, reason="no destination"),
    )


def _residence(variant: str) -> tuple[Residence, ...]:
    share = (0.0, 50.0, 0.0, 50.0) if variant == "after" else (0.0, 100.0, 0.0, 0.0)
    settled = None if variant == "after" else 0.0
    tasks = tuple(
        Residence("task", pid, "hog", 1200.0, share, (share,) * 20, settled, 1) for pid in range(8)
    )
    return (Residence("process", 100, "hog", 9600.0, share, (share,) * 20, settled, 1), *tasks)


def hostile_findings(findings: Findings, texts: Sequence[str]) -> Findings:
    """The same with hostile names for every task, and in every text that rests on one."""
    return replace(
        findings,
        decisions=tuple(
            replace(item, task=texts[place % len(texts)], other_task=texts[0])
            for place, item in enumerate(findings.decisions)
        ),
        residence=tuple(
            replace(item, name=texts[place % len(texts)])
            for place, item in enumerate(findings.residence)
        ),
        violations=tuple(replace(item, task=texts[1]) for item in findings.violations),
        notes=tuple(texts),
    )
