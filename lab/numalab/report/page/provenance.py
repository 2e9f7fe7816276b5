"""What the runs ran on, and how they were placed: facts that most runs share."""

from collections.abc import Sequence
from typing import Any

from numalab.report.document import Run


def shared_facts(runs: Sequence[Run]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return each fact about the runs with its values, and which runs have each value."""
    facts = [
        ("QEMU", [run.provenance.qemu for run in runs]),
        ("libvirt", [run.provenance.libvirt for run in runs]),
        ("host", [run.provenance.host for run in runs]),
        ("image", [f"{r.provenance.image} {r.provenance.image_digest}".strip() for r in runs]),
    ]
    return [(name, _by_value(runs, values)) for name, values in facts]


def _by_value(runs: Sequence[Run], values: Sequence[str]) -> list[tuple[str, str]]:
    """Return each distinct value with the runs that have it, or `all runs`."""
    distinct = list(dict.fromkeys(values))
    whose = [
        "all runs"
        if len(distinct) == 1
        else ", ".join(run.id for run, own in zip(runs, values, strict=True) if own == value)
        for value in distinct
    ]
    return list(zip(distinct, whose, strict=True))


def placement_facts(runs: Sequence[Run]) -> dict[str, Any]:
    """Return how the runs were placed, and every fact with its run and whether it agrees."""
    facts = [(run.id, fact, fact.agrees) for run in runs for fact in run.provenance.proof]
    return {
        "summaries": _by_value(runs, [run.provenance.placement for run in runs]),
        "facts": facts,
        "agreeing": sum(agrees for _, _, agrees in facts),
    }
