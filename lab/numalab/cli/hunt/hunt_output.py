"""What `numalab hunt` prints when it has ended."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numalab.hunt.direction.coverage import HuntCoverage, coverage_lines, is_unreached
from numalab.hunt.outcome import ConfirmedViolation, Hunt
from numalab.hunt.result.page import NOTHING_JUDGED, HuntFacts
from numalab.units import counted


def hunt_value(
    facts: HuntFacts, progress: Hunt, files: Sequence[Path], coverage: HuntCoverage | None
) -> dict[str, Any]:
    """Return a hunt as plain values for JSON; `files` are the cases of its violations."""
    return {
        "kernel": facts.kernel,
        "seed": facts.seed,
        "when": facts.created,
        "machines": progress.machines,
        "different_machines": len(progress.different),
        "loads": progress.loads,
        "unjudged": progress.unjudged,
        "machines_not_compared": progress.lone_machines,
        "loads_not_compared": progress.lone_loads,
        "never_judged": list(progress.never),
        "boots": facts.boots,
        "closest": {name: asdict(row) for name, row in progress.closest.items()},
        "closeness": {name: _spread(values) for name, values in progress.values.items()},
        "covered": dict(sorted(progress.covered.items())),
        "reach": coverage,
        "unconfirmed": progress.unconfirmed,
        "suspicions": [
            {
                "property": item.finding.prop,
                "load": item.finding.load,
                "sentence": item.finding.text,
                "confirmed": item.confirmed,
                "outcome": item.outcome,
                "value": item.value,
                "reference": item.reference,
                "samples": item.samples,
                "reference_samples": item.reference_samples,
            }
            for item in progress.suspicions
        ],
        "not_examined": progress.failed,
        "found": [
            _violation_row(violation, file)
            for violation, file in zip(progress.violations, files, strict=True)
        ],
    }


def _violation_row(violation: ConfirmedViolation, file: Path) -> dict[str, object]:
    machine = violation.case.machine
    return {
        "property": violation.finding.prop,
        "sentence": violation.finding.text,
        "minutes": violation.minutes,
        "minutes_until_small": violation.shrunk_minutes,
        "boots": violation.boots,
        "boots_until_small": violation.shrunk_boots,
        "after_machines": violation.after,
        "nodes": len(machine.nodes),
        "cpus": machine.cpu_count,
        "tasks": sum(load.tasks for load in violation.case.loads),
        "file": file,
    }


def _spread(values: list[float]) -> dict[str, float]:
    """Return the number of values, the number above 1, and the percentiles."""
    ordered = sorted(values)
    last = len(ordered) - 1
    shares = (50, 95, 99)
    percentiles = {f"p{share}": round(ordered[round(share / 100 * last)], 4) for share in shares}
    counts = {"looks": len(values), "above": sum(value > 1 for value in values)}
    return {**counts, **percentiles, "most": round(ordered[-1], 4)}


def hunt_text(
    progress: Hunt, files: Sequence[Path], boots: int, coverage: HuntCoverage | None
) -> str:
    """Return the lines for people."""
    confirmed = sum(item.confirmed for item in progress.suspicions)
    lines = [
        f"{progress.booted}, {counted(boots, 'boot')},"
        f" {counted(len(progress.suspicions), 'suspicion')}, {confirmed} of them confirmed"
    ]
    for violation, file in zip(progress.violations, files, strict=True):
        machine = violation.case.machine
        tasks, finding = sum(load.tasks for load in violation.case.loads), violation.finding
        lines.append(
            f"{finding.prop}: {counted(len(machine.nodes), 'node')},"
            f" {counted(machine.cpu_count, 'CPU')}, {counted(tasks, 'task')},"
            f" met after {violation.minutes:.1f} min: {finding.text}\n  {file}"
        )
    if progress.unjudged:
        loads = counted(progress.unjudged, "load")
        lines.append(f"{loads} not judged: events were lost, or tasks did not start")
    if progress.remark:
        lines.append(progress.remark)
    if not progress.machines:
        lines.append(NOTHING_JUDGED)
    elif not progress.violations:
        unreached = coverage is not None and is_unreached(coverage)
        nothing = "not reached: no changed line ran" if unreached else "nothing found"
        nothing = "nothing was compared" if progress.compares_nothing else nothing
        lines.append(nothing + progress.untried)
    if coverage is not None:
        lines += coverage_lines(coverage)
    return "\n".join(lines)
